# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The REST API over HTTP: TensorFlow Serving's paths, JSON and status codes."""

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
import urllib.parse

import pytest

from bert_tf.serving import rest


@pytest.fixture(scope="module")
def port(toy_server) -> int:
    return urllib.parse.urlsplit(toy_server.rest_address).port


def request_json(port: int, method: str, path: str, body=None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = json.dumps(body) if isinstance(body, dict | list) else body
    connection.request(method, path, data)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "application/json"
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def predict(port: int, body, version: str = "") -> tuple[int, dict]:
    return request_json(port, "POST", f"/v1/models/toy{version}:predict", body)


LABELLED = {"label": "toy:ab", "probabilities": [2.0, 0.2]}
ADD = {"ids": [[1, 2], [3, 4]], "negate": [False, True]}
ADD_ROWS = [{"ids": [1, 2], "negate": False}, {"ids": [3, 4], "negate": True}]

# Outputs named *_bytes are base64; a single output has no name.
ANSWERED = r"""
{"instances": ["ab"]} -> {"predictions": [LABELLED]}

{"instances": [{"text": {"b64": "YWI="}}]} -> {"predictions": [LABELLED]}

{"instances": [{"b64": " YW\nI"}]} -> {"predictions": [LABELLED]}

{"signature_name": "", "instances": ["ab"]} -> {"predictions": [LABELLED]}

{"inputs": ["größer"]} ->
{"outputs": {"label": ["toy:größer"], "probabilities": [[8.0, 0.8]]}}

{"inputs": {"text": []}} -> {"outputs": {"label": [], "probabilities": []}}

{"signature_name": "join", "instances": [{"text_a": {"b64": "/w=="}, "text_b": "b"}]} ->
{"predictions": [{"b64": "/2I="}]}

{"signature_name": "join", "inputs": {"text_a": ["a"], "text_b": ["b"]}} ->
{"outputs": [{"b64": "YWI="}]}

{"signature_name": "add", "inputs": ADD} ->
{"outputs": {"half": [1.5, -3.5], "positive": [true, false],
 "scalar": "a\u0000", "total": [3, -7]}}
"""


@pytest.mark.parametrize("case", ANSWERED.strip().split("\n\n"))
def test_predict(port, case):
    for name, value in (("LABELLED", LABELLED), ("ADD", ADD)):
        case = case.replace(name, json.dumps(value))
    request, answer = map(json.loads, case.split("->"))
    assert predict(port, request, "/versions/3") == (200, answer)


def add(**inputs) -> dict:
    return {"signature_name": "add", "inputs": ADD | inputs}


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (b"{", "not valid JSON"),
        (b'{"instances": ["\xff"]}', "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"inputs": ' + b"[" * 70 + b"]" * 70 + b"}", "must have string values"),
        ({"instances": [{"b64": "?"}]}, "not valid JSON"),
        ({"instances": [{"b64": "Y"}]}, "not valid JSON"),
        ({"instances": [{"b64": None}]}, "'b64' must be a string. Got None"),
        (b"", "The body, 0 bytes, is not valid JSON"),
        ({"instances": ["a", {"text": "a"}]}, "values or objects, not a mix"),
        ([1], "must be an object with 'inputs' or 'instances'"),
        ({"inputs": [], "instances": []}, "'inputs' or 'instances'"),
        ({"instances": []}, "at least one example"),
        ({"instances": "ab"}, "must be a list"),
        ({"instances": [{"txt": "ab"}]}, "signature are ['text']. Got ['txt']"),
        ({"signature_name": None, "inputs": []}, "'signature_name' must be a string."),
        ({"instances": ["a", ["b"]]}, "of the same length. Got ['a', ['b']]."),
        ({"instances": ["\ud800"]}, "must have string values"),
        ({"inputs": "a"}, "must be string of shape (None,). Got string of shape ()"),
        ({"signature_name": "add", "instances": ADD_ROWS}, "differ in batch size"),
        (add(ids=[[2**40]]), "'ids' must have int32 values"),
        (add(negate=[0]), "'negate' must have bool values"),
    ],
)
def test_predict_rejects(port, request_, message):
    status, answer = predict(port, request_)
    assert status == 400
    assert list(answer) == ["error"]
    assert message in answer["error"]
    assert len(answer["error"]) < 500


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/models/nobody:predict", 404, "No model 'nobody'"),
        ("POST", "/v1/models/toy/versions/7:predict", 404, "serves version 3 only"),
        ("GET", "/v1/models/toy/versions/0", 404, "serves version 3 only"),
        ("PUT", "/v1/models/toy", 404, "There is no PUT /v1/models/toy"),
        ("GET", f"/v1/models/toy/versions/{'9' * 5000}", 404, "There is no GET"),
        ("POST", "/v1/models/toy:classify", 404, "no POST /v1/models/toy:classify"),
        ("GET", "/v1/models/toy:predict", 404, "There is no GET"),
        ("GET", "/%ff/%00", 404, "There is no GET"),
    ],
)
def test_unknown_paths(port, method, path, status, message):
    body = {"instances": ["a"]} if method == "POST" else None
    found, answer = request_json(port, method, path, body)
    assert found == status
    assert message in answer["error"]


