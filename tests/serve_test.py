# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from concurrent import futures

import grpc
import pytest
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow_serving.apis import predict_pb2

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

    def address(self) -> str:
        (address,) = re.findall(r"gRPC: (\S+)", "".join(self.lines))
        return address


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_while_models_load_ends_at_once(tmp_path, number):
    with Served(tmp_path, f"Loading toy from {tmp_path}/toy\n") as served:
        served.process.send_signal(number)
        assert served.process.wait(timeout=20) == -number
        assert "Traceback" not in served.process.stderr.read()


@pytest.mark.slow
def test_invalid_messages_leave_the_server_running(tmp_path):
    """Each dtype in each rank with values in each field, and random bytes."""
    fields = [{}, {"tensor_content": b"\1a"}, {"string_val": [b"a", b"b", b"c"]}]
    fields += [{"variant_val": [{"type_name": "tensorflow::TensorList"}]}]
    fields += [{"resource_handle_val": [{"device": "a"}]}]
    names = "int", "float", "double", "int64", "bool", "half", "uint32", "uint64"
    fields += [{f"{name}_val": [1]} for name in names]
    sizes = [(rank, n) for rank in (1, 2, 300) for n in (1, 3, -1, 2**62)]
    shapes = [{"dim": [{"size": n}] * rank} for rank, n in sizes]
    shapes += [{}, {"unknown_rank": True}]
    signatures = {"": "text", "add": "ids", "none": "text"}
    rng, messages = random.Random(0), []
    for number in (*range(40), *range(101, 140), -1, 2**31 - 1):
        for values in fields:
            shape, name = rng.choice(shapes), rng.choice(list(signatures))
            proto = TensorProto(dtype=number, tensor_shape=shape, **values)
            spec = {"name": "toy", "signature_name": name}
            inputs = {signatures[name]: proto}
            request = predict_pb2.PredictRequest(model_spec=spec, inputs=inputs)
            messages.append(request.SerializeToString())
    for message in rng.sample(messages, 500):
        mutable = bytearray(message)
        for _ in range(rng.randint(1, 4)):
            mutable[rng.randrange(len(mutable))] = rng.randrange(256)
        messages.append(bytes(mutable))
    messages += [rng.randbytes(rng.randint(0, 99)) for _ in range(200)]
    codes = set()
    with Served(tmp_path) as served, grpc.insecure_channel(served.address()) as channel:
        for method in ("Predict", "GetModelMetadata"):
            path = f"/tensorflow.serving.PredictionService/{method}"
            send = channel.unary_unary(path)
            for message in messages:
                try:
                    send(message, timeout=60)
                except grpc.RpcError as error:
                    codes.add(error.code().name)
                assert served.process.poll() is None, message
        answer = client.predict({"text": ["ab"]}, "toy", address=served.address())
        assert answer["label"].tolist() == [b"toy:ab"]
    expected = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"}
    assert expected <= codes
    no_message = {"INTERNAL"}
    assert codes <= expected | no_message


@pytest.mark.slow
def test_sigterm_answers_requests_in_flight_and_cancels_endless_ones(tmp_path):
    served = Served(tmp_path)
    process, lines = served.process, served.lines
    assert "Use TensorFlow Serving in production" in lines[0]
    printed = re.fullmatch(
        f"Loading toy from {tmp_path}/toy\n"
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
