# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a server must survive: every kind of export, asked over gRPC what nobody should.

The codes of what concerns the server alone, as unknown models, versions and signatures,
are in dev_server_test.py; any strings at all are in fuzz_test.py.
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import client, serving
from bert_tf.checkpoints.model_directory import ModelDirectory
from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.text.tokenizer import Tokenizer
from tasks.classification import Classification
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

pytestmark = pytest.mark.slow

STRINGS = {
    "masks": ["text"],
    "classes": ["text"],
    "scores": ["text_a", "text_b"],
    "answers": ["question", "context"],
    "choices": ["prompt", "choices"],
    "tags": ["text"],
}


def tasks(folder: pathlib.Path, tokenizer: Tokenizer) -> dict:
    """A task of each kind, on files of a line or two."""
    question = {"id": "1", "question": "a", "answers": [], "is_impossible": True}
    paragraph = {"context": "b", "qas": [question]}
    files = {
        "data.tsv": "x\ty\tname\tscore\tright\na\tb\tno\t1\t0\nthe\tcat\tyes\t2.5\t1\n",
        "data.json": json.dumps({"data": [{"paragraphs": [paragraph]}]}),
        "data.conll": "the O\ncat B-P\nsat B-L\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)

    def made(kind, suffix, **options):
        path = str(folder / f"data.{suffix}")
        options |= {"train_file": path, "dev_file": path, "max_sequence_length": 32}
        return kind(kind.Config(output="unused", **options), tokenizer)

    scores = {"text_a": "x", "text_b": "y", "label": "score", "problem": "regression"}
    return {
        "classes": made(Classification, "tsv", text_a="x", label="name"),
        "scores": made(Classification, "tsv", **scores),
        "answers": made(QuestionAnswering, "json", max_question_length=8, stride=16),
        "choices": made(
            MultipleChoice, "tsv", prompt="x", choices="x,y", label="right"
        ),
        "tags": made(Tagging, "conll"),
    }


@pytest.fixture(scope="module")
def address(tmp_path_factory, tiny_config, vocabulary):
    folder = tmp_path_factory.mktemp("served")
    tf.keras.utils.set_random_seed(7)
    tokenizer = Tokenizer(vocabulary)
    pretrainer = BertPretrainer(BertBackbone(tiny_config))
    exports = {"masks": serving.pretrained_signatures(pretrainer, tokenizer)}
    for name, task in tasks(folder, tokenizer).items():
        model = serving.optimize_for_inference(task.model(pretrainer.backbone))
        exports[name] = task.serve(model)
    directory = ModelDirectory(
        path=pathlib.Path("never-read"),
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head={},
        options={},
    )
    for name, functions in exports.items():
        serving.export_saved_model(functions, folder / name, directory=directory)
    with serving.DevServer({name: folder / name for name in exports}) as server:
        yield server.address


@pytest.fixture
def ask(address):
    """Asks one model; all of them must answer afterwards what they did before."""
    with client.Client(address) as connection:

        def ask(model: str, **inputs) -> dict[str, np.ndarray]:
            return connection.predict(inputs, model, timeout=300)

        before = {model: ask(model, **request(model, ["the cat"])) for model in STRINGS}
        yield ask
        for model, outputs in before.items():
            after = ask(model, **request(model, ["the cat"]))
            for name, value in outputs.items():
                np.testing.assert_array_equal(after[name], value)


def request(model: str, texts: list) -> dict[str, list]:
    """Each text as every input of the model."""
    return {
        name: [[text, "a"] for text in texts] if name == "choices" else texts
        for name in STRINGS[model]
    }


def assert_answers(outputs: dict[str, np.ndarray], count: int) -> None:
    for value in outputs.values():
        assert len(value) == count
        assert value.dtype.kind != "f" or np.isfinite(value).all()


@pytest.mark.parametrize("model", STRINGS)
def test_a_batch_of_ten_thousand(ask, model):
    texts = ["the cat sat on [MASK].", "a", "", "sat " * 40] * 2_500
    outputs = ask(model, **request(model, texts))
    assert_answers(outputs, 10_000)
    few = ask(model, **request(model, texts[:4]))
    for name, value in few.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(outputs[name][-4:], value, atol=1e-5)
        else:
            assert outputs[name][-4:].tolist() == value.tolist()


@pytest.mark.parametrize("model", STRINGS)
@pytest.mark.parametrize("unit", ["x", "a\0", "\xff\xfe", " ", "the cat. "])
def test_ten_megabytes(ask, model, unit):
    # What is read in windows, all of it, takes its time with so many words.
    is_read_whole = model in ("answers", "tags") and unit == "the cat. "
    size = 200_000 if is_read_whole else 10_000_000
    text = unit.encode("latin-1") * (size // len(unit))
    assert_answers(ask(model, **request(model, [text, b"a"])), 2)


@pytest.mark.parametrize("model", STRINGS)
def test_an_empty_batch(ask, model):
    empty = {
        name: np.zeros([0, 2] if name == "choices" else [0], object)
        for name in STRINGS[model]
    }
    assert_answers(ask(model, **empty), 0)


@pytest.mark.parametrize("model", STRINGS)
def test_typed_control_tokens_are_text(ask, model):
    """In brackets, as [sep] is. Only fill-mask knows one of them, [MASK]."""
    names = ["[SEP]", "[CLS]", "[PAD]", "[UNK]"]
    names += ["[MASK]"] if model != "masks" else []
    typed = ask(model, **request(model, [f"the {name} cat" for name in names]))
    words = ask(model, **request(model, [f"the {name.lower()} cat" for name in names]))
    for name, value in typed.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, words[name], atol=1e-6)


@pytest.mark.parametrize("model", STRINGS)
def test_bad_requests_are_the_clients_fault(ask, model):
    good = request(model, ["the cat", "a"])
    for name in good:
        without = {key: value for key, value in good.items() if key != name}
        array = np.array(good[name], object)
        bad = [
            without,
            {**without, "txt": array},
            {**good, "more": array},
            {**good, name: np.ones(array.shape, np.float32)},
            {**good, name: array[:, np.newaxis]},
        ]
        bad += [{**good, name: array[:1]}] if without else []
        for inputs in bad:
            with pytest.raises(client.PredictError) as error:
                ask(model, **inputs)
            assert error.value.code == "INVALID_ARGUMENT"
            assert error.value.message
