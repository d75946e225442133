# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""SQuAD: its files, its scores, and the files that its own scripts read.

In: SQuAD 1.1 or 2.0 JSON (arXiv 1606.05250, 1806.03822), or tables. Out: questions;
exact match and F1 as the data set's evaluate-v1.1.py and evaluate-v2.0.py compute them;
for each question the prediction, the n-best list and the odds of "no answer" as JSON
objects by question id, in the layout of google-research/bert.
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
from absl import logging

from bert_tf import storage
from bert_tf.data import Table

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

# Less probable answers than this count as this probable in odds, which are finite.
_LEAST_PROBABILITY = 1e-12


class Question(NamedTuple):
    """A question about a passage.

    Attributes:
        path: The file it comes from.
        id: Its id, unique in the file.
        question: The question.
        context: The passage.
        answers: The reference answers with the characters (code points) of `context`
            at which they begin; none if the passage does not answer the question;
            None if the file does not say.
        may_be_impossible: Whether the file knows questions without answers: SQuAD 2.0.
    """

    path: pathlib.Path
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    may_be_impossible: bool


class Columns(NamedTuple):
    """The names of a table's columns.

    Attributes:
        question: The question.
        context: The passage.
        answer: The answer, an exact part of the passage; empty if there is none.
        answer_start: The character of the passage at which the answer begins, from 0;
            "" without such a column.
    """

    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    answer_start: str = ""


_COLUMNS = Columns()

# An entry of an n-best list: text, probability, start_logit, end_logit; no logits where
# several models were averaged.
Candidate = Mapping[str, Any]


# --- Files in --------------------------------------------------------------------


def read(
    path: str | os.PathLike,
    columns: Columns = _COLUMNS,
    *,
    needs_answers: bool = False,
) -> list[Question]:
    """Reads a .json file of SQuAD's layout, or a table (.csv, .jsonl, else TSV).

    The ids of a table's rows are in the column `id`, if there is one, else the numbers
    of their lines. Where no column says at which place of the passage an answer stands,
    it is the first one as whole words, or the first one if there is none such.

    Args:
        path: The file.
        columns: Those of a table. That of the answer may be missing.
        needs_answers: Whether every question must say what its answers are, if only
            that there are none, and each must stand where it is said to.

    Raises:
        ValueError: The file has another layout, ids that are not unique, or answers
            that are not in their passages; the message names the file and the question
            or the line.
        OSError: It cannot be read.
    """
    path = pathlib.Path(path)
    if path.suffix == ".json":
        questions = _read_json(path)
    else:
        questions = _read_table(path, columns, needs_answers)
    if not questions:
        raise ValueError(f"{path} has no questions.")
    ids = collections.Counter(question.id for question in questions)
    ((first, count),) = ids.most_common(1)
    if count > 1:
        raise ValueError(f"{path}: {count} questions have the id {first!r}.")
    for question in questions if needs_answers else ():
        if question.answers is None:
            raise ValueError(
                f"{path}, question {question.id!r}: needs answers[], which only "
                "--test_file may be without."
            )
        answer_bytes(question)  # Raises if it is not where it should be.
    return questions


def _read_json(path: pathlib.Path) -> list[Question]:
    try:
        articles = json.loads(path.read_text(encoding="utf-8-sig"))["data"]
        return [
            _question(path, paragraph["context"], entry)
            for article in articles
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: not in SQuAD's layout, data[].paragraphs[] with context and "
            f"qas[]: {error!r}"
        ) from error


def _question(path: pathlib.Path, context: str, entry: Mapping[str, Any]) -> Question:
    try:
        name, answers = entry["id"], entry.get("answers")
        if answers is not None:
            answers = tuple((str(a["text"]), int(a["answer_start"])) for a in answers)
        may_be_impossible = "is_impossible" in entry
        is_impossible = entry.get("is_impossible", False)
        question = entry["question"]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = entry.get("id") if isinstance(entry, Mapping) else entry
        raise ValueError(
            f"{path}, question {name!r}: needs id, question, and answers[] with text "
            f"and answer_start: {error!r}"
        ) from error
    if is_impossible and answers:
        raise ValueError(f"{path}, question {name!r}: is_impossible, but has answers.")
    return Question(path, name, question, context, answers, may_be_impossible)


