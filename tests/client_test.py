# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow_serving.apis import predict_pb2

from bert_tf import client
from tests.toy.saved_model import serve_toy_model, write_toy_model

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    write_toy_model(base_path, 3)
    with serve_toy_model(base_path) as server:
        yield server


@pytest.fixture(params=["grpc", "rest"])
def address(server, request) -> str:
    return {
        "grpc": f"127.0.0.1:{server.port}",
        "rest": f"http://127.0.0.1:{server.rest_port}",
    }[request.param]


# --- Messages --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("Tensor", tensor_pb2.TensorProto),
        ("PredictRequest", predict_pb2.PredictRequest),
        ("PredictResponse", predict_pb2.PredictResponse),
    ],
)
def test_messages_are_those_of_tensorflow_serving(ours, theirs):
    def compare(ours, theirs):
        for field in ours.fields:
            other = theirs.fields_by_number[field.number]
            if other.message_type is None:
                enum_as_int = {other.TYPE_ENUM: field.TYPE_INT32}
                assert field.name == other.name
                assert field.type == enum_as_int.get(other.type, other.type)
            else:
                compare(field.message_type, other.message_type)
            assert field.is_repeated == other.is_repeated

    compare(client._MESSAGES[ours].DESCRIPTOR, theirs.DESCRIPTOR)


def test_dtypes_are_those_of_tensorflow():
    for number, name, _ in client._DTYPES:
        dtype = tf.string if name == "object" else tf.as_dtype(name)
        assert dtype.as_datatype_enum == number


@pytest.mark.parametrize("number_and_name", [d[:2] for d in client._DTYPES])
def test_tensors_cross_the_wire(number_and_name):
    number, name = number_and_name
    values = [[b"a\0", b"\xff"]] if name == "object" else [[1, 0]]
    array = np.array(values, dtype=name)
    # There: what we write is what TensorFlow reads.
    ours = client._MESSAGES["Tensor"]()
    client._fill_tensor(ours, array)
    theirs = tensor_pb2.TensorProto.FromString(ours.SerializeToString())
    assert theirs.dtype == number
    np.testing.assert_array_equal(tf.make_ndarray(theirs), array)
    # And back: as content, and in the fields of values.
    field = {n: f for n, _, f in client._DTYPES}[number]
    in_fields = tensor_pb2.TensorProto(dtype=number, tensor_shape=theirs.tensor_shape)
    getattr(in_fields, field).extend(array.ravel().tolist())
    for message in (tf.make_tensor_proto(array), in_fields):
        ours = client._MESSAGES["Tensor"].FromString(message.SerializeToString())
        found = client._from_tensor(ours)
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


# --- Requests --------------------------------------------------------------------


def test_predict(address):
    outputs = client.predict(
        {"text": ["ab", b"\xff", "größer\0"]}, model="toy", address=address, version=3
    )
    assert sorted(outputs) == ["label", "probabilities"]
    assert outputs["label"].dtype == object
    assert outputs["label"].tolist() == [
        b"toy:ab",
        b"toy:\xff",
        "toy:größer\0".encode(),
    ]
    np.testing.assert_allclose(outputs["probabilities"][:, 0], [2, 1, 9])


def test_predict_numbers(address):
    inputs = {"ids": [[1, 2], [3, 4]], "negate": np.array([False, True])}
    with client.Client(address) as connected:
        outputs = connected.predict(inputs, "toy", signature="add")
    assert outputs["total"].dtype == np.int64
    assert outputs["total"].tolist() == [3, -7]
    assert outputs["half"].tolist() == [1.5, -3.5]
    assert outputs["positive"].tolist() == [True, False]
    assert outputs["scalar"].item() == b"a\0"


def test_an_only_output_keeps_its_name(address):
    outputs = client.predict(
        {"text_a": ["a"], "text_b": [b"\xff"]},
        "toy",
        signature="join",
        address=address,
    )
    assert {name: value.tolist() for name, value in outputs.items()} == {
        "joined_bytes": [b"a\xff"]
    }


def test_an_empty_batch(server):
    outputs = client.predict({"text": []}, "toy", address=f"127.0.0.1:{server.port}")
    assert outputs["probabilities"].shape == (0, 2)


