# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Extreme gRPC requests to exports of every kind.

See dev_server_test.py for invalid requests.
"""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import client, serving
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Tokenizer
from tests.toy import tasks as toy_tasks
from tests.toy.models import pretrained_signatures

pytestmark = pytest.mark.slow

STRINGS = {
    "masks": ["text"],
    "texts": ["text"],
    "scores": ["text_a", "text_b"],
    "spans": ["question", "context"],
    "choices": ["prompt", "choices"],
    "tags": ["text"],
}


@pytest.fixture(scope="module")
def address(tmp_path_factory, one_layer, vocabulary, toy_checkpoint):
    folder = tmp_path_factory.mktemp("served")
    tf.keras.utils.set_random_seed(7)
    backbone = BertBackbone(one_layer)
    masks = pretrained_signatures(BertPretrainer(backbone), Tokenizer(vocabulary))
    masks = {"serving_default": masks["serving_default"]}
    serving.export_saved_model(masks, folder / "masks", checkpoint=toy_checkpoint)
    for name in STRINGS.keys() - {"masks"}:
        changes = {"stride": 16} if name == "spans" else {}
        toy_tasks.export(name, folder, backbone, toy_checkpoint, **changes)
    with serving.DevServer({name: folder / name for name in STRINGS}) as server:
        yield server.address


@pytest.fixture
def predict(address, model):
    """Sends requests to `model`, then checks that it still answers as before."""
    with client.Client(address) as connection:

        def predict(**inputs) -> dict[str, np.ndarray]:
            return connection.predict(inputs, model, timeout=300)

        before = predict(**request(model, ["the cat"]))
        yield predict
        after = predict(**request(model, ["the cat"]))
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value)


def request(model: str, texts: list) -> dict[str, list]:
    """Passes each text to every input of the model."""
    return {
        name: [[text, "a"] for text in texts] if name == "choices" else texts
        for name in STRINGS[model]
    }


def assert_valid(outputs: dict[str, np.ndarray], count: int) -> None:
    for value in outputs.values():
        assert len(value) == count
        assert value.dtype.kind != "f" or np.isfinite(value).all()


PARTS = ["the", " cat", "[MASK]", "[SEP]", "\0", "é", "\u0301", "🙂", "漢", " " * 9]
SPANS = {  # Outputs that are parts of the text.
    "spans": ("answers", "start_bytes", "end_bytes"),
    "tags": ("entities", "entity_start_bytes", "entity_end_bytes"),
}


@pytest.mark.parametrize("model", STRINGS)
def test_large_batch_of_arbitrary_bytes(predict, model):
    rng = random.Random(0)
    texts = [rng.randbytes(rng.randint(0, 60)) for _ in range(498)]
    texts += ["".join(rng.choices(PARTS, k=rng.randint(0, 40))) for _ in range(498)]
    texts = [*texts, "the cat sat on [MASK].", "a", "", "sat " * 40]
    texts = [text.encode() if isinstance(text, str) else text for text in texts]
    outputs = predict(**request(model, texts))
    assert_valid(outputs, 1_000)
    few = predict(**request(model, texts[-4:]))
    for name, value in few.items():  # The other texts may need more columns.
        rows = outputs[name][(slice(-4, None), *map(slice, value.shape[1:]))]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(rows, value, atol=1e-5)
        else:
            assert rows.tolist() == value.tolist()
    if model in SPANS:
        columns = (outputs[name] for name in SPANS[model])
        for text, *row in zip(texts, *columns, strict=True):
            for part, start, end in zip(*row, strict=True):
                assert 0 <= start <= end <= len(text)
                assert text[start:end] == part


@pytest.mark.parametrize("model", STRINGS)
def test_texts_of_megabytes(predict, model):
    for unit in (b"x", b"\xff\xfe", b"the cat. "):
        # These read all words of the text in windows, which is slow.
        is_read_whole = model in ("spans", "tags") and unit == b"the cat. "
        size = 100_000 if is_read_whole else 2_000_000
        text = unit * (size // len(unit))
        assert_valid(predict(**request(model, [text, b"a"])), 2)
