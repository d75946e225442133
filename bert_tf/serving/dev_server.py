# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A development server with TensorFlow Serving's gRPC and REST APIs.

Paths of the REST API, where `/versions/V` may follow NAME::

    POST /v1/models/NAME:predict
        {"signature_name": "...", "instances": [...]} -> {"predictions": [...]}
        {"signature_name": "...", "inputs": {...}} -> {"outputs": {...}}
    GET /v1/models/NAME             states of the versions
    GET /v1/models/NAME/metadata    signatures

"instances" has a value or object per example, "inputs" a list per input. Bytes that are
not UTF-8 are `{"b64": "..."}`. Errors are `{"error": "..."}`. A body may be compressed
with gzip.

The server limits what a client can use: bytes of a request, connections, and requests
in flight.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import logging
import os
import pathlib
import re
import reprlib
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
import uvicorn
from google.protobuf import json_format, message
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from tensorflow_serving.apis import model_service_pb2_grpc as model_service
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from bert_tf.serving.servable import Model, Servable, check_names, invalid

_MAX_REQUEST_BYTES = 64 << 20

# HTTP connections, and gRPC requests in flight.
_MAX_CONNECTIONS = 256

# gRPC requests that are answered at the same time; others wait.
_GRPC_THREADS = 64

# Time to answer over REST: TensorFlow Serving's --rest_api_timeout_in_ms.
_REST_TIMEOUT_SECONDS = 30

# How long `stop` waits for requests in flight.
_GRACE_SECONDS = 7

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_HTTP_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 413,
    tf.errors.DEADLINE_EXCEEDED: 504,
}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,18}))?(:predict|/metadata|)")

# Messages that are no protocol buffers, and methods that the server does not have, such
# as Classify, are the client's mistake.
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
        poll_seconds: Seconds between checks for new versions; 0 turns them off.
        demo: Whether to serve the demo page at the REST port.

    Attributes:
        models: The models, by name.
        address: "HOST:PORT" for gRPC.
        rest_address: "http://HOST:PORT" for REST.

    Raises:
        ValueError: No version of a model loads, or a port is in use.
        OSError: A base path cannot be read.
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
                ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
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
            raise ValueError(f"Cannot listen on {host}: {error}") from error
        self.address = f"{host}:{port}"
        self.rest_address = f"http://{host}:{listener.getsockname()[1]}"
        # asyncio sets it on its own sockets only. Otherwise answers take 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            _rest_app(self.models, demo),
            limit_concurrency=_MAX_CONNECTIONS,
            log_config=None,
            log_level="critical",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        self._rest = uvicorn.Server(config)
        self._threads = [
            threading.Thread(target=self._rest.run, args=[[listener]], daemon=True),
            threading.Thread(target=self._poll, args=[poll_seconds], daemon=True),
        ]
        self._grpc.start()
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses new requests and waits for those in flight, at most 7 s.

        Returns after at most 10 s, even if a version is still loading.
        """
        self._stopped.set()
        self._health.enter_graceful_shutdown()
        done = self._grpc.stop(_GRACE_SECONDS)
        self._rest.should_exit = True
        done.wait()
        # Python aborts if it exits while a daemon thread is in TensorFlow.
        for thread in self._threads:
            thread.join(timeout=2)

    def _poll(self, seconds: float) -> None:
        while seconds and not self._stopped.wait(seconds):
            for model in self.models.values():
                with contextlib.suppress(OSError):  # A bucket may not answer.
                    model.poll()


# --- Requests --------------------------------------------------------------------


def _not_found(message: str) -> tf.errors.OpError:
    return tf.errors.NotFoundError(None, None, message)


def _find(models: Mapping[str, Model], name: str, version: int) -> Servable:
    """Returns the served version of a model; it must be `version`, unless that is 0."""
    if name not in models:
        raise _not_found(f"No model {name!r}. The models are {sorted(models)}.")
    servable = models[name].servable
    if version not in (0, servable.version):
        raise _not_found(f"Model {name!r} serves version {servable.version} only.")
    return servable


def _rpc(method: Callable[..., message.Message]) -> Callable[..., message.Message]:
    """Wraps a function of a `Servable`, a request, and the seconds left to answer."""

    def answer(self, request, context):
        spec = request.model_spec
        try:
            if not context.is_active():
                raise tf.errors.CancelledError(None, None, "The client canceled.")
            servable = _find(self.models, spec.name, spec.version.value)
            return method(servable, request, context.time_remaining())
        except tf.errors.OpError as error:
            # gRPC limits the length of messages.
            context.abort(_GRPC_CODES[error.error_code], error.message[:1024])

    return answer


class _Services(
    prediction_service.PredictionServiceServicer, model_service.ModelServiceServicer
):
    def __init__(self, models: Mapping[str, Model]):
        self.models = models

    Predict = _rpc(lambda servable, *call: servable.predict(*call))
    GetModelMetadata = _rpc(lambda servable, *_: servable.metadata())
    GetModelStatus = _rpc(lambda servable, *_: servable.status())


def _predict(servable: Servable, body: bytes) -> dict[str, Any]:
    """Answers the JSON of a predict request."""
    try:
        content = json.loads(body, object_hook=_decode_base64)
    except (ValueError, TypeError, RecursionError) as error:
        raise invalid(f"The request is not valid JSON: {error}") from error
    if not isinstance(content, dict) or len({"inputs", "instances"} & {*content}) != 1:
        raise invalid("The request must be an object with 'inputs' or 'instances'.")
    name = content.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(f"'signature_name' must be a string. Got {reprlib.repr(name)}.")
    inputs = servable.signature(name).inputs
    request = predict_pb2.PredictRequest(model_spec={"signature_name": name})
    if "inputs" in content:
        columns = _by_name(content["inputs"], inputs)
    else:
        instances = content["instances"]
        if not isinstance(instances, list) or not instances:
            raise invalid("'instances' must be a list of at least one example.")
        rows = [_by_name(instance, inputs) for instance in instances]
        columns = {name: [row[name] for row in rows] for name in inputs}
    for name, value in columns.items():
        array = _to_array(name, value, tf.as_dtype(inputs[name].dtype))
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array))
    response = servable.predict(request, _REST_TIMEOUT_SECONDS)
    arrays = {name: tf.make_ndarray(x) for name, x in response.outputs.items()}
    outputs = {name: _to_json(name, array) for name, array in sorted(arrays.items())}
    if "inputs" in content:
        return {"outputs": _bare_if_single(outputs)}
    sizes = {array.shape[:1] for array in arrays.values()}
    if len(sizes) != 1 or () in sizes:
        raise invalid("The outputs differ in batch size. Send 'inputs' instead.")
    rows = [dict(zip(outputs, row)) for row in zip(*outputs.values(), strict=True)]
    return {"predictions": [_bare_if_single(row) for row in rows]}


def _decode_base64(value: dict[str, Any]) -> Any:
    if value.keys() != {"b64"}:
        return value
    return base64.b64decode(value["b64"], validate=True)


def _by_name(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns inputs by name, which may be missing if there is only one input."""
    if len(names) == 1 and not isinstance(value, dict):
        return dict.fromkeys(names, value)
    check_names("inputs", value if isinstance(value, dict) else [], names)
    return value


