# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Serving's REST API over HTTP.

In: HTTP requests with JSON. Out: JSON, as tensorflow.org/tfx/serving/api_rest has it::

    POST /v1/models/NAME[/versions/V|/labels/L]:predict
        {"signature_name": "...", "instances": [...]} -> {"predictions": [...]}
        {"signature_name": "...", "inputs": {...}} -> {"outputs": {...}}
    POST ...:classify and ...:regress
        {"examples": [{feature: value}], "context": {...}} -> {"results": [...]}
    GET /v1/models/NAME[/versions/V|/labels/L][/metadata]

An error is `{"error": "..."}` with the HTTP status that TensorFlow Serving gives its
code. Pages for browsers, as that of `bert_tf.serve --demo`, can lie beside the API.
"""

from __future__ import annotations

import contextlib
import re
import socketserver
import threading
import typing
import urllib.parse
from collections.abc import Iterator, Mapping
from http import server as http_server
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    predict_pb2,
    regression_pb2,
)

from bert_tf.serving import rest_json

if typing.TYPE_CHECKING:
    from bert_tf.serving import model_server

_MODEL = r"/v1/models/([^/:]+)(?:/versions/(\d{1,18})|/labels/([^/:]+))?"
_POST_PATH = re.compile(_MODEL + ":(classify|regress|predict)")
_GET_PATH = re.compile(_MODEL + "(/metadata)?")

# TensorFlow Serving's; a code that is not listed is a 500.
_HTTP_STATUS = {
    tf.errors.CANCELLED: 499,
    tf.errors.INVALID_ARGUMENT: 400,
    tf.errors.DEADLINE_EXCEEDED: 504,
    tf.errors.NOT_FOUND: 404,
    tf.errors.ALREADY_EXISTS: 409,
    tf.errors.PERMISSION_DENIED: 403,
    tf.errors.RESOURCE_EXHAUSTED: 429,
    tf.errors.FAILED_PRECONDITION: 400,
    tf.errors.ABORTED: 409,
    tf.errors.OUT_OF_RANGE: 400,
    tf.errors.UNIMPLEMENTED: 501,
    tf.errors.UNAVAILABLE: 503,
    tf.errors.UNAUTHENTICATED: 401,
}


def answer(
    models: model_server.Models, method: str, target: str, body: bytes = b""
) -> tuple[int, bytes]:
    """Answers one HTTP request.

    Args:
        models: What is served.
        method: "GET" or "POST".
        target: Path of the URL; a query is ignored.
        body: JSON as UTF-8.

    Returns:
        HTTP status and JSON as UTF-8.
    """
    path = urllib.parse.urlsplit(target).path
    match = (_POST_PATH if method == "POST" else _GET_PATH).fullmatch(path)
    if not match:
        return 400, rest_json.dump({"error": f"Malformed request: {method} {path}"})
    name, version, label, action = match.groups()
    spec = model_pb2.ModelSpec(name=urllib.parse.unquote(name))
    if version:
        spec.version.value = int(version)
    elif label:
        spec.version_label = urllib.parse.unquote(label)
    try:
        if method == "GET":
            return 200, rest_json.dump(_read(models, spec, action))
        request = rest_json.parse(body)
        spec.signature_name = request.get("signature_name", "")
        return 200, rest_json.dump(_infer(models, spec, action, request))
    except tf.errors.OpError as error:
        status = _HTTP_STATUS.get(error.error_code, 500)
        return status, rest_json.dump({"error": error.message})
    except RecursionError:
        return 400, rest_json.dump({"error": "JSON Parse error: nested too deeply"})


def _read(
    models: model_server.Models, spec: model_pb2.ModelSpec, action: str | None
) -> dict[str, Any]:
    if action == "/metadata":
        request = get_model_metadata_pb2.GetModelMetadataRequest(
            model_spec=spec, metadata_field=["signature_def"]
        )
        return rest_json.metadata(models.metadata(request))
    request = get_model_status_pb2.GetModelStatusRequest(model_spec=spec)
    return rest_json.from_proto(models.status(request))


def _infer(
    models: model_server.Models,
    spec: model_pb2.ModelSpec,
    action: str,
    request: dict[str, Any],
) -> dict[str, Any]:
    if action == "classify":
        response = models.classify(
            classification_pb2.ClassificationRequest(
                model_spec=spec, input=rest_json.example_input(request)
            )
        )
        return rest_json.classifications(response)
    if action == "regress":
        response = models.regress(
            regression_pb2.RegressionRequest(
                model_spec=spec, input=rest_json.example_input(request)
            )
        )
        return rest_json.regressions(response)
    key = spec.signature_name or tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
    signatures = models.find(spec).signatures
    if key not in signatures:
        raise tf.errors.InvalidArgumentError(
            None, None, f'Serving signature name: "{key}" not found in signature def'
        )
    dtypes = {alias: info.dtype for alias, info in signatures[key].inputs.items()}
    response = models.predict(
        predict_pb2.PredictRequest(
            model_spec=spec, inputs=rest_json.predict_inputs(request, dtypes)
        )
    )
    if "instances" in request:
        return rest_json.predictions(response)
    return rest_json.outputs(response)


class Page(NamedTuple):
    """What a browser gets under a path of its own."""

    content_type: str
    content: bytes


class RestServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Serves `answer` over HTTP/1.1, with a thread per connection.

    Args:
        models: What is served.
        host: Address to listen on.
        port: 0 takes a free one.
        pages: By path, what is served beside the API.

    Raises:
        ValueError: The port is in use or the host is not this machine's.
    """

    allow_reuse_address = True
    daemon_threads = True  # An idle connection must not keep the process.
    request_queue_size = 128

    def __init__(
        self,
        models: model_server.Models,
        host: str,
        port: int,
        pages: Mapping[str, Page],
    ):
        self.models = models
        self.pages = pages
        self._under_way = 0
        self._changed = threading.Condition()
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise ValueError(
                f"--rest_api_port: cannot listen there: {error.strerror}. "
                f"Received: {host}:{port}"
            ) from error
        self.port = self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def request_under_way(self) -> Iterator[None]:
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._changed:
            self._under_way += change
            self._changed.notify_all()

    def stop(self, grace: float) -> None:
        """Takes no more connections; waits up to `grace` seconds for the answers."""
        self.shutdown()
        self.server_close()
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, grace)


class _Handler(http_server.BaseHTTPRequestHandler):
    server: RestServer
    protocol_version = "HTTP/1.1"  # Keeps connections.
    disable_nagle_algorithm = True  # Head and body are two writes.

    def do_GET(self) -> None:
        with self.server.request_under_way():
            page = self.server.pages.get(self.path.partition("?")[0])
            if page:
                self._reply(200, page.content, page.content_type)
            else:
                self._reply(*answer(self.server.models, "GET", self.path))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True  # Where the body ends is not known.
            self._reply(411, rest_json.dump({"error": "Content-Length is required"}))
            return
        with self.server.request_under_way():
            body = self.rfile.read(int(length))
            self._reply(*answer(self.server.models, "POST", self.path, body))

    def _reply(
        self, status: int, body: bytes, content_type: str = "application/json"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing: one line per request would hide the lines that matter."""
