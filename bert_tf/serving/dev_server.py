# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A development server with TensorFlow Serving's gRPC and REST APIs."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf import message
from tensorflow_serving.apis import model_service_pb2_grpc as model_service
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from bert_tf.serving import rest
from bert_tf.serving.servable import Servable, check_model_name, find, load_newest

# gRPC requests that are answered at the same time; others wait.
_GRPC_THREADS = 64

# Limit of the computing time of a request. Clients may set shorter deadlines.
_MAX_SECONDS = 300

# How long `stop` waits for requests in flight.
_GRACE_SECONDS = 7

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}

# gRPC would log invalid messages and unknown methods, such as Classify, as errors, but
# they are the client's mistake.
logging.getLogger("grpc").setLevel(logging.CRITICAL)


class DevServer:
    """Serves the newest versions of models over gRPC and REST.

    Example::

        with DevServer({"sst2": "saved_models/sst2"}) as server:
            client.predict({"text": ["a fine film"]}, "sst2", address=server.address)

    Args:
        models: Base path of each model, by name.
        host: Address to listen on.
        port: Port for gRPC; 0 for a free one.
        rest_port: Port for REST; 0 for a free one.
        demo: Whether to serve the demo page at the REST port.
        report: Called with a line of text before each model is loaded.

    Attributes:
        models: The newest versions of the models, by name.
        address: "HOST:PORT" for gRPC.
        rest_address: "http://HOST:PORT" for REST.

    Raises:
        ValueError: A model does not load, REST cannot address its name, or a port is
            in use.
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rest_port: int = 0,
        demo: bool = False,
        report: Callable[[str], Any] = lambda line: None,
    ):
        for name in models:
            check_model_name(name)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            with contextlib.ExitStack() as stack:  # Before models take time to load.
                for number in (port, rest_port):
                    server = socket.create_server((host, number), family=family)
                    stack.enter_context(server)
        except OSError as error:
            raise ValueError(
                f"Cannot listen on {host}, ports {port} and {rest_port}: {error}"
            ) from error
        self.models = {}
        for name, path in models.items():
            report(f"Loading {name} from {path}")
            self.models[name] = load_newest(name, path)
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(_GRPC_THREADS),
            options=[
                ("grpc.max_receive_message_length", rest.MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # A second server must not share the port.
            ],
        )
        services = _Services(self.models)
        model_service.add_ModelServiceServicer_to_server(services, self._grpc)
        prediction_service.add_PredictionServiceServicer_to_server(services, self._grpc)
        self._rest = rest.RestServer(self.models, host, rest_port, demo)
        host = f"[{host}]" if ":" in host else host
        self.address = f"{host}:{self._grpc.add_insecure_port(f'{host}:{port}')}"
        self.rest_address = f"http://{host}:{self._rest.server_address[1]}"
        self._grpc.start()

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses new requests and waits for those in flight, at most 7 s."""
        done = self._grpc.stop(_GRACE_SECONDS)
        self._rest.stop(_GRACE_SECONDS)
        done.wait()


def _rpc(method: Callable[..., message.Message]) -> Callable[..., message.Message]:
    """Wraps `method(servable, request, seconds_left)` as a method of `_Services`."""

    def answer(self, request, context):
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        try:
            servable = find(self.models, spec.name, version, spec.version_label)
            # `time_remaining` is years if the client sets no deadline.
            seconds = min(context.time_remaining(), _MAX_SECONDS)
            return method(servable, request, seconds)
        except tf.errors.OpError as error:
            # gRPC limits the length of messages.
            context.abort(_GRPC_CODES[error.error_code], error.message[:1024])

    return answer


class _Services(
    prediction_service.PredictionServiceServicer, model_service.ModelServiceServicer
):
    def __init__(self, models: Mapping[str, Servable]):
        self.models = models

    Predict = _rpc(lambda servable, *call: servable.predict(*call))
    GetModelMetadata = _rpc(
        lambda servable, request, _: servable.metadata(request.metadata_field)
    )
    GetModelStatus = _rpc(lambda servable, *_: servable.status())
