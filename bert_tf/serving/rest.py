# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST API for the development server.

Paths, where `/versions/V` may follow NAME::

    POST /v1/models/NAME:predict
        {"signature_name": "...", "instances": [...]} -> {"predictions": [...]}
        {"signature_name": "...", "inputs": {...}} -> {"outputs": {...}}
    GET /v1/models/NAME             states of the versions
    GET /v1/models/NAME/metadata    signatures

"instances" has a value or object per example, "inputs" a list per input. Bytes that are
not UTF-8 are `{"b64": "..."}`. Errors are `{"error": "..."}`. A body may be compressed
with gzip.
"""

from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import re
import reprlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import json_format, message
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bert_tf.serving.servable import Model, Servable, check_names, find_model, invalid

MAX_REQUEST_BYTES = 64 << 20

# TensorFlow Serving's --rest_api_timeout_in_ms.
_TIMEOUT_SECONDS = 30

# Predict requests that are answered at the same time; others wait.
_THREADS = 32

_HTTP_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.OUT_OF_RANGE: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 429,
    tf.errors.CANCELLED: 503,
    tf.errors.DEADLINE_EXCEEDED: 504,
}
_JSON_TYPES = {
    tf.string: {str, bytes},
    tf.bool: {bool},
    tf.float32: {int, float},
    tf.float64: {int, float},
}


# --- JSON ------------------------------------------------------------------------


def _predict(
    servable: Servable, body: bytes, is_active: Callable[[], bool]
) -> dict[str, Any]:
    """Answers the JSON of a predict request."""
    try:
        request = json.loads(body, object_hook=_decode_base64)
    except (ValueError, TypeError, RecursionError) as error:
        raise invalid(f"The request is not valid JSON: {error}") from error
    if not isinstance(request, dict) or len({"inputs", "instances"} & {*request}) != 1:
        raise invalid("The request must be an object with 'inputs' or 'instances'.")
    name = request.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(f"'signature_name' must be a string. Got {reprlib.repr(name)}.")
    signature = servable.signature(name)
    if not signature.inputs:  # As TensorFlow Serving.
        raise invalid(f"Signature {name!r} has no inputs. Call it over gRPC.")
    columns = _columns(request, sorted(signature.inputs))
    inputs = {
        name: _to_array(name, value, tf.as_dtype(signature.inputs[name].dtype))
        for name, value in columns.items()
    }
    arrays = servable.run(signature, inputs, (), _TIMEOUT_SECONDS, is_active)
    outputs = {name: _to_json(name, array) for name, array in arrays.items()}
    if "inputs" in request:
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


def _columns(request: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the values of each input for the whole batch."""
    if "inputs" in request:
        return _by_name(request["inputs"], names)
    instances = request["instances"]
    if not isinstance(instances, list) or not instances:
        raise invalid("'instances' must be a list of at least one example.")
    rows = [_by_name(instance, names) for instance in instances]
    return {name: [row[name] for row in rows] for name in names}


def _by_name(value: Any, names: Sequence[str]) -> dict[str, Any]:
    """Returns inputs by name, which may be missing if there is only one input."""
    if isinstance(value, dict):
        check_names("inputs", value, names)
        return value
    if len(names) == 1:
        return {names[0]: value}
    raise invalid(f"Expected an object of {names}. Got {reprlib.repr(value)}.")


def _to_array(name: str, value: Any, dtype: tf.DType) -> np.ndarray:
    # If lists differ in length, some elements are lists.
    nested = np.array(value, dtype=object)
    elements = nested.ravel().tolist()
    for element in elements:
        if type(element) not in _JSON_TYPES.get(dtype, {int}):
            raise invalid(
                f"Input {name!r} must have {dtype.name} values, in lists of the same "
                f"length. Got {reprlib.repr(element)}."
            )
    try:
        if dtype == tf.string:
            elements = [e.encode() if isinstance(e, str) else e for e in elements]
        return np.array(elements, dtype.as_numpy_dtype).reshape(nested.shape)
    except (ValueError, OverflowError) as error:
        raise invalid(f"Input {name!r}: {error}") from error


def _to_json(name: str, array: np.ndarray) -> Any:
    if array.dtype.kind == "f":  # The shortest digits: 0.2 and not 0.20000000298.
        return array.astype(str).astype(np.float64).tolist()
    if array.dtype.kind == "O":
        array = (_base64 if name.endswith("_bytes") else _decode)(array)
    return array.tolist()


