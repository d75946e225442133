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


class Served:
    """`python -m bert_tf.serve` with the toy model.

    Attributes:
        process: The server.
        lines: What it has printed.
    """

    def __init__(self, folder: pathlib.Path, last_line: str = "Ready.\n"):
        write_toy_model(folder / "toy", 7)
        command = [sys.executable, "-m", "bert_tf.serve", "--port=0", "--demo"]
        self.process = subprocess.Popen(
            [*command, "--rest_api_port=0", f"--model_base_path={folder / 'toy'}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines = []
        while not self.lines or self.lines[-1] != last_line:
            self.lines.append(self.process.stdout.readline())
            assert self.lines[-1], self.process.communicate()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_models_load_ends_at_once(tmp_path, number):
    with Served(tmp_path, f"Loading toy from {tmp_path}/toy\n") as served:
        served.process.send_signal(number)
        assert served.process.wait(timeout=20) == -number
        assert "Traceback" not in served.process.stderr.read()


@pytest.mark.slow
def test_sigterm_answers_requests_in_flight(tmp_path):
    end = tmp_path / "end"  # A request is answered when this file exists.

    def request() -> dict:
        inputs = {"files": [str(end)]}
        return client.predict(inputs, "toy", signature="wait", address=address)

    def request_rest() -> dict:
        body = json.dumps({"signature_name": "wait", "inputs": [str(end)]}).encode()
        url = f"{rest_address}/v1/models/toy:predict"
        with urllib.request.urlopen(url, body, timeout=20) as response:
            return json.load(response)["outputs"]

    with Served(tmp_path) as served, futures.ThreadPoolExecutor(2) as pool:
        assert "Use TensorFlow Serving in production" in served.lines[0]
        printed = re.fullmatch(
            f"Loading toy from {tmp_path}/toy\n"
            f"toy: version 7 of {tmp_path}/toy\n"
            r"  REST: (http://.*)/v1/models/toy:predict\n"
            r"gRPC: (127.0.0.1:\d+)\n"
            r"Demo page: \1/\n",
            "".join(served.lines[1:-1]),
        )
        rest_address, address = printed.groups()
        rest_port = urllib.parse.urlsplit(rest_address).port
        half_open = socket.create_connection(("127.0.0.1", rest_port), timeout=20)
        half_open.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        answers = [pool.submit(request), pool.submit(request_rest)]
        with pytest.raises(futures.TimeoutError):
            answers[0].result(timeout=0.5)
        served.process.send_signal(signal.SIGTERM)
        # The server is not ready from now on, although requests are in flight.
        wait_until_refused(address)
        assert not any(answer.done() for answer in answers)
        end.touch()
        assert all(answer.result() for answer in answers)
        assert served.process.wait(timeout=120) == 0
        assert "Traceback" not in served.process.stderr.read()
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


@pytest.mark.parametrize(("names", "expected"), [("", ["a", "b"]), ("x,y", ["x", "y"])])
def test_names_of_models(names, expected):
    paths = {"model_base_path": "models/a/,gs://bucket/b", "model_name": names}
    found = serve.base_paths(serve.ServeConfig(**paths))
    assert found == dict(zip(expected, ["models/a", "gs://bucket/b"]))


@pytest.mark.parametrize("names", ["x", "x,x"])
def test_each_model_needs_its_own_name(names):
    options = serve.ServeConfig(model_base_path="models/a,b", model_name=names)
    with pytest.raises(ValueError, match="a different name for each folder"):
        serve.base_paths(options)
