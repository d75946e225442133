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
not UTF-8 are `{"b64": "..."}`. Errors are `{"error": "..."}`.

h11 parses HTTP. An event loop reads requests, so that slow clients occupy no thread.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import pathlib
import re
import reprlib
import threading
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from concurrent import futures
from typing import Any

import h11
import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2

from bert_tf.serving.servable import Servable, check_names, find, invalid, not_found

# Answered at the same time, over each of gRPC and REST; other requests wait.
THREADS = 64

MAX_REQUEST_BYTES = 64 << 20

# Request line and headers.
_MAX_HEAD_BYTES = 64 << 10

# Open connections, which need no thread. Others get an error.
_MAX_CONNECTIONS = 512

# Of an answer. A million values take about a second to encode.
_MAX_VALUES = 1 << 22

# To read and answer a request: TensorFlow Serving's --rest_api_timeout_in_ms.
_TIMEOUT_SECONDS = 30

# For a client that still sends when it has its response.
_LINGER_SECONDS = 2

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

# Status, content type and content.
_Response = tuple[int, str, bytes]


class RestServer:
    """Answers requests until `stop`.

    Args:
        models: Models by name.
        host: Address to listen on.
        port: Port; 0 for a free one.
        demo: Whether to serve the demo page.

    Attributes:
        port: The port.

    Raises:
        OSError: The port is in use.
    """

    def __init__(
        self, models: Mapping[str, Servable], host: str, port: int, demo: bool
    ):
        self._models = models
        self._pages: dict[str, _Response] = {}
        if demo:
            page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
            self._pages = {
                "/": (200, "text/html; charset=utf-8", page),
                "/models.json": (200, _JSON, _encode(list(models))),
            }
        self._connections: dict[asyncio.Task, _Connection] = {}
        self._threads = futures.ThreadPoolExecutor(THREADS)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        start = asyncio.start_server(self._connect, host, port, backlog=256)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self, seconds: float) -> None:
        """Refuses connections and waits for the requests in flight."""

        async def close() -> None:
            self._server.close()
            connections = self._connections.items()
            if busy := [task for task, c in connections if not c.is_waiting()]:
                await asyncio.wait(busy, timeout=seconds)
            for task in self._connections:
                task.cancel()
            await asyncio.sleep(0)  # They close their connections.

        asyncio.run_coroutine_threadsafe(close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answers one request and closes the connection."""
        task, connection = asyncio.current_task(), _Connection(reader, writer)
        self._connections[task] = connection
        try:
            response = await self._respond(connection)
            await asyncio.wait_for(connection.send(*response), _TIMEOUT_SECONDS)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # The client has gone, or does not read; or the server stops.
        finally:
            del self._connections[task]
            writer.transport.abort()

    async def _respond(self, connection: _Connection) -> _Response:
        """Reads a request and returns the response, also to an invalid one."""
        seconds = _TIMEOUT_SECONDS
        if len(self._connections) > _MAX_CONNECTIONS:
            return _error(503, "Too many connections are open. Try again later.")
        try:
            answer = self._read_and_answer(connection, time.monotonic() + seconds)
            return await asyncio.wait_for(answer, seconds)
        except ConnectionError:  # The client has gone.
            raise
        except h11.RemoteProtocolError as error:
            return _error(connection.status(error), f"The request is invalid: {error}.")
        except asyncio.TimeoutError:
            if connection.is_read():
                return _error(504, f"There is no answer after {seconds} s.")
            return _error(408, f"The request is incomplete after {seconds} s.")
        except tf.errors.OpError as error:
            return _error(_HTTP_STATUS.get(error.error_code, 500), error.message)
        except Exception as error:
            logging.exception("Cannot answer a request.")
            return _error(500, f"{type(error).__name__}: {error}")

    async def _read_and_answer(
        self, connection: _Connection, deadline: float
    ) -> _Response:
        request = await connection.read()
        if type(request) is h11.ConnectionClosed:
            raise ConnectionError
        headers, body = dict(request.headers), bytearray()
        size = int(headers.get(b"content-length", 0))
        while True:
            if size > MAX_REQUEST_BYTES:
                raise _too_large(f"The limit is {MAX_REQUEST_BYTES >> 20} MiB.")
            event = await connection.read()
            if type(event) is h11.EndOfMessage:
                break
            body += event.data
            size = max(size, len(body))
        if headers.get(b"content-encoding", b"identity") != b"identity":
            message = "The development server does not read compressed bodies."
            raise tf.errors.UnimplementedError(None, None, message)
        method = "GET" if connection.is_head else request.method.decode()
        path = urllib.parse.unquote(request.target.partition(b"?")[0])
        if method == "GET" and path in self._pages:
            return self._pages[path]

        def answer() -> _Response:
            answer = self._answer(method, path, bytes(body), deadline)
            return 200, _JSON, _encode(answer)

        return await self._loop.run_in_executor(self._threads, answer)

    def _answer(
        self, method: str, path: str, body: bytes, deadline: float
    ) -> message.Message | dict[str, Any]:
        if match := _PATH.fullmatch(path):
            name, version, call = match.groups()
            servable = find(self._models, name, version and int(version))
            match method, call:
                case "GET", "":
                    return servable.status()
                case "GET", "/metadata":
                    return servable.metadata()
                case "POST", ":predict":
                    return _predict(servable, body, deadline)
        raise not_found(f"There is no {method} {path:.200}.")


class _Connection:
    """One request and its response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        self._reader, self._writer = reader, writer
        writer.transport.set_write_buffer_limits(0)  # `drain` waits until all is sent.
        self._http = h11.Connection(
            h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES
        )
        self.is_head = False

    def is_waiting(self) -> bool:
        """Returns whether no request has begun."""
        return self._http.their_state is h11.IDLE

    def is_read(self) -> bool:
        """Returns whether the request is complete."""
        return self._http.their_state in (h11.DONE, h11.MUST_CLOSE)

    async def read(self) -> Any:
        """Returns the next event: the request, data, or its end."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._writer.write(self._http.send(go_on))
            self._http.receive_data(await self._reader.read(1 << 14))
        if type(event) is h11.Request:
            self.is_head = event.method == b"HEAD"
        return event

    def status(self, error: h11.RemoteProtocolError) -> int:
        """Returns the HTTP status for an invalid request."""
        hint, (unread, _) = error.error_status_hint, self._http.trailing_data
        return 414 if hint == 431 and b"\n" not in unread else hint

    async def send(self, status: int, kind: str, body: bytes) -> None:
        fields = {"Content-Type": kind, "Content-Length": str(len(body))}
        headers = [*fields.items(), ("Connection", "close")]
        events = [h11.Response(status_code=status, headers=headers)]
        if not self.is_head:
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        self._writer.write(b"".join(map(self._http.send, events)))
        await self._writer.drain()
        if not self.is_read():
            # Closing would drop the response while the client sends.
            self._writer.write_eof()
            await asyncio.wait_for(self._skip(), _LINGER_SECONDS)

    async def _skip(self) -> None:
        while await self._reader.read(1 << 16):
            pass


def _error(status: int, message: str) -> _Response:
    return status, _JSON, _encode({"error": message})


def _too_large(message: str) -> tf.errors.OpError:
    return tf.errors.ResourceExhaustedError(None, None, message)


# --- Predict ---------------------------------------------------------------------


def _predict(servable: Servable, body: bytes, deadline: float) -> dict[str, Any]:
    """Answers the JSON of a predict request before `time.monotonic()` is `deadline`."""
    if not body:
        raise invalid(
            "The request must have a body: JSON with Content-Length, or in chunks."
        )
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
        if len({isinstance(instance, dict) for instance in instances}) > 1:
            raise invalid("'instances' must be either values or objects, not a mix.")
        rows = [_by_name(instance, inputs) for instance in instances]
        columns = {name: [row[name] for row in rows] for name in inputs}
    for name, value in columns.items():
        proto = _to_proto(name, value, tf.as_dtype(inputs[name].dtype))
        request.inputs[name].CopyFrom(proto)
    response = servable.predict(request, deadline - time.monotonic())
    arrays = {name: tf.make_ndarray(x) for name, x in response.outputs.items()}
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
        array = array.astype(bytes).astype(np.float64)
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
