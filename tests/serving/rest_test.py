# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The REST API over HTTP: TensorFlow Serving's paths, JSON and status codes."""

import http.client
import json

import pytest

from tests.toy.saved_model import serve_toy_model, write_toy_model


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    write_toy_model(base_path, 3)
    with serve_toy_model(base_path) as server:
        yield server.rest_port


def ask(port: int, method: str, path: str, body=None) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    data = body if isinstance(body, bytes | None) else json.dumps(body)
    connection.request(method, path, data)
    response = connection.getresponse()
    assert response.headers["Content-Type"] == "application/json"
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def predict(port: int, body, version: str = "") -> tuple[int, dict]:
    return ask(port, "POST", f"/v1/models/toy{version}:predict", body)


LABELLED = {"label": "toy:ab", "probabilities": [2.0, 0.2]}
ADD = {"ids": [[1, 2], [3, 4]], "negate": [False, True]}
ADD_ROWS = [{"ids": [1, 2], "negate": False}, {"ids": [3, 4], "negate": True}]


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"instances": ["ab"]}, {"predictions": [LABELLED]}),
        ({"instances": [{"text": "ab"}]}, {"predictions": [LABELLED]}),
        ({"instances": [{"b64": "YWI="}]}, {"predictions": [LABELLED]}),
        ({"instances": [{"text": {"b64": "YWI="}}]}, {"predictions": [LABELLED]}),
        (
            {"inputs": ["größer"]},
            {"outputs": {"label": ["toy:größer"], "probabilities": [[8.0, 0.8]]}},
        ),
        (
            {"inputs": {"text": []}},
            {"outputs": {"label": [], "probabilities": []}},
        ),
        (
            {
                "signature_name": "join",
                "instances": [{"text_a": {"b64": "/w=="}, "text_b": "b"}],
            },
            # A name that ends in _bytes asks for base64; the only output has no name.
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
    assert predict(port, request_) == (200, answer)
    assert predict(port, request_, "/versions/3") == (200, answer)


def test_bytes_that_are_not_text_leave_as_they_are(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(
        "POST", "/v1/models/toy:predict", json.dumps({"inputs": [{"b64": "/w=="}]})
    )
    assert b'["toy:\xff"]' in connection.getresponse().read()
    connection.close()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (b"", "JSON Parse error"),
        (b"{", "JSON Parse error"),
        (b'{"instances": ["\xff"]}', "JSON Parse error"),
        (b"[" * 100_000, "JSON Parse error"),
        ([1], "Is not object"),
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"inputs": [], "instances": []}, "only one of"),
        ({"instances": []}, "at least one element"),
        ({"instances": "ab"}, "must be a list"),
        ({"instances": [{"txt": "ab"}]}, "keys must be equal to: text"),
        ({"instances": [{"text": "a"}, "b"]}, "Failed to process element: 1"),
        ({"instances": ["a", {"text": "a"}]}, "not of expected type: string"),
        ({"instances": [1]}, "not of expected type: string"),
        ({"instances": [None]}, "not of expected type: string"),
        ({"instances": ["a", ["b"]]}, "is not"),
        ({"instances": [{"b64": "?"}]}, "Unable to base64 decode"),
        ({"instances": ["\ud800"]}, "surrogate"),
        ({"inputs": {"txt": ["a"]}}, "Missing named input: text"),
        ({"signature_name": 1, "inputs": []}, "must be a string value"),
        (
            {"signature_name": "nothing", "inputs": []},
            'Serving signature name: "nothing" not found in signature def',
        ),
        ({"signature_name": "join", "instances": ["a"]}, "is a plain list"),
        ({"signature_name": "join", "inputs": ["a"]}, "is a plain value/list"),
        ({"signature_name": "add", "instances": ADD_ROWS}, "no common batch size"),
        (
            {"signature_name": "add", "inputs": ADD | {"ids": [[1.5]]}},
            "not of expected type: int32",
        ),
        (
            {"signature_name": "add", "inputs": ADD | {"ids": [[True]]}},
            "not of expected type: int32",
        ),
        (
            {"signature_name": "add", "inputs": ADD | {"ids": [[1], [2, 3]]}},
            "not of expected type: int32",
        ),
        (
            {"signature_name": "add", "inputs": ADD | {"ids": [[2**40]]}},
            "is not a tensor",
        ),
        (
            {"signature_name": "add", "inputs": ADD | {"negate": [0]}},
            "not of expected type: bool",
        ),
    ],
)
def test_predict_refuses(port, request_, message):
    status, answer = predict(port, request_)
    assert status == 400
    assert list(answer) == ["error"]
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/models/nobody:predict", 404, "Servable not found for request: L"),
        ("POST", "/v1/models/toy/versions/7:predict", 404, "Specific(toy, 7)"),
        ("POST", "/v1/models/toy/labels/old:predict", 400, "version label: old"),
        ("POST", "/v1/models/toy:explain", 400, "Malformed request: POST /v1/models/"),
        ("GET", "/v1/models/toy:predict", 400, "Malformed request: GET /v1/models/"),
        ("GET", "/v1/models/nobody", 404, "Could not find any versions of model nob"),
        ("GET", "/v1/models/toy/versions/7", 404, "Could not find version 7 of model"),
        ("GET", "/v1/models/nobody/metadata", 404, "Servable not found"),
        ("GET", "/", 400, "Malformed request: GET /"),
    ],
)
def test_unknown_paths(port, method, path, status, message):
    body = {"instances": ["a"]} if method == "POST" else None
    found, answer = ask(port, method, path, body)
    assert found == status
    assert message in answer["error"]


