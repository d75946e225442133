# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predictions for SQuAD, and their scores as in evaluate-v1.1.py and evaluate-v2.0.py.

The references are arXiv 1606.05250 and 1806.03822. Predictions, n-best lists and odds
of "no answer" are JSON objects by question id, in the format of google-research/bert.
"""

from __future__ import annotations

import collections
import json
import math
import os
import pathlib
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import storage
from bert_tf.finetuning.squad import Question

# Lower bound of the probabilities in odds, so that they are finite.
_MIN_PROBABILITY = 1e-12
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(answer: str) -> str:
    """Lower-cases, and removes ASCII punctuation, articles and extra white space."""
    answer = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", answer).split())


def exact_match(prediction: str, reference: str) -> float:
    """Returns 1 if both are equal after normalization, else 0."""
    return float(normalize(prediction) == normalize(reference))


def f1(prediction: str, reference: str) -> float:
    """Returns the F1 of the normalized words as multisets, 0 to 1."""
    predicted, expected = normalize(prediction).split(), normalize(reference).split()
    shared = (collections.Counter(predicted) & collections.Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def scores(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns the percentages that SQuAD's scripts report.

    Args:
        questions: Questions with reference answers.
        predictions: An answer for each id, "" for "no answer".

    Returns:
        `exact` and `f1`; for SQuAD 2.0 also those of the answerable (`HasAns_exact`,
        `HasAns_f1`) and the unanswerable questions (`NoAns_exact`, `NoAns_f1`).
    """
    per_question = scores_per_question(questions, predictions)
    groups = {"": np.ones(len(questions), bool)}
    if _is_version_2(questions):
        has_answer = np.array([bool(question.answers) for question in questions])
        groups |= {"HasAns_": has_answer, "NoAns_": ~has_answer}
    return {
        f"{prefix}{name}": 100 * float(values[group].mean())
        for prefix, group in groups.items()
        for name, values in per_question.items()
        if group.any()
    }


def scores_per_question(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Returns `exact` and `f1` [N], 0 to 1: the maximum over the references."""
    version_2 = _is_version_2(questions)
    values = np.zeros([len(questions), 2])
    for row, question in enumerate(questions):
        references = [text for text, _ in question.answers]
        if version_2:
            references = [text for text in references if normalize(text)] or [""]
        predicted = predictions[question.id]
        for reference in references:
            pair = exact_match(predicted, reference), f1(predicted, reference)
            if version_2 and not (normalize(predicted) or normalize(reference)):
                pair = 1.0, 1.0
            values[row] = np.maximum(values[row], pair)
    return {"exact": values[:, 0], "f1": values[:, 1]}


def best_threshold(
    questions: Sequence[Question], predictions: Predictions
) -> float | None:
    """Returns the threshold of the odds of "no answer" with the highest F1.

    Args:
        questions: Questions with reference answers.
        predictions: The predictions for them.

    Returns:
        The threshold for `Predictions.best`; None if every question is answered.
    """
    if not predictions.null_odds:
        return None
    has_answer = np.array([bool(question.answers) for question in questions])
    odds = np.array([predictions.null_odds[question.id] for question in questions])
    # Change of the total F1 if a question is answered.
    gains = scores_per_question(questions, predictions.best())["f1"] - ~has_answer
    order = np.argsort(odds, kind="stable")
    odds, gains = odds[order], np.cumsum(gains[order])
    # No threshold separates questions with equal odds.
    gains[:-1][odds[:-1] == odds[1:]] = -math.inf
    best = gains.argmax()
    if gains[best] <= 0:
        return float(odds[0] - 1)
    # Halfway to the next question, to be robust to rounding.
    return float(odds[best : best + 2].mean())


def _is_version_2(questions: Sequence[Question]) -> bool:
    return any(question.may_be_impossible for question in questions)


# --- Predictions -----------------------------------------------------------------


class Predictions(NamedTuple):
    """Predictions by question id.

    Attributes:
        n_best: Candidates, the most probable first: dictionaries of `text`,
            `probability` and, except for ensembles, `start_logit` and `end_logit`.
        null_odds: Log-odds of "no answer" against the best answer; empty if every
            question is answered.
    """

    n_best: Mapping[str, Sequence[Mapping[str, Any]]]
    null_odds: Mapping[str, float]

    def best(self, threshold: float | None = None) -> dict[str, str]:
        """Returns the best answers; "" for null odds above `threshold`."""
        answers = {
            name: next((c["text"] for c in candidates if c["text"]), "")
            for name, candidates in self.n_best.items()
        }
        if threshold is not None:
            refused = (n for n, odds in self.null_odds.items() if odds > threshold)
            answers |= dict.fromkeys(refused, "")
        return answers

    def write(
        self, folder: pathlib.Path, split: str, threshold: float | None = None
    ) -> pathlib.Path:
        """Writes predictions_<split>.json, nbest_<split>.json, null_odds_<split>.json.

        Returns:
            The path of the first.
        """
        contents = {"predictions": self.best(threshold), "nbest": self.n_best}
        if self.null_odds:
            contents["null_odds"] = self.null_odds
        for name, content in contents.items():
            text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
            storage.write_text(str(_file(folder, name, split)), text)
        return _file(folder, "predictions", split)


def average(
    folders: Sequence[str | os.PathLike], split: str, questions: Sequence[Question]
) -> Predictions:
    """Averages the n-best probabilities of several runs (paper, section 4.2).

    Candidates are identified by their texts. A candidate that a run does not list has
    probability 0 there.

    Args:
        folders: Arguments of `Predictions.write`.
        split: Name of the split.
        questions: The questions of the split.

    Raises:
        ValueError: An n-best list is of other questions.
        FileNotFoundError: A folder has no n-best list.
    """
    ids = {question.id for question in questions}
    runs, has_odds = [], True
    for folder in map(pathlib.Path, folders):
        path = _file(folder, "nbest", split)
        runs.append(storage.read_json(path))
        if runs[-1].keys() != ids:
            raise ValueError(
                f"{path} must be for the questions of {questions[0].path}. The ids "
                "differ."
            )
        has_odds &= _file(folder, "null_odds", split).is_file()
    n_best, null_odds = {}, {}
    for name in runs[0]:
        total = collections.Counter()
        for run in runs:
            for candidate in run[name]:
                total[candidate["text"]] += candidate["probability"] / len(runs)
        ranked = total.most_common()
        n_best[name] = [{"text": t, "probability": p} for t, p in ranked]
        if has_odds:
            best = max((p for text, p in ranked if text), default=0.0)
            null, best = (max(p, _MIN_PROBABILITY) for p in (total[""], best))
            null_odds[name] = math.log(null / best)
    return Predictions(n_best, null_odds)


def _file(folder: pathlib.Path, name: str, split: str) -> pathlib.Path:
    return folder / f"{name}_{split}.json"
