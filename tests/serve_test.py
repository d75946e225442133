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
    command = [sys.executable, "-m", "bert_tf.serve", "--port=0", "--rest_api_port=0"]
    process = subprocess.Popen(
        [*command, f"--model_base_path={tmp_path / 'toy'}", "--demo"],
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
        r"gRPC: (127.0.0.1:\d+)\n"
        r"Demo page: \1/\n",
        "".join(lines[1:-1]),
    )
    rest_address, address = printed.groups()

    # A request is answered when its file exists.
    end, never = tmp_path / "end", tmp_path / "never"

    def request(file: pathlib.Path) -> dict:
        inputs = {"files": [str(file)]}
        return client.predict(inputs, "toy", signature="wait", address=address)

    def request_rest(file: pathlib.Path) -> dict:
        body = json.dumps({"signature_name": "wait", "inputs": [str(file)]}).encode()
        url = f"{rest_address}/v1/models/toy:predict"
        with urllib.request.urlopen(url, body, timeout=20) as response:
            return {"turns": json.load(response)["outputs"]}

    rest_port = urllib.parse.urlsplit(rest_address).port
    half_open = socket.create_connection(("127.0.0.1", rest_port), timeout=20)
    half_open.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    with futures.ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(request, end), pool.submit(request_rest, end)]
        with pytest.raises(futures.TimeoutError):
            answers[0].result(timeout=0.5)
        endless = pool.submit(request, never)
        with pytest.raises(futures.TimeoutError):
            endless.result(timeout=0.2)
        process.send_signal(signal.SIGTERM)
        # The server is not ready from now on, although a request is in flight.
        wait_until_refused(address)
        assert not any(answer.done() for answer in answers)
        end.touch()
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
        except ConnectionError:  # Reset if the port is closed while it connects.
            return
        time.sleep(0.05)
    raise AssertionError(f"{address} still accepts connections after 30 s")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", {"a": "models/a", "b": "gs://bucket/b"}),
        ("x,y", {"x": "models/a", "y": "gs://bucket/b"}),
        ("x", None),
        ("x,x", None),
    ],
)
def test_names_of_models(names, expected):
    options = serve.ServeConfig(
        model_base_path="models/a/,gs://bucket/b", model_name=names
    )
    if expected:
        assert serve.base_paths(options) == expected
    else:
        with pytest.raises(ValueError, match="a different name for each folder"):
            serve.base_paths(options)
