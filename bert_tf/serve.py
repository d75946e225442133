# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serves exported models on this machine, for development and tests.

    python -m bert_tf.serve --model_name=sst2 --model_base_path=saved_models/sst2
    python -m bert_tf.serve --model_config_file=saved_models/models.config

Input: SavedModels in `<base_path>/<version>/`, of which the newest is served. Output:
TensorFlow Serving's gRPC API (Predict, GetModelMetadata, GetModelStatus) and REST API
(predict, metadata, status). On SIGTERM or Ctrl-C, the server refuses connections,
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

from bert_tf import cli, serving


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
        "--model_name and --model_base_path. A base path such as /models/NAME, in "
        "TensorFlow Serving's container, means NAME beside the file if that exists. "
        "Version policies and labels are ignored.",
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
    models = config.model_config_list.config
    if not models or not all(model.name and model.base_path for model in models):
        raise ValueError(
            f"{file} must have a model_config_list of configs with a name and a "
            f"base_path each. Got:\n{config}"
        )
    paths = {}
    for model in models:
        beside = file.parent / os.path.basename(model.base_path)
        paths[model.name] = str(beside) if beside.is_dir() else model.base_path
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
    ) as server:
        for name, servable in server.models.items():
            print(f"{name}: version {servable.version} of {models[name]}")
            print(f"  REST: {server.rest_address}/v1/models/{name}:predict")
        print(f"gRPC: {server.address}")
        print("Ready.", flush=True)
        stopped.wait()
    os._exit(0)  # Without waiting for requests that take longer.


if __name__ == "__main__":
    cli.run(main, ServeConfig)
