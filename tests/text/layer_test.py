# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer as a layer of Keras models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone
from bert_tf.text import AddedToken, Tokenizer, TokenizerRules

TEXTS = ["the cat sat", "a mats, [MASK]"]
RULES = TokenizerRules("tokenizers", added_tokens=(AddedToken("[MASK]"),))


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return Tokenizer(vocabulary, max_sequence_length=12, rules=RULES)


@pytest.fixture(scope="module")
def backbone(tiny_config):
    return BertBackbone(tiny_config)


def assert_equal(inputs, expected):
    assert inputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(inputs[name], values)


def test_calls_equal_encode(tokenizer):
    texts, expected = tf.constant(TEXTS), tokenizer.encode(TEXTS)
    assert expected["token_ids"].shape[0] == 2
    for same in (TEXTS, texts, np.array(TEXTS), np.array(TEXTS, object)):
        assert_equal(tokenizer(same), expected)
    expected = tokenizer.encode(TEXTS, TEXTS[::-1])
    other = texts[::-1]
    for same in ((texts, other), [texts, other], (TEXTS, TEXTS[::-1])):
        assert_equal(tokenizer(same), expected)
    assert_equal(tokenizer(texts, other), expected)
    assert_equal(tokenizer("a cat"), tokenizer.encode("a cat"))


def test_models(tokenizer, backbone):
    expected = backbone(tokenizer(TEXTS))["pooled_output"]
    text = keras.Input((), dtype="string", name="text")
    models = [
        keras.Model(text, backbone(tokenizer(text))),
        keras.Sequential([text, tokenizer, backbone]),
        keras.Sequential([tokenizer, backbone]),
    ]
    for model in models:
        model.compile(run_eagerly=True)
        np.testing.assert_allclose(
            model.predict(tf.constant(TEXTS), verbose=0)["pooled_output"], expected
        )
    assert not tokenizer.supports_jit
    spec = tokenizer(text)["segment_ids"]
    assert spec.shape == (None, None)
    assert spec.dtype == "int32"
    cloned = keras.models.clone_model(models[0]).layers[1]
    for name in ("vocabulary", "rules", "lowercase", "max_sequence_length"):
        assert getattr(cloned, name) == getattr(tokenizer, name)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (tf.constant([["a"]]), r"`text` .* \[B\].* Rec.*string.* shape \(1, 1\)"),
        (keras.Input((), dtype="int32"), r"`text` must be strings.* int32 of shape"),
        ((["a"], np.array([1])), r"`text_b` must be strings.* int64 of shape \(1,\)"),
        ((["a", "b"], ["a"]), r"the same shape\. Received: \(2,\) and \(1,\)"),
        (["a", None], r"`text` must be strings"),
        (([TEXTS] * 3), r"A pair must be two texts\. Received: 3"),
    ],
)
def test_other_inputs_raise(tokenizer, texts, message):
    with pytest.raises(ValueError, match=message):
        tokenizer(texts)


def test_other_backends(tokenizer, monkeypatch):
    text = keras.Input((), dtype="string")
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    assert_equal(tokenizer(TEXTS), tokenizer.encode(TEXTS))
    for texts in (TEXTS, (TEXTS, TEXTS[::-1])):  # tf.data is TensorFlow's.
        batch = next(iter(tf.data.Dataset.from_tensors(texts).map(tokenizer)))
        assert_equal(batch, tokenizer(texts))
    with pytest.raises(ValueError, match=r"dataset\.map\(tokenizer\)"):
        tokenizer(text)