def _read_table(
    path: pathlib.Path, columns: Columns, needs_answers: bool
) -> list[Question]:
    table = Table(path)
    has_answers = needs_answers or columns.answer in table.columns
    names = [name for name in (columns if has_answers else columns[:2]) if name]
    table.require(names, "--question, --context, --answer and --answer_start")
    if "id" in table.columns:
        names.append("id")
    questions, repeated = [], 0
    for line, values in table.rows(names):
        row = dict(zip(names, values, strict=True))
        context, answers = row[columns.context], None
        if has_answers:
            answer, start = row[columns.answer], row.get(columns.answer_start)
            try:
                answers = _answers(context, answer, start)
            except ValueError as error:
                raise ValueError(f"{path}, line {line}: {error}") from None
            repeated += bool(answers) and start is None and context.count(answer) > 1
        name = row.get("id", str(line))
        question = row[columns.question]
        questions.append(
            Question(path, name, question, context, answers, answers == ())
        )
    if repeated:
        logging.warning(
            "%s: %d answers stand at several places of their passages; the first is "
            "taken, as --answer_start names no column that says which.",
            path,
            repeated,
        )
    return questions


def _answers(
    context: str, answer: str, start: str | None
) -> tuple[tuple[str, int], ...]:
    """The answer of a row, at most one, and where it begins."""
    if not answer.strip():
        return ()
    if start is None:
        whole = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", context)
        place = whole.start() if whole else context.find(answer)
        if place < 0:
            raise ValueError(
                f"the answer must be an exact part of the passage. Received: {answer!r}"
            )
        return ((answer, place),)
    if not start.isdecimal():
        raise ValueError(
            "where the answer begins must be the number of a character of the passage, "
            f"from 0. Received: {start!r}"
        )
    found = context[int(start) :][: len(answer)]
    if found != answer:
        raise ValueError(
            f"the answer {answer!r} should begin at character {start} of the passage; "
            f"there is {found!r}."
        )
    return ((answer, int(start)),)


def answer_bytes(question: Question) -> tuple[int, int] | None:
    """Returns the bytes of the first reference answer in the context's UTF-8.

    Returns:
        The first byte and the one behind; None for a question without answer.

    Raises:
        ValueError: The answer does not stand where it is said to, or is empty.
    """
    if not question.answers:
        return None
    text, start = question.answers[0]
    found = question.context[max(start, 0) : start + len(text)]
    if found != text or not text:
        raise ValueError(
            f"{question.path}, question {question.id!r}: answer_start={start} should "
            f"be the character of the passage at which {text!r} begins; there is "
            f"{found!r}."
        )
    begin = len(question.context[:start].encode())
    return begin, begin + len(text.encode())


# --- Scores ----------------------------------------------------------------------


def normalize(answer: str) -> str:
    """Lower-cases and drops ASCII punctuation, articles and surplus whitespace."""
    answer = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", answer).split())


def exact(prediction: str, reference: str) -> float:
    """1 if both are the same after normalisation, else 0."""
    return float(normalize(prediction) == normalize(reference))