def test_run_stops_after_the_timeout(port, monkeypatch, tmp_path):
    monkeypatch.setattr(rest, "_TIMEOUT_SECONDS", 0.2)
    wait = {"signature_name": "wait", "inputs": [f"{tmp_path}/never"]}
    status, answer = predict(port, wait)
    assert status == 504
    assert answer["error"]


def test_status(port):
    status = {"error_code": "OK", "error_message": ""}
    version = {"version": "3", "state": "AVAILABLE", "status": status}
    answer = {"model_version_status": [version]}
    assert request_json(port, "GET", "/v1/models/toy") == (200, answer)
    assert request_json(port, "GET", "/v1/models/toy/versions/3?x=1") == (200, answer)
    assert request_json(port, "GET", "/v1/models/gr%C3%B6%C3%9Fer") == (200, answer)


def test_metadata(port):
    status, answer = request_json(port, "GET", "/v1/models/toy/metadata")
    assert status == 200
    assert answer["model_spec"]["name"] == "toy"
    assert answer["model_spec"]["version"] == "3"
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["text"]["dtype"] == "DT_STRING"
    assert "@type" not in answer["metadata"]["signature_def"]


def test_large_answers_are_refused(port, monkeypatch):
    monkeypatch.setattr(rest, "_MAX_VALUES", 3)
    assert predict(port, {"instances": ["ab"]})[0] == 200
    status, answer = predict(port, {"instances": ["ab", "c"]})
    assert status == 413
    assert answer["error"].startswith("The answer has 6 values, above the limit of 3")


# --- HTTP ------------------------------------------------------------------------