def test_a_post_without_its_length(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest("POST", "/v1/models/toy:predict")
    connection.endheaders()
    assert connection.getresponse().status == 411
    connection.close()


def test_classify(port):
    request = {
        "signature_name": "classify",
        "examples": [{"text": "ab"}, {"text": [{"b64": "Yw=="}]}],
    }
    assert ask(port, "POST", "/v1/models/toy:classify", request) == (
        200,
        {"results": [[["toy:ab", 2.0], ["ab", 0.2]], [["toy:c", 1.0], ["c", 0.1]]]},
    )


def test_regress_with_context(port):
    request = {
        "signature_name": "regress",
        "context": {"text": "abc"},
        "examples": [{}, {"unused": [1, 2], "unused_too": 0.5}],
    }
    answer = ask(port, "POST", "/v1/models/toy:regress", request)
    assert answer == (200, {"results": [0.3, 0.3]})


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"examples": []}, "at least one element"),
        ({"examples": ["a"]}, "must be a JSON object"),
        ({"examples": [{"text": ["a", 1]}]}, "values of one type"),
        ({"examples": [{"text": None}]}, "values of one type"),
        ({"examples": [{"text": 2**64}]}, "values of one type"),
        ({"examples": [{}]}, "text"),  # The model's own error names the feature.
    ],
)
def test_classify_refuses(port, request_, message):
    request_ = {"signature_name": "classify"} | request_
    status, answer = ask(port, "POST", "/v1/models/toy:classify", request_)
    assert status == 400
    assert message in answer["error"]


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
    assert ask(port, "GET", "/v1/models/toy") == (200, answer)
    assert ask(port, "GET", "/v1/models/toy/versions/3?x=1") == (200, answer)


def test_metadata(port):
    status, answer = ask(port, "GET", "/v1/models/toy/metadata")
    assert status == 200
    assert answer["model_spec"]["name"] == "toy"
    assert answer["model_spec"]["version"] == "3"
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert signatures["serving_default"]["inputs"]["text"]["dtype"] == "DT_STRING"


def test_one_connection_carries_many_requests(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(3):
        connection.request("GET", "/v1/models/toy")
        sock = connection.sock
        assert connection.getresponse().read()
        assert connection.sock is sock is not None
    connection.close()
