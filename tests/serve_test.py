# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from concurrent import futures

import pytest

from bert_tf import client, serve
from tests.toy.saved_model import write_toy_model

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.slow
def test_sigterm_answers_requests_in_flight_and_cancels_endless_ones(tmp_path):
    write_toy_model(tmp_path / "toy", 7)
    config_file = tmp_path / "models.config"
    config_file.write_text(
        'model_config_list { config { name: "toy" base_path: "/models/toy" '
        'model_platform: "tensorflow" } }'
    )
    command = [sys.executable, "-m", "bert_tf.serve", "--port=0", "--rest_api_port=0"]
    process = subprocess.Popen(
        [*command, f"--model_config_file={config_file}"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines = []
    while not lines or lines[-1] != "Ready.\n":
        lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
    assert "Use TensorFlow Serving in production" in lines[0]
    printed = re.fullmatch(
        f"toy: version 7 of {tmp_path}/toy\n"
        r"  REST: (http://.*)/v1/models/toy:predict\n"
        r"gRPC: (127.0.0.1:\d+)\n",
        "".join(lines[1:-1]),
    )
    rest_address, address = printed.groups()

    def request(seconds: float) -> dict:
        return client.predict(
            {"seconds": [seconds]}, "toy", signature="wait", address=address
        )

    def request_rest(seconds: float) -> dict:
        body = json.dumps({"signature_name": "wait", "inputs": [seconds]}).encode()
        url = f"{rest_address}/v1/models/toy:predict"
        with urllib.request.urlopen(url, body, timeout=20) as response:
            return {"turns": json.load(response)["outputs"]}

    rest_port = urllib.parse.urlsplit(rest_address).port
    half_open = socket.create_connection(("127.0.0.1", rest_port), timeout=20)
    half_open.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    with futures.ThreadPoolExecutor(3) as pool:
        answers = [
            pool.submit(request, 0.8),
            pool.submit(request_rest, 3.0),
        ]
        with pytest.raises(futures.TimeoutError):
            answers[0].result(timeout=0.5)
        endless = pool.submit(request, 3600.0)
        with pytest.raises(futures.TimeoutError):
            endless.result(timeout=0.2)
        process.send_signal(signal.SIGTERM)
        # The server is not ready from now on, although a request is in flight.
        wait_until_refused(address)
        assert not answers[1].done()
        for answer in answers:
            assert answer.result()["turns"]
        assert process.wait(timeout=120) == 0
        with pytest.raises(client.PredictError, match="UNAVAILABLE"):
            endless.result()
    assert "Traceback" not in process.stderr.read()
    half_open.close()


def wait_until_refused(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection(address.split(":"), timeout=5).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.05)
    raise AssertionError(f"{address} still accepts connections after 30 s")


def base_paths(tmp_path, text: str) -> dict[str, str]:
    path = tmp_path / "models.config"
    path.write_text(text)
    options = serve.ServeConfig(model_config_file=str(path))
    return serve.base_paths(options)


def test_base_paths_of_a_config_file(tmp_path):
    (tmp_path / "beside").mkdir()
    paths = {"container": "/models/beside", "other": "/x/y", "bucket": "gs://a/b"}
    configs = (f'config {{ name: "{n}" base_path: "{p}" }}' for n, p in paths.items())
    found = base_paths(tmp_path, f"model_config_list {{ {' '.join(configs)} }}")
    assert found == paths | {"container": f"{tmp_path}/beside"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a model_config_list"),
        ("model_config_list {", r"models.config is not a ModelServerConfig: 1:19"),
        ("model_config_list { config { name: 'a' } }", "and a base_path each. Got:"),
        ("model_config_list { config { base_path: '/a' } }", "with a name and"),
    ],
)
def test_invalid_config_files(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        base_paths(tmp_path, text)


def test_config_file_of_the_project():
    path = ROOT / "saved_models" / "models.config"
    options = serve.ServeConfig(model_config_file=str(path))
    assert serve.base_paths(options) == {"sst2": "/models/sst2"}


def test_model_is_required():
    with pytest.raises(ValueError, match="--model_base_path or --model_config_file"):
        serve.base_paths(serve.ServeConfig())
