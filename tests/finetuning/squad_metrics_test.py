# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Expected values are worked out by hand and checked with SQuAD's own scripts."""

import json
import pathlib

import numpy as np
import pytest

from bert_tf.finetuning import squad_metrics
from bert_tf.finetuning.squad import Question
from bert_tf.finetuning.squad_metrics import Predictions


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


# --- Predictions -----------------------------------------------------------------


def candidates(**probabilities):
    """Entries of an n-best list; `none` is "no answer"."""
    return [
        {"text": "" if text == "none" else text, "probability": probability}
        for text, probability in probabilities.items()
    ]


def questions(*ids):
    path = pathlib.Path("dev.json")
    return [Question(path, name, "?", "", (), may_be_impossible=True) for name in ids]


def test_write_predictions_n_best_and_odds(tmp_path):
    n_best = {"1": candidates(ä=0.5, b=0.3), "2": candidates(none=1.0)}
    predictions = Predictions(n_best, {"1": -0.5, "2": 9.0})
    assert predictions.best() == {"1": "ä", "2": ""}
    assert predictions.best(-0.5) == {"1": "ä", "2": ""}
    assert predictions.best(-0.6) == {"1": "", "2": ""}
    path = predictions.write(tmp_path, "dev", -0.6)
    assert path == tmp_path / "predictions_dev.json"
    assert json.loads(path.read_text()) == {"1": "", "2": ""}
    assert json.loads((tmp_path / "nbest_dev.json").read_text()) == n_best
    assert json.loads((tmp_path / "null_odds_dev.json").read_text()) == {
        "1": -0.5,
        "2": 9.0,
    }
    Predictions(n_best, {}).write(tmp_path / ".", "test")
    assert not (tmp_path / "null_odds_test.json").exists()


def test_average_of_n_best_probabilities(tmp_path):
    runs = [
        {"1": candidates(x=0.6, y=0.4), "2": candidates(none=0.8, x=0.2)},
        {"1": candidates(y=0.9, z=0.1), "2": candidates(none=0.6, x=0.4)},
    ]
    for number, n_best in enumerate(runs):
        (tmp_path / str(number)).mkdir()
        odds = {"1": -1.0, "2": 1.0}
        Predictions(n_best, odds).write(tmp_path / str(number), "dev")
    found = squad_metrics.average(
        [tmp_path / "0", tmp_path / "1"], "dev", questions("1", "2")
    )
    assert [c["text"] for c in found.n_best["1"]] == ["y", "x", "z"]
    np.testing.assert_allclose(
        [c["probability"] for c in found.n_best["1"]], [0.65, 0.3, 0.05]
    )
    assert found.null_odds["2"] == pytest.approx(np.log(0.7 / 0.3))
    assert found.null_odds["1"] == pytest.approx(np.log(1e-12 / 0.65))
    assert found.best(0.0) == {"1": "y", "2": ""}


def test_average_of_different_questions(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    Predictions({"1": candidates(x=1.0)}, {}).write(tmp_path / "a", "dev")
    with pytest.raises(FileNotFoundError, match=r"b/nbest_dev\.json"):
        squad_metrics.average([tmp_path / "a", tmp_path / "b"], "dev", questions("1"))
    Predictions({"2": candidates(x=1.0)}, {}).write(tmp_path / "b", "dev")
    with pytest.raises(
        ValueError, match=r"b/nbest_dev\.json must be for the questions of dev\.json"
    ):
        squad_metrics.average([tmp_path / "a", tmp_path / "b"], "dev", questions("1"))
