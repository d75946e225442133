# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Signatures of checkpoints; `benchmarks.hub_parity` compares them with pipelines."""

import re

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax

from bert_tf.checkpoints import open_checkpoint
from bert_tf.serving import load_signatures
from bert_tf.text import Tokenizer
from tests.toy import checkpoints as toy

TEXTS = ["the cat sat on the mat", "a dog", ""]


def load(folder, vocabulary, class_name, **config):
    toy.write_hugging_face(folder, vocabulary, class_name, **config)
    return load_signatures(open_checkpoint(folder))


def answer(signatures, *inputs, name="serving_default"):
    outputs = signatures[name](*map(tf.constant, inputs))
    return {name: value.numpy() for name, value in outputs.items()}


def logits(signatures, vocabulary, *texts, limit=16):
    tokenizer = Tokenizer(vocabulary)
    inputs = tokenizer.encode(*map(tf.constant, texts), max_sequence_length=limit)
    return answer(signatures, *inputs.values(), name="ids")["logits"]


# --- Tasks -----------------------------------------------------------------------


def test_single_label_of_texts_at_most_as_long_as_the_tokenizer_says(
    tmp_path, vocabulary
):
    tokenizer = {"do_lower_case": True, "model_max_length": 5}
    name = "BertForSequenceClassification"
    signatures = load(tmp_path, vocabulary, name, tokenizer=tokenizer)
    assert signatures.keys() == {"serving_default", "ids", "classify"}
    found = answer(signatures, TEXTS)
    expected = logits(signatures, vocabulary, TEXTS, limit=5)
    np.testing.assert_allclose(
        found["probabilities"], softmax(expected, axis=1), atol=1e-6
    )
    names = np.array([b"no", b"maybe", b"yes"])
    assert found["label"].tolist() == names[expected.argmax(axis=1)].tolist()


def test_tokenizer_without_maximum_length(tmp_path, vocabulary):
    limit = 1_000_000_000_000_000_019_884_624_838_656  # Of transformers.
    tokenizer = {"do_lower_case": True, "model_max_length": limit}
    toy.write_hugging_face(tmp_path, vocabulary, tokenizer=tokenizer)
    assert open_checkpoint(tmp_path).options["max_sequence_length"] == toy.S


def test_multi_label(tmp_path, vocabulary):
    signatures = load(
        tmp_path,
        vocabulary,
        "BertForSequenceClassification",
        problem_type="multi_label_classification",
    )
    found, expected = answer(signatures, TEXTS), logits(signatures, vocabulary, TEXTS)
    np.testing.assert_allclose(found["probabilities"], expit(expected), atol=1e-6)
    names = np.array([b"no", b"maybe", b"yes"])
    labels = [[label for label in row if label] for row in found["labels"]]
    assert labels == [names[row > 0].tolist() for row in expected]
    assert [len(row) for row in labels] == [2, 1, 1]


def test_one_label_is_a_regression(tmp_path, vocabulary):
    name = "BertForSequenceClassification"
    config = {
        "tensors": toy.values(toy.hugging_face_shapes(name, classes=1)),
        "id2label": {"0": "LABEL_0"},
    }
    signatures = load(tmp_path / "a", vocabulary, name, **config)
    assert signatures.keys() == {"serving_default", "ids", "regress"}
    scores = answer(signatures, TEXTS)["score"]
    expected = logits(signatures, vocabulary, TEXTS)
    np.testing.assert_allclose(scores, expected[:, 0], atol=1e-6)
    config["problem_type"] = "regression"
    toy.write_hugging_face(tmp_path / "b", vocabulary, name, **config)
    heads = [open_checkpoint(tmp_path / folder).head for folder in "ab"]
    assert heads[0] == heads[1]


def test_pieces_of_a_word_have_own_tags(tmp_path, vocabulary):
    """Golden values: pipeline of transformers 5.23, aggregation_strategy="simple"."""
    labels = {"0": "I-A", "1": "O", "2": "B-B"}
    name = "BertForTokenClassification"
    signatures = load(tmp_path, vocabulary, name, id2label=labels)
    found = answer(signatures, ["the cats sat, a mat"])
    assert found["entities"].tolist() == [[b"s", b", a mat"]]
    assert found["entity_types"].tolist() == [[b"A", b"A"]]
    np.testing.assert_allclose(
        found["entity_scores"], [[0.4039603, 0.4831255]], atol=1e-6
    )
    assert found["entity_starts"].tolist() == [[7, 12]]
    assert found["entity_ends"].tolist() == [[8, 19]]


def test_labels_without_scheme_are_exported_per_token(tmp_path, vocabulary, caplog):
    signatures = load(tmp_path, vocabulary, "BertForTokenClassification")
    assert "labels are not B-, I- and O" in caplog.text
    found = answer(signatures, ["the cats sat"])
    assert found["words"].tolist() == [[b"the", b"cat", b"s", b"sat"]]
    assert found["entity_types"].tolist() == found["tags"].tolist()


def test_next_sentence(tmp_path, vocabulary):
    """Golden values: BertForNextSentencePrediction of transformers 5.23."""
    signatures = load(tmp_path, vocabulary, "BertForNextSentencePrediction")
    found = answer(signatures, ["the cat", "a mat"], ["sat", "on the mat"])
    assert found["label"].tolist() == [b"next", b"next"]
    np.testing.assert_allclose(
        found["probabilities"], [[0.6530, 0.3470], [0.6662, 0.3338]], atol=5e-5
    )


# --- What cannot be served -------------------------------------------------------


@pytest.mark.parametrize(
    ("class_name", "missing", "message"),
    [
        ("BertForSequenceClassification", "classifier", "weights for logits;"),
        ("BertForSequenceClassification", "bert.pooler", "weights for pooler;"),
        ("BertForMultipleChoice", "bert.pooler", "weights for pooler;"),
        ("BertForQuestionAnswering", "qa_outputs", "weights for logits;"),
    ],
)
def test_untrained_heads_are_rejected(
    tmp_path, vocabulary, class_name, missing, message
):
    tensors = {
        name: value
        for name, value in toy.values(toy.hugging_face_shapes(class_name)).items()
        if not name.startswith(missing)
    }
    with pytest.raises(ValueError, match=re.escape(message)):
        load(tmp_path, vocabulary, class_name, tensors=tensors)


@pytest.mark.parametrize("option", [{"layers": [0]}, {"pooling": "cls"}])
def test_options_of_encoders_are_rejected_for_tasks(tmp_path, vocabulary, option):
    toy.write_hugging_face(tmp_path, vocabulary, "BertForMultipleChoice")
    with pytest.raises(ValueError, match="require a model without a task"):
        load_signatures(open_checkpoint(tmp_path), **option)
