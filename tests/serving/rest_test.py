# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The REST API over HTTP: TensorFlow Serving's paths, JSON and status codes."""

import http.client
import json
import urllib.parse

import pytest

from bert_tf.serving import DevServer, dev_server
from tests.toy.saved_model import write_toy_model


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    write_toy_model(base_path, 3)
    with DevServer({"toy": base_path, "größer": base_path}) as server:
        yield urllib.parse.urlsplit(server.rest_address).port


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


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"instances": ["ab"]}, {"predictions": [LABELLED]}),
        ({"instances": [{"text": {"b64": "YWI="}}]}, {"predictions": [LABELLED]}),
        ({"signature_name": "", "instances": ["ab"]}, {"predictions": [LABELLED]}),
        (
            {"inputs": ["größer"]},
            {"outputs": {"label": ["toy:größer"], "probabilities": [[8.0, 0.8]]}},
        ),
        ({"inputs": {"text": []}}, {"outputs": {"label": [], "probabilities": []}}),
        (
            {
                "signature_name": "join",
                "instances": [{"text_a": {"b64": "/w=="}, "text_b": "b"}],
            },
            # Outputs named *_bytes are base64; a single output has no name.
            {"predictions": [{"b64": "/2I="}]},
        ),
        (
            {"signature_name": "join", "inputs": {"text_a": ["a"], "text_b": ["b"]}},
            {"outputs": [{"b64": "YWI="}]},
        ),
        (
            {"signature_name": "add", "inputs": ADD},
            {
                "outputs": {
                    "half": [1.5, -3.5],
                    "positive": [True, False],
                    "scalar": "a\0",
                    "total": [3, -7],
                }
            },
        ),
    ],
)
def test_predict(port, request_, answer):
    assert predict(port, request_, "/versions/3") == (200, answer)


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


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("Content-Length", 65 << 20, 413), ("Transfer-Encoding", "chunked", 400)],
)
def test_bodies_that_are_too_long_or_without_length(port, header, value, status):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/v1/models/toy:predict", headers={header: str(value)})
    assert connection.getresponse().status == status
    connection.close()


def test_run_stops_after_the_timeout(port, monkeypatch, tmp_path):
    monkeypatch.setattr(dev_server, "_REST_TIMEOUT_SECONDS", 0.2)
    wait = {"signature_name": "wait", "inputs": [f"{tmp_path}/never"]}
    status, answer = predict(port, wait)
    assert status == 504
    assert answer["error"]


def test_status(port):
    answer = {
        "model_version_status": [
            {
                "version": "3",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
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


def test_compressed_bodies_are_refused(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    headers = {"Content-Encoding": "gzip"}
    connection.request("POST", "/v1/models/toy:predict", b"\x1f\x8b", headers)
    response = connection.getresponse()
    assert response.status == 415
    assert "compressed" in json.loads(response.read())["error"]
