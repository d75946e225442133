# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import scipy.special
import sklearn.calibration
import sklearn.metrics
import tensorflow as tf

from bert_tf.finetuning import decisions
from bert_tf.text import Tokenizer, find_words, substrings


def test_thresholds_have_the_best_f1():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, [40, 3])
    gold[:, 2] = 0  # No positive text.
    probabilities = np.round(np.clip(gold * 0.2 + rng.random([40, 3]) * 0.8, 0, 1), 2)
    thresholds = decisions.best_thresholds(gold, probabilities)
    assert thresholds[2] == 0.5
    for label in (0, 1):
        found, *tried = (
            sklearn.metrics.f1_score(gold[:, label], probabilities[:, label] > value)
            for value in (thresholds[label], *np.arange(-0.005, 1, 0.01))
        )
        assert found == max(tried)
        # Rounding of the served probabilities does not change a decision.
        assert np.abs(probabilities[:, label] - thresholds[label]).min() > 0.004


def test_temperature_of_overconfident_logits():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[4000, 3])
    probabilities = scipy.special.softmax(logits, axis=1)
    gold = np.array([rng.choice(3, p=row) for row in probabilities])
    temperature = decisions.best_temperature(gold, 3 * logits)
    assert temperature == pytest.approx(3, rel=0.1)
    before = scipy.special.softmax(3 * logits, axis=1)
    after = scipy.special.softmax(3 * logits / temperature, axis=1)
    errors = [decisions.calibration_error(gold, values) for values in (before, after)]
    assert errors[0] > 0.15 > 0.03 > errors[1]


@pytest.mark.parametrize(("gold", "expected"), [([0, 1], 0.05), ([1, 0], 20)])
def test_temperature_is_bounded_if_all_or_no_predictions_are_right(gold, expected):
    temperature = decisions.best_temperature(np.array(gold), np.eye(2))
    assert temperature == pytest.approx(expected, rel=1e-3)


def test_calibration_error_is_the_gap_of_scikit_learns_curve():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 500)
    gold = rng.integers(0, 2, 500)
    probabilities = np.stack([1 - confidence, confidence], axis=1)
    accuracy, mean = sklearn.calibration.calibration_curve(gold, confidence, n_bins=15)
    counts = np.histogram(confidence, np.linspace(0, 1, 16))[0]
    expected = (counts[counts > 0] / 500) @ np.abs(accuracy - mean)
    error = decisions.calibration_error(gold, probabilities)
    assert error == pytest.approx(expected)


def test_join_weights_split_text_as_the_corpus(vocabulary):
    rng, tokenizer = np.random.default_rng(0), Tokenizer(vocabulary)
    # Words of letters end with their full stop, others do not. Commas are words.
    words = rng.choice(["u.s.", "a.", "cats", "sat", ".", ","], [200, 9])
    pieces = tokenizer.tokenize_words(tf.constant(words.ravel()))
    word = pieces.value_rowids().numpy()
    ids = tf.RaggedTensor.from_uniform_row_length(pieces, 9).merge_dims(1, 2)
    weights = decisions.fit_join_weights(ids, word, vocabulary)
    texts = tf.constant(["u.s.,cats.", "sat,a.", "the mat."])
    found = find_words(tokenizer.tokenize_with_offsets(texts), vocabulary, weights)
    assert substrings(texts, *found[:3]).numpy().tolist() == [
        *(b"u.s.", b",", b"cats", b"."),
        *(b"sat", b",", b"a."),
        *(b"the", b"mat", b"."),
    ]
    basic_word = np.cumsum(~vocabulary.is_continuation[ids.values]) - 1
    assert decisions.fit_join_weights(ids, basic_word, vocabulary) == ""
