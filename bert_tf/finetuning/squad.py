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
from collections.abc import Iterator, Mapping, Sequence
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


# --- Files -----------------------------------------------------------------------


def read(
    path: str | os.PathLike,
    columns: Sequence[str] = ("question", "context", "answer", ""),
    *,
    needs_answers: bool = False,
) -> list[Question]:
    """Reads a .json file in the format of SQuAD, or a table (.csv, .jsonl, else TSV).

    Ids of a table are in the column `id`, or else the line numbers. Without a column
    of offsets, the answer is the first occurrence as whole words, or else the first
    occurrence.

    Args:
        path: The file.
        columns: Columns of a table: the question; the passage; the answer, empty or
            null for none; the answer's offset in the passage in characters, "" if the
            table has no such column. The last two may be missing unless
            `needs_answers`. A JSONL file may have `answers` instead of `answer`, with
            texts and offsets as in Hugging Face's data sets:
            {"text": ["France"], "answer_start": [53]}.
        needs_answers: Whether to require answers, possibly empty.

    Raises:
        ValueError: The format is wrong, ids are not unique, or an answer is not in its
            passage. The message has the file and the question or line.
        OSError: The file cannot be read.
    """
    questions = list(stream(path, columns, needs_answers=needs_answers))
    path = pathlib.Path(path)
    if not questions:
        raise ValueError(f"{path} contains no questions.")
    ids = collections.Counter(question.id for question in questions)
    ((first, count),) = ids.most_common(1)
    if count > 1:
        raise ValueError(
            f"{path}: ids must be unique. Got {count} questions with the id {first!r}."
        )
    for question in questions:
        if needs_answers and question.answers is None:
            raise ValueError(
                f"{path}, question {question.id!r}: answers[] is missing. Only "
                "--test_file can omit it."
            )
        answer_bytes(question)  # Checks the offset.
    return questions


def stream(
    path: str | os.PathLike, columns: Sequence[str], *, needs_answers: bool = False
) -> Iterator[Question]:
    """Yields the questions of a file as `read`, but checks neither ids nor offsets."""
    path = pathlib.Path(path)
    if path.suffix == ".json":
        return iter(_read_json(path))
    return _read_table(path, columns, needs_answers)


def _read_json(path: pathlib.Path) -> list[Question]:
    try:
        articles = json.loads(path.read_text(encoding="utf-8-sig"))["data"]
        return [
            _question(path, paragraph["context"], entry)
            for article in articles
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not JSON in UTF-8: {error}") from error
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: the format must be that of SQuAD, data[].paragraphs[] with "
            f"context and qas[]. Got {error!r}."
        ) from error


def _read_table(
    path: pathlib.Path, columns: Sequence[str], needs_answers: bool
) -> Iterator[Question]:
    table = Table(path)
    if columns[2] not in table.columns and columns[2] + "s" in table.columns:
        columns = (*columns[:2], columns[2] + "s", *columns[3:])
    has_answers = needs_answers or columns[2] in table.columns
    names = [name for name in (columns if has_answers else columns[:2]) if name]
    table.require(names, "--question, --context, --answer and --answer_start")
    if "id" in table.columns:
        names.append("id")
    ambiguous = 0
    for line, values in table.rows(names, nested=[columns[2]]):
        row = dict(zip(names, values, strict=True))
        question, context, answer, start = (row.get(name) for name in columns)
        entry = {"id": row.get("id", str(line)), "question": question}
        texts = answer.get("text") if isinstance(answer, dict) else answer
        if isinstance(texts, list) and texts:
            entry["answers"] = answer
        elif isinstance(texts, str) and texts.strip():
            if start is None:
                ambiguous += context.count(answer) > 1
                start = _first_occurrence(answer, context)
            entry["answers"] = [{"text": answer, "answer_start": start}]
        elif has_answers:
            entry |= {"answers": [], "is_impossible": True}
        yield _question(path, context, entry)
    if ambiguous:
        logging.warning(
            "%s: %d answers occur several times in their passages. The first "
            "occurrence is used; pass --answer_start to name the column of the offset.",
            path,
            ambiguous,
        )


def _first_occurrence(answer: str, context: str) -> int:
    """Returns an offset in characters, preferably of whole words; -1 for none."""
    words = re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", context)
    return words.start() if words else context.find(answer)


def _question(path: pathlib.Path, context: str, entry: Mapping[str, Any]) -> Question:
    """Converts an entry of qas[] in the format of SQuAD."""
    try:
        name, question = entry["id"], entry["question"]
        answers = entry["answers"] or [] if "answers" in entry else None
        if isinstance(answers, dict):  # Hugging Face's layout: a list for each key.
            columns = zip(*answers.values(), strict=True)
            answers = [dict(zip(answers, values)) for values in columns]
        if answers is not None:
            answers = tuple((str(a["text"]), int(a["answer_start"])) for a in answers)
    except (KeyError, TypeError, ValueError) as error:
        name = entry.get("id") if isinstance(entry, Mapping) else entry
        raise ValueError(
            f"{path}, question {name!r}: a question must have id, question, and "
            f"answers[] with text and a number answer_start. Got {error!r}."
        ) from error
    if answers and entry.get("is_impossible"):
        raise ValueError(
            f"{path}, question {name!r}: a question with is_impossible=true must not "
            "have answers."
        )
    return Question(path, name, question, context, answers, "is_impossible" in entry)


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
            f"{question.path}, question {question.id!r}: the answer must be an exact "
            f"substring of the passage. Got {text!r}, but the passage has {found!r} at "
            f"character answer_start={start}."
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
