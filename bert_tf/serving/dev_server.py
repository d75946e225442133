# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A development server with TensorFlow Serving's gRPC and REST APIs.

It limits what a client can use: bytes of a request, connections, and requests in
flight.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import grpc
import tensorflow as tf
import uvicorn
from google.protobuf import message
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from tensorflow_serving.apis import model_service_pb2_grpc as model_service
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from bert_tf.serving import rest
from bert_tf.serving.servable import Model, find_model, invalid

# HTTP connections, and gRPC requests in flight.
_MAX_CONNECTIONS = 256

# gRPC requests that are answered at the same time; others wait.
_GRPC_THREADS = 64

# From `stop`, requests in flight have the first time. Then their ops are canceled,
# which may take until the second, so that the process exits within 10 s.
_GRACE_SECONDS, _EXIT_SECONDS = 7, 9

# A message that is not a protocol buffer is the client's mistake. gRPC rejects it.
logging.getLogger("grpc._common").setLevel(logging.CRITICAL)

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}


def _rpc(method: Callable[..., message.Message]) -> Callable[..., message.Message]:
    """Wraps a function of a model, a version or None, a request, and seconds left."""

    def answer(self, request, context):
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        try:
            if not context.is_active():
                raise tf.errors.CancelledError(None, None, "The client canceled.")
            if spec.version_label:
                raise invalid("The development server has no version labels.")
            model = find_model(self.models, spec.name)
            return method(model, version, request, context.time_remaining())
        except tf.errors.OpError as error:
            # gRPC limits the length of messages.
            context.abort(_GRPC_CODES[error.error_code], error.message[:1024])

    return answer


def _unimplemented(self, request, context):
    text = "bert_tf.serve has Predict, GetModelMetadata and GetModelStatus only."
    context.abort(grpc.StatusCode.UNIMPLEMENTED, text)


class _Services(
    prediction_service.PredictionServiceServicer, model_service.ModelServiceServicer
):
    def __init__(self, models: Mapping[str, Model]):
        self.models = models

    @_rpc
    def Predict(model, version, request, seconds):
        return model.find(version).predict(request, seconds)

    @_rpc
    def GetModelMetadata(model, version, request, _):
        fields = list(request.metadata_field)
        if fields != ["signature_def"]:
            raise invalid(f"metadata_field must be ['signature_def']. Got {fields}.")
        return model.find(version).metadata()

    @_rpc
    def GetModelStatus(model, version, request, _):
        return model.status(version)

    Classify = Regress = MultiInference = HandleReloadConfigRequest = _unimplemented


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
        poll_seconds: Seconds between checks for new versions; 0 turns them off.
        demo: Whether to serve the demo page at the REST port.

    Attributes:
        models: The models, by name.
        address: "HOST:PORT" for gRPC.
        rest_address: "http://HOST:PORT" for REST.

    Raises:
        ValueError: No version of a model loads, or a port is in use.
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rest_port: int = 0,
        poll_seconds: float = 0.0,
        demo: bool = False,
    ):
        self.models = {n: Model(n, path) for n, path in models.items()}
        self._stopped = threading.Event()
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(_GRPC_THREADS),
            maximum_concurrent_rpcs=_MAX_CONNECTIONS,
            options=[
                ("grpc.max_receive_message_length", rest.MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # A second server must not share the port.
            ],
        )
        services = _Services(self.models)
        model_service.add_ModelServiceServicer_to_server(services, self._grpc)
        prediction_service.add_PredictionServiceServicer_to_server(services, self._grpc)
        self._health = health.HealthServicer()  # SERVING for "", the whole server.
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._grpc)
        names = [f"tensorflow.serving.{n}Service" for n in ("Prediction", "Model")]
        names += [health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self._grpc)
        try:
            port = self._grpc.add_insecure_port(f"{host}:{port}")
            listener = socket.create_server((host, rest_port))
        except (RuntimeError, OSError) as error:
            ports = f"port {port} or {rest_port}"
            raise ValueError(f"Cannot listen on {host}, {ports}: {error}") from error
        self.address = f"{host}:{port}"
        self.rest_address = f"http://{host}:{listener.getsockname()[1]}"
        # asyncio sets it on its own sockets only. Otherwise answers take 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            rest.create_app(self.models, demo),
            limit_concurrency=_MAX_CONNECTIONS,
            log_config=None,
            log_level="error",
            timeout_graceful_shutdown=_EXIT_SECONDS,
        )
        self._rest = uvicorn.Server(config)
        self._grpc.start()
        self._rest_thread = self._start(self._rest.run, [listener])
        self._poll_thread = self._start(self._poll, poll_seconds)

    def _start(self, *call: Any) -> threading.Thread:
        thread = threading.Thread(target=call[0], args=call[1:], daemon=True)
        thread.start()
        return thread

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses new requests and waits for those in flight, at most 10 s.

        Requests that take longer than 7 s are canceled. Does not wait longer for a
        version that is still loading.
        """
        end = time.monotonic() + _EXIT_SECONDS
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        done = self._grpc.stop(_EXIT_SECONDS)
        self._rest.should_exit = True
        cancel = threading.Timer(_GRACE_SECONDS, self._cancel)
        cancel.start()
        self._rest_thread.join()
        done.wait()
        cancel.cancel()
        # Python aborts if it exits while a daemon thread is in TensorFlow.
        self._poll_thread.join(max(0.0, end - time.monotonic()))

    def _cancel(self) -> None:
        for model in self.models.values():
            model.close()

    def _poll(self, seconds: float) -> None:
        while seconds and not self._stopped.wait(seconds):
            for model in self.models.values():
                model.poll()
