# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serves exported models on this machine, for development and tests.

    python -m bert_tf.serve --model_name=sst2 --model_base_path=saved_models/sst2 --demo
    python -m bert_tf.serve --model_base_path=saved_models/minilm,saved_models/reranker

Input: SavedModels in `<base_path>/<version>/`, of which the newest is served. Output:
TensorFlow Serving's gRPC API (Predict, GetModelMetadata, GetModelStatus) and REST API
(predict, metadata, status). `--demo` adds a page for trying the models in a browser. On
SIGTERM or Ctrl-C, the server refuses connections, answers the requests in flight that
take at most 7 s, and exits; while models load, it exits immediately.

Use TensorFlow Serving in production; its flags have the same names. See
docs/serving.md.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import signal
import threading

from bert_tf import cli, serving


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig(cli.Options):
    """Options of `python -m bert_tf.serve`."""

    model_base_path: str = cli.option(
        help="Folder of the model, which holds one folder per version; or several, "
        "separated by commas."
    )
    model_name: str = cli.option(
        "", help="Name of each model; by default those of the folders."
    )
    port: int = cli.option(
        8500, help="Port for gRPC; 0 for a free one.", minimum=0, maximum=65535
    )
    rest_api_port: int = cli.option(
        8501, help="Port for REST; 0 for a free one.", minimum=0, maximum=65535
    )
    host: str = cli.option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 or :: for all interfaces."
    )
    demo: bool = cli.option(False, help="Whether to serve the demo page.")


def base_paths(options: ServeConfig) -> dict[str, str]:
    """Returns the base path of each model, by name.

    Raises:
        ValueError: There are not as many different names as folders.
    """
    paths = [path.rstrip("/") for path in options.model_base_path.split(",")]
    names = options.model_name.split(",") if options.model_name else []
    models = dict(zip(names or map(os.path.basename, paths), paths))
    if not len(paths) == len(models) == len(names or paths):
        raise ValueError(
            "--model_name must have a different name for each folder in "
            f"--model_base_path={options.model_base_path}. Received: "
            f"--model_name={options.model_name}"
        )
    return models


def _set_options() -> None:
    """Sets options of TensorFlow, oneDNN and malloc; see docs/serving.md."""
    if cli.num_cores() <= 4:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")
    if set_option := getattr(ctypes.CDLL(None), "mallopt", None):
        set_option(-8, 2)  # M_ARENA_MAX of the GNU C library.


def main(options: ServeConfig) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ValueError: The options are invalid, a port is in use, or a model does not load.
    """
    models = base_paths(options)
    _set_options()
    stopped = threading.Event()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ends the process while models load.
    print("This server is for development. Use TensorFlow Serving in production.")
    with serving.DevServer(
        models,
        host=options.host,
        port=options.port,
        rest_port=options.rest_api_port,
        demo=options.demo,
        report=functools.partial(print, flush=True),
    ) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stopped.set())
        for name, servable in server.models.items():
            print(f"{name}: version {servable.version} of {models[name]}")
            print(f"  REST: {server.rest_address}/v1/models/{name}:predict")
        print(f"gRPC: {server.address}")
        if options.demo:
            print(f"Demo page: {server.rest_address}/")
        print("Ready.", flush=True)
        stopped.wait()
    os._exit(0)  # Without waiting for requests that take longer.


if __name__ == "__main__":
    cli.run(main, ServeConfig)