def exchange(port: int, request: bytes) -> tuple[int, dict, bytes]:
    """Sends bytes; returns the status, headers and body of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request)
        method = request.partition(b" ")[0].decode("latin-1")
        response = http.client.HTTPResponse(connection, method=method)
        response.begin()
        return response.status, response.headers, response.read()


POST = b"POST /v1/models/toy:predict HTTP/1.1\r\nHost: x\r\n"
STATUS = b" /v1/models/toy HTTP/1.1\r\nHost: x\r\n"
CHUNKS = b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b'{"instances": ["ab"]}'


IN_TWO = b"6\r\n" + BODY[:6] + b"\r\nf;x\r\n" + BODY[6:] + b"\r\n0\r\n\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
IDENTITY = b"Content-Encoding: Identity\r\nContent-Length: 21\r\n\r\n"


def zipped(body: bytes) -> bytes:
    body = gzip.compress(body, mtime=0)  # In the names of tests, without the time.
    return GZIP + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize("request_", [CHUNKS + IN_TWO, IDENTITY + BODY, zipped(BODY)])
def test_forms_of_bodies(port, request_):
    status, _, body = exchange(port, POST + request_)
    assert (status, json.loads(body)) == (200, {"predictions": [LABELLED]})


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        (POST + b"\r\n", 400, "The body, 0 bytes, is not"),
        (POST + CHUNKS + b"x\r\n", 400, "illegal chunk header"),
        (POST + CHUNKS + (b"%x\r\n" % (65 << 20)) + bytes(65 << 20), 413, "64 MiB"),
        (POST + b"Content-Length: %d\r\n\r\n" % (65 << 20), 413, "64 MiB"),
        (POST + b"Content-Length: %s\r\n\r\n" % (b"9" * 5000), 400, "bad Content-L"),
        (POST + b"Content-Encoding: br\r\n\r\n", 415, "must be gzip or identity"),
        (POST + GZIP + b"Content-Length: 7\r\n\r\nno gzip", 400, "not valid gzip"),
        (POST + zipped(bytes(65 << 20)), 413, "64 MiB"),
        (b"GET /%s HTTP/1.1\r\n" % (b"a" * 99_999), 414, "too long"),
        (b"GET" + STATUS + b"A: %s\r\n" % (b"a" * 99_999), 431, "too long"),
        (b"\x16\x03\x01 TLS\r\n\r\n", 400, "illegal request line"),
    ],
)
def test_invalid_http(port, request_, status, message):
    found, headers, body = exchange(port, request_)
    assert found == status
    assert headers["Content-Type"] == "application/json"
    assert message in json.loads(body)["error"]


def test_go_ahead_only_for_bodies_below_the_limit(port):
    expect = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(expect % len(BODY))
        assert connection.recv(99).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert connection.recv(999).startswith(b"HTTP/1.1 200 ")
    assert exchange(port, expect % (65 << 20))[0] == 413


@pytest.mark.parametrize("host", [b"http://x:8501", b"HTTPS://x"])
def test_targets_with_the_host(port, host):
    """RFC 9112, 3.2.2: proxies send them."""
    assert exchange(port, b"GET " + host + STATUS[1:] + b"\r\n")[0] == 200


def test_head_has_no_body(port):
    length = str(len(exchange(port, b"GET" + STATUS + b"\r\n")[2]))
    status, headers, body = exchange(port, b"HEAD" + STATUS + b"\r\n")
    assert (status, headers["Content-Length"], body) == (200, length, b"")


@pytest.mark.parametrize("start", [b"", POST + b"Content-Length: 999\r\n\r\n"])
def test_slow_requests_end_at_the_deadline(port, monkeypatch, start):
    monkeypatch.setattr(rest, "_TIMEOUT_SECONDS", 0.3)
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(start)
        connection.settimeout(0.05)
        answer = b""
        while not answer and time.monotonic() < begin + 20:
            connection.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(999)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'{"error": "Incomplete after 0.3 s."}' in answer
    assert time.monotonic() < begin + 5
    assert predict(port, {"instances": ["ab"]})[0] == 200


def test_connections_above_the_limit_are_closed(port, monkeypatch):
    monkeypatch.setattr(rest, "_MAX_THREADS", threading.active_count() + 2)
    idle = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(9)]
    with pytest.raises(ConnectionError):
        predict(port, {"instances": ["ab"]})
    for connection in idle:
        connection.close()
    monkeypatch.undo()
    assert predict(port, {"instances": ["ab"]})[0] == 200


def test_clients_that_do_not_read_lose_their_connection(port, monkeypatch):
    monkeypatch.setattr(rest, "_TIMEOUT_SECONDS", 1.5)
    text = json.dumps({"instances": ["x" * (16 << 20)]}).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        assert connection.recv(12) == b"HTTP/1.1 200"
        time.sleep(2)
        received = 0
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(1 << 20):
                received += len(part)
    assert received < len(text)
