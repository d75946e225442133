# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from bert_tf import client
from bert_tf.serving import DevServer
from tests.toy.saved_model import write_toy_model

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base_path = tmp_path_factory.mktemp("toy")
    write_toy_model(base_path, 3)
    scorer = tmp_path_factory.mktemp("scorer")
    write_toy_model(scorer, 1, serving_default="score")
    with DevServer({"toy": base_path, "scorer": scorer}) as server:
        yield server


@pytest.fixture(params=["grpc", "rest"])
def address(server, request) -> str:
    return server.address if request.param == "grpc" else server.rest_address


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


def test_single_output_keeps_its_name(address):
    outputs = client.predict(
        {"text_a": ["a"], "text_b": [b"\xff"]},
        "toy",
        signature="join",
        address=address,
    )
    assert {name: value.tolist() for name, value in outputs.items()} == {
        "joined_bytes": [b"a\xff"]
    }


def test_empty_batch(server):
    outputs = client.predict({"text": []}, "toy", address=server.address)
    assert outputs["probabilities"].shape == (0, 2)


def test_answer_above_the_default_limit_of_grpc(server):
    text = "x" * (6 << 20)
    outputs = client.predict({"text": [text]}, "toy", address=server.address)
    assert outputs["label"][0] == f"toy:{text}".encode()


@pytest.mark.parametrize(
    "value", ["ab", 3, [[1], [2, 3]], [None], ["a", 1], [2**40], [["a"], ["b", "c"]]]
)
def test_inputs_must_be_batches(value):
    with pytest.raises(ValueError, match="must have one element per example") as error:
        client.predict({"text": value}, model="toy")
    assert str(error.value).endswith(f"Got {value!r}.")


def test_errors_have_code_and_message_in_one_line(server):
    address = server.address
    with pytest.raises(client.PredictError) as error:
        client.predict({"text": [1.0]}, "toy", address=address)
    assert error.value.code == "INVALID_ARGUMENT"
    assert str(error.value).startswith(
        "INVALID_ARGUMENT: Type mismatch: actual float vs. expect string"
    )
    assert "\n" not in str(error.value)
    with pytest.raises(client.PredictError, match=r"^NOT_FOUND: No model 'nobody'"):
        client.predict({"text": ["a"]}, "nobody", address=address)


def test_errors_over_rest(server):
    address = server.rest_address
    with pytest.raises(client.PredictError, match=r"^HTTP 404: No model 'nobody'"):
        client.predict({"text": ["a"]}, "nobody", address=address)


def test_deadline(address):
    with pytest.raises(client.PredictError, match="DEADLINE_EXCEEDED"):
        client.predict(
            {"seconds": [0.5]},
            "toy",
            signature="wait",
            address=address,
            timeout=0.1,
        )


def test_no_server_listens():
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


def test_command_with_one_example(server, capsys):
    arguments = [f"--address={server.address}", "--model=toy"]
    assert client.main([*arguments, "--text=a = größer"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "label": "toy:a = größer",
        "probabilities": [12.0, 1.2],
    }


def test_command_with_json_lines(server):
    lines = [{"text": "ab"}, {"txt": "ab"}, [1], {"text": "c\n"}]
    stdin = "\n".join(map(json.dumps, lines)).encode() + b"\n{\n\xff\n"
    done = command(f"--address={server.address}", "--model=toy", stdin=stdin)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer.get("label") for answer in answers] == [
        "toy:ab",
        None,
        None,
        "toy:c\n",
        None,
        None,
    ]
    assert answers[1]["error"].startswith("INVALID_ARGUMENT: The inputs of the si")
    assert "must be a JSON object" in answers[2]["error"]
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_command_sends_repeated_inputs_as_a_list(monkeypatch, capsys):
    seen = {}

    def predict(self, inputs, model, **_):
        seen.update(inputs, model=model)
        return {"choice": np.array([1])}

    monkeypatch.setattr(client.Client, "predict", predict)
    client.main(["--model=swag", "--prompt=p", "--choices=a", "--choices=b"])
    assert seen == {"model": "swag", "prompt": ["p"], "choices": [["a", "b"]]}
    assert json.loads(capsys.readouterr().out) == {"choice": 1}


@pytest.fixture
def corpus(tmp_path) -> pathlib.Path:
    """A text file for searches; vectors count the letters a, b and c."""
    path = tmp_path / "corpus.txt"
    path.write_text("aab\n\nbbb größer\n  cccc \nabc\n", encoding="utf-8")
    return path


def test_search_prints_the_most_similar_lines(address, corpus, capsys):
    arguments = [f"--address={address}", "--model=toy", f"--search={corpus}"]
    assert client.main([*arguments, "--text=b", "--top_k=2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1.0000  3  bbb größer",
        "0.5774  5  abc",
    ]


def test_search_prints_each_of_several_queries(address, corpus, capsys):
    arguments = [f"--address={address}", "--model=toy", f"--search={corpus}"]
    client.main([*arguments, "--text=c", "--text=a", "--top_k=1"])
    assert capsys.readouterr().out.splitlines() == [
        "c",
        "1.0000  4  cccc",
        "a",
        "0.8944  1  aab",
    ]


def test_search_reranks_with_a_cross_encoder(address, corpus, capsys):
    corpus.write_text("b\n" * 11 + "b accc\n" + "ab\n" * 9 + "longest, no match\n")
    arguments = [f"--address={address}", "--model=toy", f"--search={corpus}"]
    client.main([*arguments, "--text=b", "--top_k=2", "--rerank=scorer"])
    assert capsys.readouterr().out.splitlines() == ["2.0000  13  ab", "2.0000  14  ab"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--search=nowhere.txt", "--text=a"], "No such file"),
        (["--search=corpus.txt"], "--search requires --text"),
        (["--search=corpus.txt", "--text=a", "--question=b"], "no other input"),
        (["--search=corpus.txt", "--text=a", "--top_k=0"], "--top_k >= 1"),
        (["--search=empty.txt", "--text=a"], "empty.txt has no text"),
    ],
)
def test_search_errors(server, corpus, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(corpus.parent)
    pathlib.Path("empty.txt").write_text(" \n\n")
    with pytest.raises(SystemExit) as stopped:
        client.main([f"--address={server.address}", "--model=toy", *arguments])
    assert message in f"{stopped.value.code} {capsys.readouterr().err}"


def test_command_errors_are_one_line(server, capsys):
    arguments = [f"--address={server.address}", "--model=nobody", "--text=a"]
    with pytest.raises(SystemExit) as stopped:
        client.main(arguments)
    assert stopped.value.code == (
        "error: NOT_FOUND: No model 'nobody'. The models are ['scorer', 'toy']."
    )
    with pytest.raises(SystemExit):
        client.main(["--model=toy", "--text", "a"])
    assert "must be --name=value. Got --text" in capsys.readouterr().err


def test_import_and_rest_do_not_load_tensorflow(server):
    code = (
        "import sys; from bert_tf import client;"
        f"client.predict({{'text': ['a']}}, 'toy', address={server.rest_address!r});"
        "heavy = {'tensorflow', 'keras', 'tensorflow_serving', 'grpc', 'absl'};"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=20)
