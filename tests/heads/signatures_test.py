# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the signatures: outputs equal those of the Keras model."""

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax

from bert_tf import heads
from bert_tf.heads import ClassificationHead
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Tokenizer
from tests.toy.checkpoints import assert_equal
from tests.toy.models import encoder_inputs, pretrained_signatures, randomize_weights

TEXTS = ["the [MASK] sat", "[MASK] c [MASK]", "no masks", "", "a [MASK]"]


@pytest.fixture(scope="module")
def pretrainer(one_layer) -> BertPretrainer:
    return randomize_weights(BertPretrainer(BertBackbone(one_layer)))


@pytest.fixture(scope="module")
def tokenizer(vocabulary) -> Tokenizer:
    return Tokenizer(vocabulary, lowercase=True)


@pytest.fixture(scope="module")
def pretrained(pretrainer, tokenizer) -> dict[str, heads.Signature]:
    return pretrained_signatures(pretrainer, tokenizer)


def ids_of(vocabulary, tokens: str) -> dict[str, np.ndarray]:
    return encoder_inputs([[vocabulary.tokens.index(x) for x in tokens.split()]])


# --- Fill-mask -------------------------------------------------------------------


def test_fill_mask_returns_most_probable_tokens(pretrained, pretrainer, vocabulary):
    answer = pretrained["serving_default"](tf.constant(TEXTS))
    tokens, scores = answer["tokens"].numpy(), answer["scores"].numpy()
    assert tokens.shape == scores.shape == (5, 2, 5)

    row = ids_of(vocabulary, "[CLS] [MASK] c [MASK] [SEP]")
    row |= {"mask_positions": np.array([[1, 3]]), "first_positions": np.array([[0]])}
    logits = pretrainer(row)["mlm"][0].numpy()
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    best = np.argsort(-probabilities, axis=-1)[:, :5]
    assert [[t.decode() for t in mask] for mask in tokens[1]] == [
        [vocabulary.tokens[i] for i in mask] for mask in best
    ]
    np.testing.assert_allclose(
        scores[1], np.take_along_axis(probabilities, best, -1), rtol=1e-5
    )


def test_fill_mask_pads_rows_with_fewer_masks(pretrained):
    # 32 tokens include [CLS] and [SEP]; other masks are truncated.
    long = [29 * "a " + "[MASK]", 30 * "a " + "[MASK]", "[MASK]" * 50]
    answer = pretrained["serving_default"](tf.constant([*TEXTS, *long]))
    masks = (answer["tokens"].numpy() != b"").all(-1)
    assert masks.sum(1).tolist() == [1, 2, 0, 0, 1, 1, 0, 30]
    np.testing.assert_array_equal((answer["scores"].numpy() > 0).all(-1), masks)
    alone = pretrained["serving_default"](tf.constant(TEXTS[4:]))
    np.testing.assert_array_equal(alone["tokens"][0], answer["tokens"][4, :1])


# --- Embeddings and ids ----------------------------------------------------------


def test_embeddings_and_ids_equal_the_model(pretrained, pretrainer, vocabulary):
    row = ids_of(vocabulary, "[CLS] a cat [SEP]")
    encoded = pretrainer.backbone(row)
    hidden = encoded["sequence_output"].numpy()[0]
    text = tf.constant(["a cat", "the cat sat on the mat", "[MASK]", "[mask]"])
    answer = pretrained["embeddings"](text)
    for name, expected in (
        ("cls", hidden[0]),
        ("mean", hidden.mean(0)),
        ("pooled_output", encoded["pooled_output"].numpy()[0]),
    ):
        np.testing.assert_allclose(answer[name][0], expected, atol=1e-5)
    # A mask is ordinary text.
    np.testing.assert_allclose(answer["cls"][2], answer["cls"][3], atol=1e-5)
    mean = answer["mean"].numpy()
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    vectors = pretrained["sentence_embedding"](text)["sentence_embedding"]
    np.testing.assert_allclose(vectors, expected, atol=1e-6)

    answer = pretrained["ids"](*(tf.constant(x, tf.int32) for x in row.values()))
    assert list(answer) == ["sequence_output", "pooled_output"]
    assert_equal(answer, encoded, atol=1e-6)


# --- Classification --------------------------------------------------------------

LOGITS = np.float32([[1, -2, 4], [-3, -1, -2]])
LABELS = {"labels": ["no", "maybe", "yes"]}
SEVERAL = LABELS | {"problem": "multi_label"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LABELS, {"label": [b"yes", b"maybe"], "probabilities": softmax(LOGITS, 1)}),
        (SEVERAL,
         {"labels": [[b"no", b"yes"], [b"", b""]], "probabilities": expit(LOGITS)}),
        # Above the probability of "no", below those of the others.
        (SEVERAL | {"decision": {"thresholds": [0.8, 0.1, 0.1]}},
         {"labels": [[b"maybe", b"yes"]] * 2, "probabilities": expit(LOGITS)}),
        ({"problem": "regression"}, {"score": LOGITS[:, 0]}),
        ({"activation": "sigmoid"}, {"score": expit(LOGITS[:, 0])}),
    ],
)  # fmt: skip
def test_answers_of_classifiers(tokenizer, settings, expected):
    head = ClassificationHead(settings, {}, tokenizer)
    if "labels" in settings:
        expected = {**expected, "logits": LOGITS}
    found = head.answers(tf.constant(LOGITS))
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if found[name].dtype == tf.string:
            assert found[name].numpy().tolist() == values
        else:
            np.testing.assert_allclose(found[name], values, atol=1e-6)


def test_outputs_of_half_precision_become_float32():
    """TensorFlow Serving's REST API has no half precision: tensorflow/serving#1639."""

    @heads.signature(tf.TensorSpec([None], tf.int32, "x"))
    def cast(x):
        dtypes = (tf.bfloat16, tf.float16, tf.float64, tf.int64)
        return {str(i): tf.cast(x, dtype) for i, dtype in enumerate(dtypes)}

    found = [x.dtype for x in cast(tf.constant([1])).values()]
    assert found == [tf.float32, tf.float32, tf.float64, tf.int64]


@pytest.mark.parametrize("outputs", [lambda x: x, lambda x: [x], lambda x: None])
def test_signature_that_returns_no_dict_is_refused(outputs):
    @heads.signature(heads.string_input("text"))
    def shout(text):
        return outputs(tf.strings.upper(text))

    with pytest.raises(ValueError, match="signature shout must return a dict"):
        shout.get_concrete_function()