def _to_array(name: str, value: Any, dtype: tf.DType) -> np.ndarray:
    # If lists differ in length, some elements are lists.
    nested = np.array(value, dtype=object)
    elements = nested.ravel().tolist()
    types = {tf.string: {str, bytes}, tf.bool: {bool}, tf.float32: {int, float}}
    try:
        if not {*map(type, elements)} <= types.get(dtype, {int}):
            raise TypeError("JSON has another type.")
        if dtype == tf.string:
            elements = [e.encode() if isinstance(e, str) else e for e in elements]
        return np.array(elements, dtype.as_numpy_dtype).reshape(nested.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid(
            f"Input {name!r} must have {dtype.name} values, in lists of the same "
            f"length. Got {reprlib.repr(value)}."
        ) from error


def _to_json(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind == "f":  # The shortest digits: 0.2 and not 0.20000000298.
        array = array.astype(str).astype(np.float64)
    elif array.dtype.kind == "O" and name.endswith("_bytes"):
        array = _encode_base64(array)
    return array.tolist()


@np.vectorize(otypes=[object])
def _encode_base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _bare_if_single(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


def _json(value: Any, status: int = 200) -> Response:
    """Returns a response with strings, or `bytes` that are sent as they are."""
    if isinstance(value, message.Message):
        value = json_format.MessageToDict(
            value,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        # Of the `Any` in responses to metadata requests.
        value.get("metadata", {}).get("signature_def", {}).pop("@type", None)
    decode = lambda value: value.decode("utf-8", "surrogateescape")  # noqa: E731
    text = json.dumps(value, ensure_ascii=False, default=decode)
    body = text.encode("utf-8", "surrogateescape")
    return Response(body, status, media_type="application/json")


def _error(_: Request, error: tf.errors.OpError) -> Response:
    return _json({"error": error.message}, _HTTP_STATUS.get(error.error_code, 500))


async def _read_body(request: Request) -> bytes:
    """Returns the body, decompressed, or raises an error above the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_REQUEST_BYTES:
            break
    if request.headers.get("Content-Encoding", "").lower() == "gzip":
        try:
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(_MAX_REQUEST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise invalid(f"The body is not gzip: {error}") from error
    if len(body) > _MAX_REQUEST_BYTES:
        raise tf.errors.ResourceExhaustedError(None, None, "The limit is 64 MiB.")
    return bytes(body)


def _rest_app(models: Mapping[str, Model], demo: bool) -> Starlette:
    """Returns the ASGI application, with the demo page at `/` if `demo` is set."""

    async def answer(request: Request) -> Response:
        if path := _PATH.fullmatch(request.scope["path"]):
            name, version, method = path.groups()
            servable = _find(models, name, int(version or 0))
            match request.method, method:
                case "GET", "":
                    return _json(servable.status())
                case "GET", "/metadata":
                    return _json(servable.metadata())
                case "POST", ":predict":
                    body = await _read_body(request)
                    return _json(await run_in_threadpool(_predict, servable, body))
        raise _not_found(f"There is no {request.method} {request.scope['path']}.")

    routes = [Route("/{path:path}", answer, methods=["GET", "POST"])]
    if demo:
        page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
        routes.insert(0, Route("/", lambda _: HTMLResponse(page)))
        routes.insert(0, Route("/models.json", lambda _: _json(list(models))))
    return Starlette(routes=routes, exception_handlers={tf.errors.OpError: _error})
