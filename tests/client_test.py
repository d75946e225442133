# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import io
import json
import socket
import subprocess
import sys
from concurrent import futures

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from bert_tf import client


def test_predict(toy_server):
    texts = ["ab", b"\xff", "größer\0"]
    outputs = client.predict(
        {"text": texts}, model="toy", address=toy_server.address, version=3
    )
    assert list(outputs) == ["label", "probabilities"]
    assert outputs["label"].dtype == object
    labels = [b"toy:ab", b"toy:\xff", "toy:größer\0".encode()]
    assert outputs["label"].tolist() == labels
    np.testing.assert_allclose(outputs["probabilities"][:, 0], [2, 1, 9])
    outputs = client.predict({"text": []}, model="toy", address=toy_server.address)
    assert outputs["label"].shape == (0,)  # huggingface/sentence-transformers#2751.


def test_predict_numbers(toy_server):
    inputs = {"ids": [[1, 2], [3, 4]], "negate": np.array([False, True])}
    with client.Client(toy_server.address) as connected:
        outputs = connected.predict(inputs, "toy", signature="add")
    assert outputs["total"].dtype == np.int64
    assert outputs["total"].tolist() == [3, -7]
    assert outputs["half"].tolist() == [1.5, -3.5]
    assert outputs["positive"].tolist() == [True, False]
    assert outputs["scalar"].item() == b"a\0"


def test_answer_above_the_default_limit_of_grpc(toy_server):
    text = "x" * (6 << 20)
    outputs = client.predict({"text": [text]}, "toy", address=toy_server.address)
    assert outputs["label"][0] == f"toy:{text}".encode()


def test_malformed_answers():
    answer = predict_pb2.PredictResponse()
    answer.outputs["label"].string_val.append(b"too many")
    with client.Client() as connected:
        connected._call = lambda *arguments, **fields: answer
        with pytest.raises(client.PredictError, match="Malformed answer") as error:
            connected.predict({"text": ["ab"]}, "toy")
    assert error.value.code == "INTERNAL"


@pytest.mark.parametrize(
    "value", ["ab", 3, [[1], [2, 3]], [None], ["a", 1], [["a"], ["b", "c"]], [2**40]]
)
def test_inputs_must_be_batches(value):
    with pytest.raises(ValueError, match="must have one element per example") as error:
        client.predict({"text": value}, model="toy")
    assert str(error.value).endswith(f"Got {value!r}.")


def test_errors_have_code_and_message_in_one_line(toy_server):
    with pytest.raises(client.PredictError) as error:
        client.predict({"text": [1.0]}, "toy", address=toy_server.address)
    assert error.value.code == "INVALID_ARGUMENT"
    assert str(error.value).startswith(
        "INVALID_ARGUMENT: Input 'text' must be string of shape (None,). Got float32"
    )
    assert "\n" not in str(error.value)


def test_no_server_listens():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(client.PredictError, match=r"^UNAVAILABLE: "):
        client.predict({"text": ["a"]}, "toy", address=address)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED"])
def test_busy_servers_are_asked_again(code):
    calls = []

    class Busy(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            calls.append(request)
            if len(calls) == 1:
                context.abort(grpc.StatusCode[code], "Server Threadpool Exhausted")
            return predict_pb2.PredictResponse()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Busy(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client.predict({"text": ["a"]}, "toy", address=f"127.0.0.1:{port}")
    assert len(calls) == 2
    server.stop(None)


# --- Command ---------------------------------------------------------------------


def test_command_does_not_import_tensorflow(toy_server):
    script = "import sys; from bert_tf import client; client.main(sys.argv[1:])"
    script += "; sys.exit('tensorflow' in sys.modules)"
    flags = [f"--address={toy_server.address}", "--model=toy", "--text=a = größer"]
    done = subprocess.run([sys.executable, "-c", script, *flags], capture_output=True)
    expected = {"label": "toy:a = größer", "probabilities": [12.0, 1.2]}
    assert json.loads(done.stdout) == expected
    assert done.returncode == 0
    assert not done.stderr


def test_command_with_json_lines(toy_server, monkeypatch, capsys):
    lines = [{"text": "ab"}, {"txt": "ab"}, [1], {"text": "c\n\ud83d"}]
    stdin = "\n".join(map(json.dumps, lines)).encode() + b"\na fine film\n\n\xff\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    assert client.main([f"--address={toy_server.address}", "--model=toy"]) == 1
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    labels = ["toy:ab", None, None, "toy:c\n\ufffd", None, None]
    assert [answer.get("label") for answer in answers] == labels
    assert answers[1]["error"].startswith("INVALID_ARGUMENT: The inputs of the si")
    rule = "A line must be a JSON object in UTF-8. Got b"
    expected = [f"{rule}'[1]\\n'.", f"{rule}'a fine film\\n'.", f"{rule}'\\xff\\n'."]
    assert [answers[index]["error"] for index in (2, 4, 5)] == expected


def test_closed_pipe_ends_the_command():
    command = "yes x | head -9999 | {} -m bert_tf.client --model=toy | head -1"
    ended = subprocess.run(
        command.format(sys.executable), shell=True, capture_output=True, text=True
    )
    assert json.loads(ended.stdout)["error"]
    assert "Traceback" not in ended.stderr


def test_command_sends_repeated_inputs_as_a_list(monkeypatch, capsys):
    seen = {}

    def predict(self, inputs, model, **_):
        seen.update(inputs, model=model)
        return {"choice": np.array([1])}

    monkeypatch.setattr(client.Client, "predict", predict)
    monkeypatch.setattr(client.Client, "input_ranks", lambda *_, **__: {})
    client.main(["--model=swag", "--prompt=p", "--choices=a", "--choices=b"])
    assert seen == {"model": "swag", "prompt": [b"p"], "choices": [[b"a", b"b"]]}
    assert json.loads(capsys.readouterr().out) == {"choice": 1}
    monkeypatch.setattr(client.Client, "input_ranks", lambda *_, **__: {"words": 2})
    client.main(["--model=tags", "--words=Paris"])
    assert seen["words"] == [[b"Paris"]]


def test_command_errors_are_one_line(toy_server, monkeypatch, capsys):
    arguments = [f"--address={toy_server.address}", "--model=nobody", "--text=a"]
    with pytest.raises(SystemExit) as stopped:
        client.main(arguments)
    message = "error: NOT_FOUND: No model 'nobody'. The models are ['größer', 'toy']."
    assert stopped.value.code == message
    arguments[1] = "--model=toy"
    flags = {("--server=b",): "--server is no input of the signature, whose inputs are"}
    flags[("--text=b",)] = "--text must occur once. For several examples, write JSON"
    for others, message in flags.items():
        with pytest.raises(SystemExit) as stopped:
            client.main([*arguments, *others])
        assert message in stopped.value.code
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"--address=127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(SystemExit) as stopped:
        client.main(["--model=toy", "--text=a", address])
    assert f"Is {address} the server's? Inputs: --text." in stopped.value.code
    with pytest.raises(SystemExit):
        client.main(["--model=toy", "--text", "a"])
    assert "must be --name=value. Got --text" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(SystemExit):
        client.main(["--model=toy"])
    assert "pass inputs, such as --text=..." in capsys.readouterr().err
