# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST API over HTTP/1.1.

Paths, where `/versions/V` may follow NAME::

    POST /v1/models/NAME:predict
        {"signature_name": "...", "instances": [...]} -> {"predictions": [...]}
        {"signature_name": "...", "inputs": {...}} -> {"outputs": {...}}
    GET /v1/models/NAME             states of the versions
    GET /v1/models/NAME/metadata    signatures

"instances" has a value or object per example, "inputs" a list per input. Bytes that are
not UTF-8 are `{"b64": "..."}`. Errors are `{"error": "..."}`. h11 parses HTTP.
"""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import re
import reprlib
import socket
import socketserver
import threading
import time
import urllib.parse
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import h11
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message

from bert_tf.serving import tensors
from bert_tf.serving.servable import Servable, check_names, find, invalid, not_found

MAX_REQUEST_BYTES = 64 << 20

# Limit of the request line and the headers.
_MAX_HEAD_BYTES = 64 << 10

# Limit of values in an answer. A million take about a second to encode.
_MAX_VALUES = 1 << 20

# Limit of threads in the process. Each connection has one; further ones are closed.
_MAX_THREADS = 512

# Limit to read and answer a request, the default of TensorFlow Serving's
# --rest_api_timeout_in_ms, and another one to send the answer.
_TIMEOUT_SECONDS = 30

_JSON = "application/json"

_HTTP_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 413,
    tf.errors.UNIMPLEMENTED: 415,
    tf.errors.DEADLINE_EXCEEDED: 504,
}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d{1,19}))?(:predict|/metadata|)")


class RestServer(socketserver.ThreadingTCPServer):
    """Answers requests until `stop`.

    Args:
        models: Models by name.
        host: Address to listen on.
        port: Port; 0 for a free one.
        demo: Whether to serve the demo page.
    """

    allow_reuse_address = True
    daemon_threads = False  # `server_close` waits for requests in flight.
    request_queue_size = 256  # Connections that wait for a thread.

    def __init__(
        self, models: Mapping[str, Servable], host: str, port: int, demo: bool
    ):
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Connection)
        self.models = models
        # Type and content of the demo page's files, by path.
        self.pages: dict[str, tuple[str, bytes]] = {}
        if demo:
            page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
            self.pages["/"] = "text/html; charset=utf-8", page
            self.pages["/models.json"] = _JSON, _encode(list(models))
        serve = self.serve_forever  # Checks for `shutdown` every 0.05 s.
        threading.Thread(target=serve, args=[0.05], daemon=True).start()

    def verify_request(self, *_: Any) -> bool:
        """Returns whether to answer a connection, which needs a thread."""
        return threading.active_count() < _MAX_THREADS

    def stop(self, seconds: float) -> None:
        """Refuses connections and waits for the requests in flight."""
        self.shutdown()
        closing = threading.Thread(target=self.server_close, daemon=True)
        closing.start()
        closing.join(seconds)


class _Connection(socketserver.BaseRequestHandler):
    """Answers one request and closes the connection."""

    def handle(self) -> None:
        self._deadline = time.monotonic() + _TIMEOUT_SECONDS
        self._http = h11.Connection(
            h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES
        )
        self._is_head = False
        with contextlib.suppress(OSError):  # The client disconnected or does not read.
            self._send(*self._respond())

    def _respond(self) -> tuple[int, str, bytes]:
        """Returns status, content type and content of the response."""
        try:
            return 200, *self._answer()
        except tf.errors.OpError as error:
            status, text = _HTTP_STATUS.get(error.error_code, 500), error.message
        except TimeoutError:
            status, text = 408, f"Incomplete after {_TIMEOUT_SECONDS} s."
        except h11.RemoteProtocolError as error:
            status, (unread, _) = error.error_status_hint, self._http.trailing_data
            text = f"Invalid HTTP: {error}."
            if status == 431 and b"\n" not in unread:  # Not of the headers.
                status = 414
        return status, _JSON, _encode({"error": text})

    def _answer(self) -> tuple[str, bytes]:
        request = self._read()
        if type(request) is h11.ConnectionClosed:
            raise ConnectionError
        self._is_head = request.method == b"HEAD"
        headers, body = dict(request.headers), bytearray()
        size = int(headers.get(b"content-length", 0))
        while size <= MAX_REQUEST_BYTES and type(event := self._read()) is h11.Data:
            body += event.data
            size = max(size, len(body))
        _check_size(size)
        body = _decompress(bytes(body), headers.get(b"content-encoding", b"identity"))
        method = "GET" if self._is_head else request.method.decode()
        # With the host if a proxy sends it (RFC 9112, 3.2.2).
        target = re.sub(rb"(?i)^https?://[^/?]*", b"", request.target)
        path = urllib.parse.unquote(target.partition(b"?")[0])
        if method == "GET" and path in self.server.pages:
            return self.server.pages[path]
        if match := _PATH.fullmatch(path):
            name, version, call = match.groups()
            servable = find(self.server.models, name, version and int(version))
            match method, call:
                case "GET", "":
                    return _JSON, _encode(servable.status())
                case "GET", "/metadata":
                    return _JSON, _encode(servable.metadata())
                case "POST", ":predict":
                    seconds = self._deadline - time.monotonic()
                    return _JSON, _encode(_predict(servable, body, seconds))
        raise not_found(f"There is no {method} {path:.200}.")

    def _read(self) -> Any:
        """Returns the next event: the request, data, or its end."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self.request.sendall(self._http.send(go_on))
            self._http.receive_data(self._receive())
        return event

    def _receive(self) -> bytes:
        self.request.settimeout(max(self._deadline - time.monotonic(), 0.001))
        return self.request.recv(1 << 14)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        fields = {"Content-Type": kind, "Content-Length": f"{len(body)}"}
        headers = [*fields.items(), ("Connection", "close")]
        data = self._http.send(h11.Response(status_code=status, headers=headers))
        if not self._is_head:
            data += self._http.send(h11.Data(data=body))
        self.request.settimeout(_TIMEOUT_SECONDS)
        self.request.sendall(data)
        if self._http.their_state in (h11.IDLE, h11.SEND_BODY, h11.ERROR):
            # Closing would drop the response while the client sends.
            self.request.shutdown(socket.SHUT_WR)
            self._deadline = time.monotonic() + 2
            while self._receive():
                pass


