# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads questions (SQuAD 1.1 and 2.0, tables) and writes predictions for them.

Predictions, n-best lists and odds of "no answer" are JSON objects by question id, in
the format of google-research/bert.
"""

from __future__ import annotations

import collections
import json
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from absl import logging

from bert_tf import storage
from bert_tf.data import Table

# Lower bound of the probabilities in odds, so that they are finite.
_MIN_PROBABILITY = 1e-12


class Question(NamedTuple):
    """A question about a passage.

    Attributes:
        path: The file of the question.
        id: Id, unique in the file.
        question: The question.
        context: The passage.
        answers: Reference answers, (text, offset in characters (code points) of
            `context`). Empty if the passage does not answer the question; None if the
            file has no answers.
        may_be_impossible: Whether the file has the format of SQuAD 2.0, with
            unanswerable questions.
    """

    path: pathlib.Path
    id: str
    question: str
    context: str
    answers: tuple[tuple[str, int], ...] | None
    may_be_impossible: bool


class Columns(NamedTuple):
    """Column names of a table.

    Attributes:
        question: The question.
        context: The passage.
        answer: The answer, an exact substring of the passage; empty for none.
        answer_start: The answer's offset in the passage, in characters from 0; ""
            if the table has no such column.
    """

    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    answer_start: str = ""


_COLUMNS = Columns()

# --- Files -----------------------------------------------------------------------


def read(
    path: str | os.PathLike,
    columns: Columns = _COLUMNS,
    *,
    needs_answers: bool = False,
) -> list[Question]:
    """Reads a .json file in the format of SQuAD, or a table (.csv, .jsonl, else TSV).

    Ids of a table are in the column `id`, or else the line numbers. Without a column
    `answer_start`, the answer is the first occurrence as whole words, or else the first
    occurrence.

    Args:
        path: The file.
        columns: Column names of a table; the column of the answer is optional.
        needs_answers: Whether to require answers, possibly empty, and to check their
            offsets.

    Raises:
        ValueError: The format is wrong, ids are not unique, or an answer is not in its
            passage. The message has the file and the question or line.
        OSError: The file cannot be read.
    """
    path = pathlib.Path(path)
    if path.suffix == ".json":
        questions = _read_json(path)
    else:
        questions = _read_table(path, columns, needs_answers)
    if not questions:
        raise ValueError(f"{path} contains no questions.")
    ids = collections.Counter(question.id for question in questions)
    ((first, count),) = ids.most_common(1)
    if count > 1:
        raise ValueError(
            f"{path}: ids must be unique. Got {count} questions with the id {first!r}."
        )
    for question in questions if needs_answers else ():
        if question.answers is None:
            raise ValueError(
                f"{path}, question {question.id!r}: answers[] is missing. Only "
                "--test_file can omit it."
            )
        answer_bytes(question)  # Checks the offset.
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
        raise ValueError(f"{path}: invalid UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: the format must be that of SQuAD, data[].paragraphs[] with "
            f"context and qas[]. Got {error!r}."
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
            f"{path}, question {name!r}: a question must have id, question, and "
            f"answers[] with text and answer_start. Got {error!r}."
        ) from error
    if is_impossible and answers:
        raise ValueError(
            f"{path}, question {name!r}: a question with is_impossible=true must not "
            "have answers."
        )
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
    questions, ambiguous = [], 0
    for line, values in table.rows(names):
        row = dict(zip(names, values, strict=True))
        context, answers = row[columns.context], None
        if has_answers:
            answer, start = row[columns.answer], row.get(columns.answer_start)
            try:
                answers = _locate(context, answer, start)
            except ValueError as error:
                raise ValueError(f"{path}, line {line}: {error}") from None
            ambiguous += bool(answers) and start is None and context.count(answer) > 1
        name, question = row.get("id", str(line)), row[columns.question]
        questions.append(
            Question(path, name, question, context, answers, answers == ())
        )
    if ambiguous:
        logging.warning(
            "%s: %d answers occur several times in their passages. The first "
            "occurrence is used; pass --answer_start to name the column of the offset.",
            path,
            ambiguous,
        )
    return questions


def _locate(
    context: str, answer: str, start: str | None
) -> tuple[tuple[str, int], ...]:
    """Returns the answer of a row with its offset, or nothing if it is empty."""
    if not answer.strip():
        return ()
    if start is None:
        word = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", context)
        offset = word.start() if word else context.find(answer)
        if offset < 0:
            raise ValueError(
                f"the answer must be an exact substring of the passage. Got {answer!r}."
            )
        return ((answer, offset),)
    if not start.isdecimal():
        raise ValueError(
            "the answer's offset must be a number of characters, from 0. Got "
            f"{start!r}."
        )
    found = context[int(start) :][: len(answer)]
    if found != answer:
        raise ValueError(
            f"the passage must contain the answer {answer!r} at character {start}. "
            f"Got {found!r}."
        )
    return ((answer, int(start)),)


def answer_bytes(question: Question) -> tuple[int, int] | None:
    """Returns the first answer's byte offsets in the context, end exclusive.

    Returns:
        The offsets in UTF-8; None for a question without an answer.

    Raises:
        ValueError: The answer is empty, or not at its offset.
    """
    if not question.answers:
        return None
    text, start = question.answers[0]
    found = question.context[max(start, 0) : start + len(text)]
    if found != text or not text:
        raise ValueError(
            f"{question.path}, question {question.id!r}: the passage must contain the "
            f"answer {text!r} at character answer_start={start}. Got {found!r}."
        )
    begin = len(question.context[:start].encode())
    return begin, begin + len(text.encode())


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


def average(folders: Sequence[str | os.PathLike], split: str) -> Predictions:
    """Averages the n-best probabilities of several runs (paper, section 4.2).

    Candidates are identified by their texts. A candidate that a run does not list has
    probability 0 there.

    Args:
        folders: Arguments of `Predictions.write`.
        split: Name of the split.

    Raises:
        ValueError: A folder has no n-best list, or one for other questions.
    """
    runs = []
    for folder in map(pathlib.Path, folders):
        path = _file(folder, "nbest", split)
        if not path.is_file():
            raise ValueError(
                f"{path} is missing. --ensemble needs the n-best list of every run."
            )
        runs.append(json.loads(path.read_text(encoding="utf-8")))
        if runs[-1].keys() != runs[0].keys():
            raise ValueError(
                f"{path} and the list in {folders[0]} must be for the same questions. "
                "Their ids differ."
            )
    has_odds = all(
        _file(pathlib.Path(folder), "null_odds", split).is_file() for folder in folders
    )
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
