# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A development server with TensorFlow Serving's gRPC and REST APIs."""

from __future__ import annotations

import functools
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import grpc
import tensorflow as tf
import uvicorn
from google.protobuf import message
from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

from bert_tf.serving import rest
from bert_tf.serving.servable import Model, find_model, invalid

_GRACE_SECONDS = 30
_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _rpc(method: Callable[..., message.Message]) -> Callable[..., message.Message]:
    @functools.wraps(method)
    def answer(self, request, context):
        try:
            return method(self, request)
        except tf.errors.OpError as error:
            # gRPC limits the length of messages.
            context.abort(_GRPC_CODES[error.error_code], error.message[:1024])

    return answer


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    def __init__(self, models: Mapping[str, Model]):
        self._models = models

    def _resolve(self, request: message.Message) -> tuple[Model, int | None]:
        spec = request.model_spec
        if spec.version_label:
            raise invalid("The development server does not support version labels.")
        version = spec.version.value if spec.HasField("version") else None
        return find_model(self._models, spec.name), version

    @_rpc
    def Predict(self, request):
        model, version = self._resolve(request)
        return model.find(version).predict(request)

    @_rpc
    def GetModelMetadata(self, request):
        model, version = self._resolve(request)
        fields = list(request.metadata_field)
        if fields != ["signature_def"]:
            raise invalid(f"metadata_field must be ['signature_def']. Got {fields}.")
        return model.find(version).metadata()

    @_rpc
    def GetModelStatus(self, request):
        model, version = self._resolve(request)
        return model.status(version)


class DevServer:
    """Serves the newest versions of models over gRPC and REST.

    Example::

        with DevServer({"sst2": "saved_models/sst2"}) as server:
            client.predict({"text": ["a fine film"]}, "sst2", address=server.address)

    Args:
        models: Base path of each model, by name.
        host: Address to listen on.
        port: Port for gRPC; 0 takes a free one, which is then the attribute `port`.
        rest_port: Port for REST, likewise; None turns REST off.
        poll_seconds: Seconds between checks for new versions; 0 turns them off.
        demo: Whether to serve the demo page at the REST port.

    Raises:
        ValueError: No version of a model loads, or a port is in use.
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rest_port: int | None = None,
        poll_seconds: float = 0.0,
        demo: bool = False,
    ):
        self.models = {n: Model(n, pathlib.Path(path)) for n, path in models.items()}
        self._stopped = threading.Event()
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(max_workers=4 * (os.cpu_count() or 1)),
            options=[
                ("grpc.max_receive_message_length", rest.MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # A second server must not share the port.
            ],
        )
        services = _Services(self.models)
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, self._grpc)
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            services, self._grpc
        )
        try:
            self.port = self._grpc.add_insecure_port(f"{host}:{port}")
            self.address = f"{host}:{self.port}"
            self._rest = None
            if rest_port is not None:
                listener = socket.create_server((host, rest_port))
                # asyncio sets it on its own sockets only. Otherwise answers take 40 ms.
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.rest_port = listener.getsockname()[1]
        except (RuntimeError, OSError) as error:
            ports = f"port {port} or {rest_port}"
            raise ValueError(f"Cannot listen on {host}, {ports}: {error}") from error
        if rest_port is not None:
            config = uvicorn.Config(
                rest.create_app(self.models, demo),
                lifespan="off",
                log_config=None,
                log_level="error",
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
            self._rest = uvicorn.Server(config)
            self._rest_thread = _start_thread(self._rest.run, [listener])
        self._grpc.start()
        if poll_seconds:
            _start_thread(self._poll, poll_seconds)

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Accepts no more requests and waits for those in flight, at most 30 s."""
        self._stopped.set()
        done = self._grpc.stop(_GRACE_SECONDS)
        if self._rest:
            self._rest.should_exit = True
            self._rest_thread.join()
        done.wait()

    def _poll(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            for model in self.models.values():
                model.poll()


def _start_thread(target: Callable[..., None], argument: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=(argument,), daemon=True)
    thread.start()
    return thread