def f1(prediction: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words, repeated ones counted."""
    predicted, expected = normalize(prediction).split(), normalize(reference).split()
    shared = (collections.Counter(predicted) & collections.Counter(expected)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def scores(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, float]:
    """Returns the percentages that SQuAD's own scripts report.

    Args:
        questions: With reference answers.
        predictions: An answer for each id, empty for "no answer".

    Returns:
        `exact` and `f1`; where questions may be without answer, also those of the
        questions with (`HasAns_exact`, `HasAns_f1`) and without (`NoAns_...`) one.
    """
    single = scores_of_each(questions, predictions)
    groups = {"": np.ones(len(questions), bool)}
    if _is_version_2(questions):
        has_answer = np.array([bool(question.answers) for question in questions])
        groups |= {"HasAns_": has_answer, "NoAns_": ~has_answer}
    return {
        f"{prefix}{name}": 100 * float(values[group].mean())
        for prefix, group in groups.items()
        for name, values in single.items()
        if group.any()
    }


def best_threshold(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
) -> float:
    """Finds the odds above which "no answer" gives the highest F1.

    Args:
        questions: With reference answers.
        predictions: The best answer to each, never empty where there is one.
        null_odds: Of "no answer" against that answer.

    Returns:
        A number between the odds of two questions.
    """
    has_answer = np.array([bool(question.answers) for question in questions])
    odds = np.array([null_odds[question.id] for question in questions])
    # What answering one instead of refusing to changes.
    gains = scores_of_each(questions, predictions)["f1"] - ~has_answer
    order = np.argsort(odds, kind="stable")
    odds, gains = odds[order], np.cumsum(gains[order])
    # Equal odds are on the same side of any threshold.
    gains[:-1][odds[:-1] == odds[1:]] = -math.inf
    best = gains.argmax()
    if gains[best] <= 0:
        return float(odds[0] - 1)
    # In the middle, so that rounding elsewhere does not change what was tuned.
    return float(odds[best : best + 2].mean())


def scores_of_each(
    questions: Sequence[Question], predictions: Mapping[str, str]
) -> dict[str, np.ndarray]:
    """Returns `exact` and `f1` [N], 0 to 1, against the most similar reference."""
    version_2 = _is_version_2(questions)
    values = np.zeros([len(questions), 2])
    for row, question in enumerate(questions):
        references = [text for text, _ in question.answers]
        if version_2:
            references = [text for text in references if normalize(text)] or [""]
        predicted = predictions[question.id]
        for reference in references:
            pair = exact(predicted, reference), f1(predicted, reference)
            if version_2 and not (normalize(predicted) or normalize(reference)):
                pair = 1.0, 1.0
            values[row] = np.maximum(values[row], pair)
    return {"exact": values[:, 0], "f1": values[:, 1]}


def _is_version_2(questions: Sequence[Question]) -> bool:
    return any(question.may_be_impossible for question in questions)


# --- Predictions -----------------------------------------------------------------


class Predictions(NamedTuple):
    """Answers by question id.

    Attributes:
        n_best: Candidates, the most probable first.
        null_odds: By how much the log-probability of "no answer" exceeds that of the
            best answer; empty where every question gets an answer.
    """

    n_best: Mapping[str, Sequence[Candidate]]
    null_odds: Mapping[str, float]

    def best(self, threshold: float | None = None) -> dict[str, str]:
        """The best answer to each question; "" where the odds are above `threshold`."""
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
        """Writes `predictions_<split>.json`, `nbest_...` and `null_odds_...`.

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


def average(folders: Sequence[str | os.PathLike], split: str) -> Predictions:
    """Averages the probabilities of several runs' n-best lists (paper, section 4.2).

    Answers are the same if their texts are; one that a run does not list has
    probability 0 there.

    Args:
        folders: Where `Predictions.write` wrote them.
        split: The name of the split.

    Raises:
        ValueError: A folder has no n-best list, or one for other questions.
    """
    runs = []
    for folder in map(pathlib.Path, folders):
        path = _file(folder, "nbest", split)
        if not path.is_file():
            raise ValueError(f"{path} is missing. Each run of an ensemble writes one.")
        runs.append(json.loads(path.read_text(encoding="utf-8")))
        if runs[-1].keys() != runs[0].keys():
            raise ValueError(f"{path} is about other questions than {folders[0]}.")
    refusing = all(
        (_file(pathlib.Path(f), "null_odds", split)).is_file() for f in folders
    )
    n_best, null_odds = {}, {}
    for name in runs[0]:
        total = collections.Counter()
        for run in runs:
            for candidate in run[name]:
                total[candidate["text"]] += candidate["probability"] / len(runs)
        ranked = total.most_common()
        n_best[name] = [{"text": t, "probability": p} for t, p in ranked]
        if refusing:
            best = max((p for text, p in ranked if text), default=0.0)
            null, best = (max(p, _LEAST_PROBABILITY) for p in (total[""], best))
            null_odds[name] = math.log(null / best)
    return Predictions(n_best, null_odds)


def _file(folder: pathlib.Path, name: str, split: str) -> pathlib.Path:
    return folder / f"{name}_{split}.json"
