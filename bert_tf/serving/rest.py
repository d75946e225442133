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
import gzip
import io
import json
import pathlib
import re
import reprlib
import zlib
from collections.abc import Mapping, Sequence
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

# Time to receive a request, and time to compute the answer: TensorFlow Serving's
# --rest_api_timeout_in_ms.
_TIMEOUT_SECONDS = 30

# Predict requests that are answered at the same time; others wait.
_THREADS = 32

_PATH = re.compile(
    r"(?P<name>[^/:]+)(/versions/(?P<version>[0-9]{1,18})|(?P<label>/labels/[^/:]+))?"
    r"(?P<method>:\w+|/metadata|)"
)
_HTTP_STATUS = {
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.NOT_FOUND: 404,
    tf.errors.RESOURCE_EXHAUSTED: 429,
    tf.errors.CANCELLED: 503,
    tf.errors.DEADLINE_EXCEEDED: 504,
}


# --- JSON ------------------------------------------------------------------------


def _predict(servable: Servable, body: bytes) -> dict[str, Any]:
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
    names = sorted(signature.inputs)
    if not names:  # As TensorFlow Serving.
        raise invalid(f"Signature {name!r} has no inputs. Call it over gRPC.")
    if "inputs" in request:
        columns = _by_name(request["inputs"], names)
    else:
        instances = request["instances"]
        if not isinstance(instances, list) or not instances:
            raise invalid("'instances' must be a list of at least one example.")
        rows = [_by_name(instance, names) for instance in instances]
        columns = {name: [row[name] for row in rows] for name in names}
    inputs = {
        name: _to_array(name, value, tf.as_dtype(signature.inputs[name].dtype))
        for name, value in columns.items()
    }
    arrays = servable.run(signature, inputs, seconds=_TIMEOUT_SECONDS)
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
    types = {tf.string: {str, bytes}, tf.bool: {bool}, tf.float32: {int, float}}
    for element in elements:
        if type(element) not in types.get(dtype, {int}):
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
        array = array.astype(str).astype(np.float64)
    elif array.dtype.kind == "O" and name.endswith("_bytes"):
        array = _encode_base64(array)
    return array.tolist()


@np.vectorize(otypes=[object])
def _encode_base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _bare_if_single(values: dict[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else values


# --- HTTP ------------------------------------------------------------------------


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


def _error(_: Request, error: tf.errors.OpError | HTTPException) -> Response:
    if isinstance(error, HTTPException):
        return _json({"error": error.detail}, error.status_code)
    return _json({"error": error.message}, _HTTP_STATUS.get(error.error_code, 500))


async def _read_body(request: Request) -> bytes:
    """Returns the body, decompressed, or raises an error above the limit."""
    body = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_REQUEST_BYTES:
                    break
        if request.headers.get("Content-Encoding", "").lower() == "gzip":
            body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(MAX_REQUEST_BYTES + 1)
    except TimeoutError as error:
        raise HTTPException(408, "The request took too long to arrive.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise HTTPException(400, f"The body is not gzip: {error}") from error
    if len(body) > MAX_REQUEST_BYTES:
        limit = f"A request must have at most {MAX_REQUEST_BYTES} bytes."
        raise HTTPException(413, limit)
    return bytes(body)


def create_app(models: Mapping[str, Model], demo: bool) -> Starlette:
    """Returns the ASGI application, with the demo page at `/` if `demo` is set."""
    running = asyncio.Semaphore(_THREADS)

    async def answer(request: Request) -> Response:
        path = _PATH.fullmatch(request.path_params["path"])
        if not path:
            raise HTTPException(404, "Not Found")
        if path["label"] or path["method"] in (":classify", ":regress"):
            text = "bert_tf.serve has no classify, no regress and no version labels."
            raise HTTPException(501, text)
        model = find_model(models, path["name"])
        version = path["version"] and int(path["version"])
        match request.method, path["method"]:
            case "GET", "":
                return _json(model.status(version))
            case "GET", "/metadata":
                return _json(model.find(version).metadata())
            case "POST", ":predict":
                return await predict(model.find(version), request)
        raise HTTPException(405, "Method Not Allowed")

    async def predict(servable: Servable, request: Request) -> Response:
        body = await _read_body(request)
        # The next message is that the client disconnected.
        gone = asyncio.ensure_future(request.receive())
        async with running:
            if gone.done():
                raise ClientDisconnect
            gone.cancel()
            return await run_in_threadpool(lambda: _json(_predict(servable, body)))

    routes = [Route("/v1/models/{path:path}", answer, methods=["GET", "POST"])]
    if demo:
        page = pathlib.Path(__file__).with_name("demo_page.html").read_bytes()
        routes += [
            Route("/", lambda _: HTMLResponse(page)),
            Route("/models.json", lambda _: _json(list(models))),
        ]
    handlers = {
        tf.errors.OpError: _error,
        HTTPException: _error,
        ClientDisconnect: lambda *_: Response(),
    }
    return Starlette(routes=routes, exception_handlers=handlers)
