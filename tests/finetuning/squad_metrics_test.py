# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Expected values are worked out by hand and checked with SQuAD's own scripts."""

import pathlib

import pytest

from bert_tf.finetuning import squad_metrics
from bert_tf.finetuning.squad import Predictions, Question


def question(name, *texts, may_be_impossible=True):
    answers = tuple((text, 0) for text in texts)
    return Question(pathlib.Path(), name, "?", "", answers, may_be_impossible)


@pytest.mark.parametrize(
    ("prediction", "reference", "exact", "f1"),
    [
        ("The  U.S. Army", "us army", 1, 1),
        ("a cat, the cat", "cat", 0, 2 / 3),
        ("in the late 1990s", "late 1990s", 0, 4 / 5),
        ("an apple", "Anapple", 0, 0),
        ("well-known", "well known", 0, 0),
        ("„Köln“", "Köln", 0, 0),
        ("ΣΑΣ", "σας", 1, 1),
        ("the", "a", 1, 0),
    ],
)
def test_exact_match_and_f1(prediction, reference, exact, f1):
    assert squad_metrics.exact_match(prediction, reference) == exact
    assert squad_metrics.f1(prediction, reference) == pytest.approx(f1)


def test_scores_of_squad_1():
    questions = [
        question("1", "late 1990s", "1990s", may_be_impossible=False),
        question("2", "The", may_be_impossible=False),
    ]
    scores = squad_metrics.scores(questions, {"1": "the 1990s", "2": "a"})
    assert scores == {"exact": 100.0, "f1": 50.0}


def test_scores_of_squad_2():
    questions = [
        question("1", "late 1990s"),
        question("2"),
        question("3"),
        question("4", "The"),
    ]
    predictions = {"1": "1990s", "2": "", "3": "x", "4": "a"}
    assert squad_metrics.scores(questions, predictions) == pytest.approx(
        {
            "exact": 50.0,
            "f1": (200 / 3 + 100 + 0 + 100) / 4,
            "HasAns_exact": 50.0,
            "HasAns_f1": (200 / 3 + 100) / 2,
            "NoAns_exact": 50.0,
            "NoAns_f1": 50.0,
        }
    )


def best_threshold(questions, answer, odds):
    """The threshold if `answer` is the best answer to every question."""
    n_best = {name: [{"text": answer}] for name in odds}
    return squad_metrics.best_threshold(questions, Predictions(n_best, odds))


def test_best_threshold():
    questions = [question("a", "x"), question("b"), question("c", "x"), question("d")]
    odds = {"a": -3.0, "b": -1.0, "c": 0.5, "d": 2.0}
    # 3 of 4 are right with a answered, or with a, b and c: the lower threshold wins.
    assert best_threshold(questions, "x", odds) == -2.0
    odds["b"] = 1.0
    assert best_threshold(questions, "x", odds) == 0.75
    # No threshold separates a from b.
    odds = {"a": 1.0, "b": 1.0, "c": 0.5, "d": 2.0}
    assert best_threshold(questions, "x", odds) == 0.75
    # All answers are right.
    assert best_threshold(questions[::2], "x", {"a": 1.0, "c": 2.0}) == 2.0
    # No answer is right, so no question is answered.
    assert best_threshold(questions, "y", odds) == -0.5
    # Every question is answered.
    assert best_threshold(questions, "x", {}) is None
