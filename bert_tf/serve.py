# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serves exported models on this machine as TensorFlow Serving would.

In: SavedModels in `<base_path>/<version>/`. Out: TensorFlow Serving's gRPC API
(PredictionService: Predict, Classify, Regress, GetModelMetadata; ModelService:
GetModelStatus) and its REST API (predict, classify, regress, status, metadata)::

    python -m bert_tf.serve --model_name=sst2 --model_base_path=saved_models/sst2
    python -m bert_tf.serve --model_config_file=saved_models/models.config
    python -m bert_tf.serve --model_config_file=saved_models/models.config --demo

A development server, for laptops and tests. Production is stock TensorFlow Serving,
which does the batching, the monitoring and the scaling; saved_models/README.md says
how. Flags are named as in `tensorflow_model_server`; --demo adds a page to try the
models on in a browser (`demo_page.html`). SIGTERM and Ctrl-C let the requests under way
finish.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import threading
import typing
from collections.abc import Iterable, Iterator

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from bert_tf import cli

if typing.TYPE_CHECKING:
    from bert_tf.serving import rest


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeConfig(cli.Options):
    model_name: str = cli.option(
        "default", help="Name of the model at --model_base_path."
    )
    model_base_path: str = cli.option(
        "",
        help="Folder of one model, which holds one folder per version. This or "
        "--model_config_file is needed.",
    )
    model_config_file: str = cli.option(
        "",
        help="ModelServerConfig as a text proto, for several models or another "
        "version policy; --model_name and --model_base_path are then ignored. A "
        "relative base_path starts at the file's folder; an absolute one that does "
        "not exist here (/models/NAME, as inside TensorFlow Serving's container) "
        "means NAME in the file's folder.",
    )
    port: int = cli.option(8500, help="Port for gRPC.", minimum=1, maximum=65535)
    rest_api_port: int = cli.option(
        8501, help="Port for REST; 0 for none.", minimum=0, maximum=65535
    )
    host: str = cli.option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 for all of the machine's."
    )
    file_system_poll_wait_seconds: float = cli.option(
        1.0, help="Interval between looks for new versions; 0 looks once.", minimum=0
    )
    demo: bool = cli.option(
        False, help="Whether to serve a page to try the models on, at the REST port."
    )


def read_model_configs(
    options: ServeConfig,
) -> list[model_server_config_pb2.ModelConfig]:
    """Returns what `options` asks to be served, with resolved base paths.

    Raises:
        ValueError: Neither a base path nor a config file is given, or the file is not a
            ModelServerConfig or breaks a rule of TensorFlow Serving.
        OSError: The file cannot be read.
    """
    if not options.model_config_file:
        if not options.model_base_path:
            raise ValueError("Give --model_base_path or --model_config_file.")
        return [
            model_server_config_pb2.ModelConfig(
                name=options.model_name, base_path=options.model_base_path
            )
        ]
    path = pathlib.Path(options.model_config_file)
    try:
        parsed = text_format.Parse(
            path.read_text(encoding="utf-8"),
            model_server_config_pb2.ModelServerConfig(),
        )
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a ModelServerConfig: {error}") from error
    models = list(parsed.model_config_list.config)
    if not models:
        raise ValueError(f"{path}: no model_config_list with a config in it.")
    names = [model.name for model in models]
    for model in models:
        if names.count(model.name) > 1:
            raise ValueError(f"{path}: two configs have the name {model.name!r}.")
        for field in ("name", "base_path"):
            if not getattr(model, field):
                raise ValueError(f"{path}: a config needs a {field}: {model}")
        if model.model_platform != "tensorflow":
            raise ValueError(
                f'{path}: model {model.name} needs model_platform: "tensorflow". '
                f"Received: {model.model_platform!r}"
            )
        model.base_path = str(_resolve(model.base_path, path.parent))
    return models


def _resolve(base_path: str, folder: pathlib.Path) -> pathlib.Path:
    # TensorFlow Serving takes absolute paths only, those of its container. One file
    # should do for both servers.
    beside = folder / pathlib.PurePath(base_path).name
    if pathlib.Path(base_path).is_absolute() and not pathlib.Path(base_path).exists():
        return beside if beside.is_dir() else pathlib.Path(base_path)
    return folder / base_path


@contextlib.contextmanager
def running(
    *, model_name: str, model_base_path: str | os.PathLike[str]
) -> Iterator[str]:
    """Serves one model from this process, on a free port, while the block runs.

    Yields:
        The address for gRPC, as `client.predict` takes it.

    Raises:
        ValueError: There is no version to serve.
    """
    from bert_tf.serving import model_server

    options = ServeConfig(
        model_name=model_name, model_base_path=os.fspath(model_base_path)
    )
    models = model_server.Models(read_model_configs(options), poll_seconds=0)
    server = model_server.Server(models, options.host, port=0)
    try:
        yield f"{options.host}:{server.port}"
    finally:
        server.stop()


def demo_pages(models: Iterable[str]) -> dict[str, rest.Page]:
    """By path, the page of --demo and the names of the models, which it fetches."""
    from bert_tf.serving import rest

    page = pathlib.Path(__file__).parent / "serving/demo_page.html"
    return {
        "/": rest.Page("text/html; charset=utf-8", page.read_bytes()),
        "/models.json": rest.Page("application/json", json.dumps([*models]).encode()),
    }


def main(options: ServeConfig) -> None:
    """Serves until SIGTERM or SIGINT.

    Raises:
        ValueError: As `read_model_configs`; or --demo is without a REST port.
    """
    model_configs = read_model_configs(options)
    if options.demo and not options.rest_api_port:
        raise ValueError(
            "--demo is served at the REST port: leave out --rest_api_port=0."
        )
    print(
        "This is a development server. Production is stock TensorFlow Serving on the "
        "same folder, which does the batching, the monitoring and the scaling.",
        flush=True,
    )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    import tensorflow as tf  # Here, so that --help need not wait for it.

    from bert_tf.serving import model_server

    tf.get_logger().setLevel("ERROR")  # The session's loader is called deprecated.
    models = model_server.Models(model_configs, options.file_system_poll_wait_seconds)
    server = model_server.Server(
        models,
        options.host,
        options.port,
        options.rest_api_port or None,
        demo_pages(models.by_name) if options.demo else {},
    )
    for name, model in models.by_name.items():
        versions = ", ".join(map(str, sorted(model.servables)))
        print(f"{name}: version {versions} of {model.config.base_path}")
    print(f"gRPC on {options.host}:{server.port}")
    rest = f"http://{options.host}:{server.rest_port}"
    if options.rest_api_port:
        for name in models.by_name:
            print(f"REST on {rest}/v1/models/{name}")
    if options.demo:
        print(f"Demonstration on {rest}/")
    print("Ready.", flush=True)
    stopped.wait()
    server.stop()


if __name__ == "__main__":
    cli.run(main, ServeConfig)
