# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serves exported models on this machine, for development and tests.

    python -m bert_tf.serve --model_name=sst2 --model_base_path=saved_models/sst2
    python -m bert_tf.serve --model_config_file=saved_models/models.config --demo

Input: SavedModels in `<base_path>/<version>/`. Output: TensorFlow Serving's gRPC API
(Predict, GetModelMetadata, GetModelStatus) and REST API (predict, metadata, status). A
newer version replaces the served one as soon as it is loaded. `--demo` adds a page for
trying the models in a browser. On SIGTERM or Ctrl-C, the server refuses connections,
answers the requests in flight that take at most 7 s, and exits.

Use TensorFlow Serving in production; its flags have the same names. See
saved_models/README.md.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import signal
import threading

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_tf import cli, serving, storage


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig(cli.Options):
    """Options of `python -m bert_tf.serve`."""

    model_name: str = cli.option("default", help="Name of the model.")
    model_base_path: str = cli.option(
        "", help="Folder of the model, which holds one folder per version."
    )
    model_config_file: str = cli.option(
        "",
        help="ModelServerConfig as a text proto, for several models, in place of "
        "--model_name and --model_base_path. Base paths are relative to the file. One "
        "that does not exist, such as /models/NAME in TensorFlow Serving's container, "
        "means NAME beside the file. Version policies and labels are ignored.",
    )
    port: int = cli.option(
        8500, help="Port for gRPC; 0 for a free one.", minimum=0, maximum=65535
    )
    rest_api_port: int = cli.option(
        8501, help="Port for REST; 0 for a free one.", minimum=0, maximum=65535
    )
    host: str = cli.option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 for all interfaces."
    )
    file_system_poll_wait_seconds: float = cli.option(
        1.0,
        help="Seconds between checks for new versions; 0 checks at start only.",
        minimum=0,
    )
    demo: bool = cli.option(False, help="Whether to serve the demo page.")


def base_paths(options: ServeConfig) -> dict[str, str]:
    """Returns the base path of each model, by name.

    Raises:
        ValueError: The options name no model, or the config file is invalid.
        OSError: The config file cannot be read.
    """
    if not options.model_config_file:
        if not options.model_base_path:
            raise ValueError("--model_base_path or --model_config_file is required.")
        return {options.model_name: options.model_base_path}
    file = pathlib.Path(options.model_config_file)
    config = model_server_config_pb2.ModelServerConfig()
    try:
        text_format.Parse(file.read_text(encoding="utf-8"), config)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a ModelServerConfig: {error}") from error
    paths = {}
    for model in config.model_config_list.config:
        folder = "" if storage.is_remote(model.base_path) else file.parent
        path = os.path.join(folder, model.base_path)
        beside = os.path.join(file.parent, os.path.basename(path))
        is_beside = os.path.isdir(beside) and not storage.exists(path)
        paths[model.name] = beside if is_beside else path
    models = [m for m in config.model_config_list.config if m.name and m.base_path]
    if not paths or len(paths) != len(models):
        raise ValueError(
            f"{file} must have a model_config_list of configs with unique names and a "
            f"base_path each. Got:\n{config}"
        )
    return paths


def main(options: ServeConfig) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ValueError: The options are invalid, a port is in use, or a model does not load.
    """
    models = base_paths(options)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    print("This server is for development. Use TensorFlow Serving in production.")
    with serving.DevServer(
        models,
        host=options.host,
        port=options.port,
        rest_port=options.rest_api_port,
        poll_seconds=options.file_system_poll_wait_seconds,
        demo=options.demo,
    ) as server:
        for name, model in server.models.items():
            print(f"{name}: version {model.servable.version} of {model.base_path}")
            print(f"  REST: {server.rest_address}/v1/models/{name}:predict")
        print(f"gRPC: {server.address}")
        if options.demo:
            print(f"Demo page: {server.rest_address}/")
        print("Ready.", flush=True)
        stopped.wait()
    os._exit(0)  # Without waiting for requests that take longer.


if __name__ == "__main__":
    cli.run(main, ServeConfig)