_base64 = np.vectorize(lambda b: {"b64": base64.b64encode(b).decode()}, otypes=[object])
_decode = np.vectorize(lambda b: b.decode("utf-8", "surrogateescape"), otypes=[object])


def _bare_if_single(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


# --- HTTP ------------------------------------------------------------------------


def _json(value: Any, status: int = 200) -> Response:
    if isinstance(value, message.Message):
        value = json_format.MessageToDict(
            value,
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
        )
        # Of the `Any` in responses to metadata requests.
        value.get("metadata", {}).get("signature_def", {}).pop("@type", None)
    # Output strings that are not UTF-8 are sent as they are.
    body = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return Response(body, status, media_type="application/json")


def _error(_: Request, error: tf.errors.OpError | HTTPException) -> Response:
    if isinstance(error, HTTPException):
        return _json({"error": error.detail}, error.status_code)
    return _json({"error": error.message}, _HTTP_STATUS.get(error.error_code, 500))


async def _read_body(request: Request) -> bytes:
    """Returns the body, decompressed. Stops at the first byte above the limit."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        text = f"Content-Encoding must be gzip or identity. Got {encoding!r:.100}."
        raise HTTPException(415, text)
    body, declared = bytearray(), int(request.headers.get("Content-Length", 0))
    gzip = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    async for chunk in request.stream():
        while gzip and chunk and len(body) <= MAX_REQUEST_BYTES:
            if gzip.eof:  # Another member.
                gzip = zlib.decompressobj(wbits=31)
            try:
                body += gzip.decompress(chunk, MAX_REQUEST_BYTES + 1 - len(body))
            except zlib.error as error:
                raise HTTPException(400, f"The body is not gzip: {error}") from error
            chunk = gzip.unconsumed_tail or gzip.unused_data
        body += b"" if gzip else chunk
        if max(declared, len(body)) > MAX_REQUEST_BYTES:
            limit = f"A request must have at most {MAX_REQUEST_BYTES} bytes."
            raise HTTPException(413, limit)
    if gzip and not gzip.eof:
        raise HTTPException(400, "The body is truncated gzip.")
    return bytes(body)


def create_app(models: Mapping[str, Model], demo: bool) -> Starlette:
    """Returns the ASGI application, with the demo page at `/` if `demo` is set."""

    running = asyncio.Semaphore(_THREADS)

    def resolve(request: Request) -> tuple[Model, int | None]:
        model = find_model(models, request.path_params["name"])
        version = request.path_params.get("version")
        if version and not re.fullmatch("[0-9]{1,18}", version):
            raise HTTPException(404, f"A version is a number. Got {version!r:.100}.")
        return model, version and int(version)

    async def predict(request: Request) -> Response:
        model, version = resolve(request)
        servable, body = model.find(version), await _read_body(request)
        # After the body, the next message is that the client disconnected.
        gone = asyncio.ensure_future(request.receive())
        try:
            async with running:
                return await run_in_threadpool(
                    lambda: _json(_predict(servable, body, lambda: not gone.done()))
                )
        finally:
            gone.cancel()

    async def status(request: Request) -> Response:
        model, version = resolve(request)
        return _json(model.status(version))

    async def metadata(request: Request) -> Response:
        model, version = resolve(request)
        return _json(model.find(version).metadata())

    async def unsupported(request: Request) -> Response:
        text = "bert_tf.serve has no classify, no regress and no version labels."
        raise HTTPException(501, text)

    routes = []
    if demo:
        page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
        routes += [
            Route("/", lambda _: HTMLResponse(page)),
            Route("/models.json", lambda _: _json(list(models))),
        ]
    labels = "/v1/models/{name}/labels/{rest:path}"
    routes.append(Route(labels, unsupported, methods=["GET", "POST"]))
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        routes += [
            Route(f"{path}:predict", predict, methods=["POST"]),
            Route(f"{path}:classify", unsupported, methods=["POST"]),
            Route(f"{path}:regress", unsupported, methods=["POST"]),
            Route(f"{path}/metadata", metadata),
            Route(path, status),
        ]
    handlers = {
        tf.errors.OpError: _error,
        HTTPException: _error,
        ClientDisconnect: lambda *_: Response(),
    }
    return Starlette(routes=routes, exception_handlers=handlers)
