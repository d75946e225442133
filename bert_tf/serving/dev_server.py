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
not UTF-8 are `{"b64": "..."}`. Errors are `{"error": "..."}`.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import logging
import os
import pathlib
import re
import reprlib
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import model_service_pb2_grpc as model_service
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as prediction_service

from bert_tf.serving.servable import Servable, check_names, invalid, load_newest

_MAX_REQUEST_BYTES = 64 << 20

# gRPC requests that are answered at the same time; others wait.
_GRPC_THREADS = 64

# Time to answer over REST: TensorFlow Serving's --rest_api_timeout_in_ms.
_REST_TIMEOUT_SECONDS = 30

# How long `stop` waits for requests in flight.
_GRACE_SECONDS = 7

_JSON = "application/json"

_GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
_HTTP_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 413,
    tf.errors.UNIMPLEMENTED: 415,
    tf.errors.DEADLINE_EXCEEDED: 504,
}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,19}))?(:predict|/metadata|)")

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
        demo: Whether to serve the demo page at the REST port.

    Attributes:
        models: The newest versions of the models, by name.
        address: "HOST:PORT" for gRPC.
        rest_address: "http://HOST:PORT" for REST.

    Raises:
        ValueError: A model does not load, or a port is in use.
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        rest_port: int = 0,
        demo: bool = False,
    ):
        self.models = {name: load_newest(name, path) for name, path in models.items()}
        self._grpc = grpc.server(
            futures.ThreadPoolExecutor(_GRPC_THREADS),
            options=[
                ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # A second server must not share the port.
            ],
        )
        services = _Services(self.models)
        model_service.add_ModelServiceServicer_to_server(services, self._grpc)
        prediction_service.add_PredictionServiceServicer_to_server(services, self._grpc)
        try:
            port = self._grpc.add_insecure_port(f"{host}:{port}")
            self._rest = _RestServer((host, rest_port), _RestHandler)
        except (RuntimeError, OSError) as error:
            raise ValueError(
                f"Cannot listen on {host}, ports {port} and {rest_port}: {error}"
            ) from error
        self._rest.models = self.models
        if demo:
            page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
            self._rest.pages = {
                "GET /": ("text/html; charset=utf-8", page),
                "GET /models.json": (_JSON, _encode(list(models))),
            }
        self.address = f"{host}:{port}"
        self.rest_address = f"http://{host}:{self._rest.server_port}"
        self._grpc.start()
        serve = self._rest.serve_forever  # Checks for `shutdown` every 0.05 s.
        threading.Thread(target=serve, args=[0.05], daemon=True).start()

    def __enter__(self) -> DevServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Refuses new requests and waits for those in flight, at most 7 s."""
        done = self._grpc.stop(_GRACE_SECONDS)
        self._rest.shutdown()
        closing = threading.Thread(target=self._rest.server_close, daemon=True)
        closing.start()
        closing.join(_GRACE_SECONDS)
        done.wait()


# --- Requests --------------------------------------------------------------------


def _not_found(message: str) -> tf.errors.OpError:
    return tf.errors.NotFoundError(None, None, message)


def _find(models: Mapping[str, Servable], name: str, version: int | str) -> Servable:
    """Returns the served version of a model.

    Args:
        models: The models by name.
        name: The name of the model.
        version: The number of the version, or 0 or "" for any. This server has no
            labels of versions: any label raises NotFoundError.
    """
    if name not in models:
        raise _not_found(f"No model {name!r}. The models are {sorted(models)}.")
    found = models[name].version
    if version and version != found:
        raise _not_found(f"Model {name!r} serves version {found} only.")
    return models[name]


def _rpc(method: Callable[..., message.Message]) -> Callable[..., message.Message]:
    """Wraps a function of a `Servable`, a request, and the seconds left to answer."""

    def answer(self, request, context):
        spec = request.model_spec
        try:
            version = spec.version.value or spec.version_label
            servable = _find(self.models, spec.name, version)
            return method(servable, request, context.time_remaining())
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
        proto = _to_proto(name, value, tf.as_dtype(inputs[name].dtype))
        request.inputs[name].CopyFrom(proto)
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


def _to_proto(name: str, value: Any, dtype: tf.DType) -> tensor_pb2.TensorProto:
    # If lists differ in length, some elements are lists.
    array = np.array(value, dtype=object)
    numbers = {int, float} if dtype.is_floating else {int}
    types = {tf.string: {str, bytes}, tf.bool: {bool}}.get(dtype, numbers)
    try:
        if not set(map(type, array.flat)) <= types:
            raise TypeError("JSON has another type.")
        return tf.make_tensor_proto(array.astype(dtype.as_numpy_dtype), dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
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


def _encode(value: message.Message | dict[str, Any] | list[str]) -> bytes:
    """Returns the JSON of a response. Bytes in it are sent as they are."""
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
    return text.encode("utf-8", "surrogateescape")


class _RestServer(http.server.ThreadingHTTPServer):
    daemon_threads = False  # `server_close` waits for requests in flight.
    request_queue_size = 256  # Connections that wait for a thread.
    models: Mapping[str, Servable]
    # Type and content of the demo page's files, by method and path.
    pages: Mapping[str, tuple[str, bytes]] = {}


class _RestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Curl waits a second before large bodies otherwise.
    timeout = _REST_TIMEOUT_SECONDS  # For a client that does not end its request.
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # The client has gone.
            super().handle()

    def do_GET(self) -> None:
        path = urllib.parse.unquote(self.path.partition("?")[0])
        status, page = 200, self.server.pages.get(f"{self.command} {path}")
        try:
            kind, body = page or (_JSON, _encode(self._answer(path)))
        except tf.errors.OpError as error:
            status = _HTTP_STATUS.get(error.error_code, 500)
            kind, body = _JSON, _encode({"error": error.message})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def _answer(self, path: str) -> message.Message | dict[str, Any]:
        if match := _PATH.fullmatch(path):
            name, version, method = match.groups()
            servable = _find(self.server.models, name, int(version or 0))
            match self.command, method:
                case "GET", "":
                    return servable.status()
                case "GET", "/metadata":
                    return servable.metadata()
                case "POST", ":predict":
                    return _predict(servable, self._read_body())
        raise _not_found(f"There is no {self.command} {path}.")

    def _read_body(self) -> bytes:
        if "Content-Encoding" in self.headers:
            message = "The development server does not read compressed bodies."
            raise tf.errors.UnimplementedError(None, None, message)
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise invalid("The request must have a Content-Length.")
        if int(length) > _MAX_REQUEST_BYTES:
            raise tf.errors.ResourceExhaustedError(None, None, "The limit is 64 MiB.")
        return self.rfile.read(int(length))

    def log_message(self, *_: object) -> None:
        """Does not log requests."""