def _too_large(message: str) -> tf.errors.OpError:
    return tf.errors.ResourceExhaustedError(None, None, message)


def _check_size(size: int) -> None:
    if size > MAX_REQUEST_BYTES:
        raise _too_large(f"The limit is {MAX_REQUEST_BYTES >> 20} MiB.")


def _decompress(body: bytes, encoding: bytes) -> bytes:
    match encoding.lower():
        case b"identity":
            return body
        case b"gzip":
            unpacker = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            try:
                body = unpacker.decompress(body, MAX_REQUEST_BYTES + 1)
            except zlib.error as error:
                raise invalid(f"The body is not valid gzip: {error}") from error
            _check_size(len(body))
            return body
    text = f"Content-Encoding must be gzip or identity. Got {encoding!r:.80}."
    raise tf.errors.UnimplementedError(None, None, text)


# --- Predict ---------------------------------------------------------------------


def _predict(servable: Servable, body: bytes, seconds: float) -> dict[str, Any]:
    """Answers the JSON of a predict request within `seconds`."""
    try:
        content = json.loads(body, object_hook=_decode_base64)
    except (ValueError, TypeError, RecursionError) as error:
        text = f"The body, {len(body)} bytes, is not valid JSON: {error}"
        raise invalid(text) from error
    if not isinstance(content, dict) or len({"inputs", "instances"} & {*content}) != 1:
        raise invalid("The request must be an object with 'inputs' or 'instances'.")
    name = content.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(f"'signature_name' must be a string. Got {reprlib.repr(name)}.")
    infos = servable.signature(name).inputs
    if "inputs" in content:
        columns = _by_name(content["inputs"], infos)
    else:
        instances = content["instances"]
        if not isinstance(instances, list) or not instances:
            raise invalid("'instances' must be a list of at least one example.")
        if len({isinstance(instance, dict) for instance in instances}) > 1:
            raise invalid("'instances' must be either values or objects, not a mix.")
        rows = [_by_name(instance, infos) for instance in instances]
        columns = {key: [row[key] for row in rows] for key in infos}
    inputs = {key: _to_array(key, x, infos[key].dtype) for key, x in columns.items()}
    arrays = servable.run(name, inputs, seconds=seconds)
    if (count := sum(array.size for array in arrays.values())) > _MAX_VALUES:
        raise _too_large(
            f"The answer has {count} values, above the limit of {_MAX_VALUES} over "
            "REST. Send fewer or shorter texts per request, or use gRPC."
        )
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
    if not isinstance(value["b64"], str):
        raise ValueError(f"'b64' must be a string. Got {reprlib.repr(value['b64'])}")
    text = "".join(value["b64"].split())
    # TensorFlow Serving allows white space and no padding.
    padding = "" if "=" in text else "=" * (-len(text) % 4)
    return base64.b64decode(text + padding, validate=True)


def _by_name(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Returns inputs by name, which may be missing if there is only one input."""
    if len(names) == 1 and not isinstance(value, dict):
        return dict.fromkeys(names, value)
    check_names("inputs", value if isinstance(value, dict) else [], names)
    return value


def _to_array(name: str, value: Any, dtype: int) -> np.ndarray:
    dtype = tf.as_dtype(dtype)
    # If lists differ in length, some elements are lists.
    array = np.array(value, dtype=object)
    numbers = {int, float} if dtype.is_floating else {int}
    types = {tf.string: {str, bytes}, tf.bool: {bool}}.get(dtype, numbers)
    try:
        if not set(map(type, array.flat)) <= types:
            raise TypeError("JSON has another type.")
        tensor = tensors.encoded(array).astype(dtype.as_numpy_dtype)
        if dtype.is_integer and (tensor != array).any():  # NumPy 1 does not raise.
            raise OverflowError
        return tensor
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise invalid(
            f"Input {name!r} must have {dtype.name} values, in lists of the same "
            f"length. Got {reprlib.repr(value)}."
        ) from error


def _to_json(name: str, array: np.ndarray) -> Any:
    if array.dtype == object and name.endswith("_bytes"):
        array = _encode_base64(array)
    return tensors.to_lists(array)


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