def test_an_answer_above_the_default_limit_of_grpc(server):
    text = "x" * (6 << 20)
    outputs = client.predict(
        {"text": [text]}, "toy", address=f"127.0.0.1:{server.port}"
    )
    assert outputs["label"][0] == f"toy:{text}".encode()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("ab", "one element per example"),
        (3, "one element per example"),
        ([[1], [2, 3]], "differ in length"),
        ([None], "strings, numbers or booleans"),
        (["a", 1], "strings, numbers or booleans"),
    ],
)
def test_inputs_that_are_no_batch(value, message):
    with pytest.raises(ValueError, match=message):
        client.predict({"text": value}, model="toy")


def test_errors_carry_code_and_message_in_one_line(server):
    address = f"127.0.0.1:{server.port}"
    with pytest.raises(client.PredictError) as error:
        client.predict({"text": [1.0]}, "toy", address=address)
    assert error.value.code == "INVALID_ARGUMENT"
    assert str(error.value).startswith("INVALID_ARGUMENT: Type mismatch: actual float")
    assert "\n" not in str(error.value)
    with pytest.raises(client.PredictError, match=r"NOT_FOUND: .* Latest\(nobody\)"):
        client.predict({"text": ["a"]}, "nobody", address=address)


def test_errors_over_rest(server):
    address = f"http://127.0.0.1:{server.rest_port}"
    with pytest.raises(client.PredictError, match=r"HTTP 404: .* Latest\(nobody\)"):
        client.predict({"text": ["a"]}, "nobody", address=address)


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_deadline(server, scheme):
    port = server.rest_port if scheme else server.port
    with pytest.raises(client.PredictError, match="DEADLINE_EXCEEDED"):
        client.predict(
            {"seconds": [0.5]},
            "toy",
            signature="wait",
            address=f"{scheme}127.0.0.1:{port}",
            timeout=0.1,
        )


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"):
        with pytest.raises(client.PredictError, match=r"^UNAVAILABLE: "):
            client.predict({"text": ["a"]}, "toy", address=address)


# --- Command ---------------------------------------------------------------------


def command(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "bert_tf.client", *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )


def test_command_answers_one_example(server, capsys):
    arguments = [f"--address=127.0.0.1:{server.port}", "--model=toy"]
    assert client.main([*arguments, "--text=a = größer"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "label": "toy:a = größer",
        "probabilities": [12.0, 1.2],
    }


def test_command_answers_line_by_line(server):
    lines = [{"text": "ab"}, {"txt": "ab"}, [1], {"text": "c\n"}]
    stdin = "\n".join(map(json.dumps, lines)).encode() + b"\n{\n\xff\n"
    done = command(f"--address=127.0.0.1:{server.port}", "--model=toy", stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("label") for answer in answers] == [
        "toy:ab",
        None,
        None,
        "toy:c\n",
        None,
        None,
    ]
    assert answers[1]["error"].startswith("INVALID_ARGUMENT: input tensor alias")
    assert "must be a JSON object" in answers[2]["error"]
    assert done.returncode == 1
    assert not done.stderr


def test_command_sends_an_input_given_several_times_as_a_list(monkeypatch, capsys):
    seen = {}

    def predict(self, inputs, model, **_):
        seen.update(inputs, model=model)
        return {"choice": np.array([1])}

    monkeypatch.setattr(client.Client, "predict", predict)
    client.main(["--model=swag", "--prompt=p", "--choices=a", "--choices=b"])
    assert seen == {"model": "swag", "prompt": ["p"], "choices": [["a", "b"]]}
    assert json.loads(capsys.readouterr().out) == {"choice": 1}


def test_command_fails_in_one_line(server, capsys):
    arguments = [f"--address=127.0.0.1:{server.port}", "--model=nobody", "--text=a"]
    with pytest.raises(SystemExit) as stopped:
        client.main(arguments)
    assert stopped.value.code == (
        "error: NOT_FOUND: Servable not found for request: Latest(nobody)"
    )
    with pytest.raises(SystemExit):
        client.main(["--model=toy", "--text", "a"])
    assert "--name=value. Received: --text" in capsys.readouterr().err


def test_starts_without_tensorflow():
    code = (
        "import sys, bert_tf.client;"
        "ours = {m for m in sys.modules if m.startswith('bert_tf.')};"
        "assert ours == {'bert_tf.client'}, ours;"
        "heavy = {'tensorflow', 'keras', 'tensorflow_serving', 'absl'};"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=20)
