# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib.image
import numpy as np
import pytest
import scipy.special
import sklearn.calibration
import sklearn.metrics
import tensorflow as tf

from bert_tf.finetuning import evaluation
from bert_tf.text import Tokenizer, find_words, substrings

# --- Decisions -------------------------------------------------------------------


def test_thresholds_have_the_best_f1():
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 2, [40, 3])
    gold[:, 2] = 0  # No positive text.
    probabilities = np.round(np.clip(gold * 0.2 + rng.random([40, 3]) * 0.8, 0, 1), 2)
    thresholds = evaluation.best_thresholds(gold, probabilities)
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
    temperature = evaluation.best_temperature(gold, 3 * logits)
    assert temperature == pytest.approx(3, rel=0.1)
    before = scipy.special.softmax(3 * logits, axis=1)
    after = scipy.special.softmax(3 * logits / temperature, axis=1)
    errors = [evaluation.calibration_error(gold, values) for values in (before, after)]
    assert errors[0] > 0.15 > 0.03 > errors[1]


@pytest.mark.parametrize(("gold", "expected"), [([0, 1], 0.05), ([1, 0], 20)])
def test_temperature_is_bounded_if_all_or_no_predictions_are_right(gold, expected):
    temperature = evaluation.best_temperature(np.array(gold), np.eye(2))
    assert temperature == pytest.approx(expected, rel=1e-3)


def test_calibration_error_is_the_gap_of_scikit_learns_curve():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 500)
    gold = rng.integers(0, 2, 500)
    probabilities = np.stack([1 - confidence, confidence], axis=1)
    accuracy, mean = sklearn.calibration.calibration_curve(gold, confidence, n_bins=15)
    counts = np.histogram(confidence, np.linspace(0, 1, 16))[0]
    expected = (counts[counts > 0] / 500) @ np.abs(accuracy - mean)
    error = evaluation.calibration_error(gold, probabilities)
    assert error == pytest.approx(expected)


def test_join_weights_split_text_as_the_corpus(vocabulary):
    rng, tokenizer = np.random.default_rng(0), Tokenizer(vocabulary)
    # Words of letters end with their full stop, others do not. Commas are words.
    words = rng.choice(["u.s.", "a.", "cats", "sat", ".", ","], [200, 9])
    pieces = tokenizer.tokenize_words(tf.constant(words.ravel()))
    word = pieces.value_rowids().numpy()
    ids = tf.RaggedTensor.from_uniform_row_length(pieces, 9).merge_dims(1, 2)
    weights = evaluation.fit_join_weights(ids, word, vocabulary)
    texts = tf.constant(["u.s.,cats.", "sat,a.", "the mat."])
    found = find_words(tokenizer.tokenize_with_offsets(texts), vocabulary, weights)
    assert substrings(texts, *found[:3]).numpy().tolist() == [
        *(b"u.s.", b",", b"cats", b"."),
        *(b"sat", b",", b"a."),
        *(b"the", b"mat", b"."),
    ]
    basic_word = np.cumsum(~vocabulary.is_continuation[ids.values]) - 1
    assert evaluation.fit_join_weights(ids, basic_word, vocabulary) == ""


# --- Reports ---------------------------------------------------------------------

TAGS = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]
LABELS = [("PER",), ("LOC", "x")], [("PER",), ("PER", "x")]


@pytest.mark.parametrize(
    ("kind", "pair", "row"),
    [
        ("class", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("other", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("tags", TAGS, "PER 0.5 1. 0.6667 1"),
        ("labels", LABELS, "PER 0.5 1. 0.6667 1"),
        ("score", ([0.0, 1, 2], [0.5, 1, 3]), "gold 0. 0.5 1. 1.5 2."),
        ("score", ([0.0, 1, 2], [0.5, 1, 3]), "|error| 0. 0.25 0.5 0.75 1."),
    ],
)
def test_table(kind, pair, row):
    lines = map(str.split, evaluation.prediction_table(kind, *pair).splitlines())
    name, *numbers = row.split()
    (found,) = (numbers for first, *numbers in filter(None, lines) if first == name)
    assert list(map(float, found)) == list(map(float, numbers))


def test_rare_classes_are_merged():
    gold = [f"name {i}" for i in range(40)] + ["often"] * 2
    table = evaluation.prediction_table("class", gold, gold)
    assert "often" in table
    assert "(others)     1.0000    1.0000    1.0000        11" in table


def test_plots():
    gold, predicted = ["yes", "no", "no", "no"], ["no", "no", "maybe", "no"]
    axes = evaluation.prediction_plot("class", gold, predicted).axes[0]
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["maybe", "no", "yes"]
    shares = [[0, 0, 0], [1 / 3, 2 / 3, 0], [0, 1, 0]]
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    axes = evaluation.prediction_plot("score", [0.0, 1, 2], [0.5, 1, 3]).axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(points, [[0.5, 0], [1, 1], [3, 2]])
    assert evaluation.prediction_plot("tags", *TAGS) is None


def test_learning_plot():
    history = [{"loss": 2.0, "dev_f1": 0.5}, {"loss": 1.0, "dev_f1": 0.4}]
    training = {"metric": "dev f1", "epochs": history, "best_epoch": 1}
    loss, score = evaluation.learning_plot(training).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [[1, 2], [2, 1]])
    np.testing.assert_array_equal(score.lines[0].get_ydata(), [0.5, 0.4])
    assert list(score.lines[1].get_xdata()) == [1, 1]


def test_write_plot(tmp_path):
    figure = evaluation.prediction_plot("class", ["yes", "no"], ["no", "no"])
    evaluation.write_plot(figure, tmp_path / "plot.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]
    width, height = figure.get_size_inches()
    image = matplotlib.image.imread(tmp_path / "plot.png")
    assert image.shape[:2] == (round(120 * height), round(120 * width))
