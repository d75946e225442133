# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions about passages, in the format of SQuAD or in tables, and their scores.

The inputs of a question, an `Example`, are the question and the passage.

The scores are those of evaluate-v1.1.py and evaluate-v2.0.py (arXiv 1606.05250 and
1806.03822).
"""

from __future__ import annotations

import collections
import itertools
import math
import os
import pathlib
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from absl import logging

from bert_tf import text_files
from bert_tf.data import MISSING_VALUES, Table
from bert_tf.finetuning.task import Example

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


# --- Files -----------------------------------------------------------------------


def read(
    path: str | os.PathLike,
    columns: Sequence[str] = ("question", "context", "answer", ""),
    *,
    split: str = "test",
    others: Sequence[str] = ("id", ""),
) -> list[Example]:
    """Reads a JSON file in the format of SQuAD, or a table (.csv, .jsonl, else TSV).

    Ids of a table are in its column, or else the line numbers. Without a column of
    offsets, the answer is the first occurrence as whole words, or else the first
    occurrence. Empty answers are none. Only training needs offsets, as in SQuAD's
    scripts.

    Args:
        path: The file.
        columns: Columns of a table: the question; the passage; the answer, empty or
            null for none; the answer's offset in the passage in characters, "" if the
            table has no such column. The last two may be missing in a test set. A JSONL
            file may have `answers` instead of `answer`: a list of texts, or texts and
            offsets as in Hugging Face's data sets: {"text": ["France"],
            "answer_start": [53]}. A missing value of pandas that the passage does not
            contain, such as NaN, is no answer.
        split: Only a `"test"` set may lack answers. In the `"train"` set, questions
            whose answers are not at their offsets are skipped with a warning, see
            `answer_bytes`.
        others: Columns, or keys in the format of SQuAD, also `title`: the id; the
            group, "" for the passage; those to keep.

    Raises:
        ValueError: The format is wrong, ids are not unique, or no question is left. The
            message has the file and the question or line.
        OSError: The file cannot be read.
    """
    needs_answers = split != "test"
    questions = [*stream(path, columns, others, needs_answers=needs_answers)]
    ids = collections.Counter(question.id for question in questions)
    ((first, count),) = ids.most_common(1)
    if count > 1:
        raise ValueError(f"{path}: ids must be unique. {first!r} occurs {count} times.")
    return _aligned(questions) if split == "train" else questions


def _aligned(questions: Sequence[Example]) -> list[Example]:
    """Skips questions whose answers are not at their offsets, as google's BERT does."""
    is_aligned = [not q.answers or bool(answer_bytes(q)) for q in questions]
    if all(is_aligned):
        return questions
    first = questions[is_aligned.index(False)]
    (text, start), *_ = first.answers
    is_found = re.search(_pattern(text), first.inputs[1])
    place = f"at character answer_start={start}" if is_found else "in the passage"
    message = (
        f"{first.path}: {is_aligned.count(False)} of {len(questions)} questions have "
        f"no answer at its offset in the passage. The first is {first.id!r}: the "
        f"answer {text!r} is not {place}."
    )
    if not any(is_aligned):
        raise ValueError(message)
    logging.warning("%s They are skipped.", message)
    return list(itertools.compress(questions, is_aligned))


def stream(
    path: str | os.PathLike,
    columns: Sequence[str],
    others: Sequence[str] = ("id", ""),
    *,
    needs_answers: bool = False,
) -> Iterator[Example]:
    """Yields the questions of a file as `read`, but checks neither ids nor offsets."""
    path, table, question = pathlib.Path(path), Table(path), None
    document = table.first_object
    if document is None and table.first_line.startswith("{"):
        document = text_files.read_json(path)  # An object of several lines.
    if document is not None and "data" in document:
        rows = _read(path, document)
    else:
        rows = _read_table(table, columns, others, needs_answers)
    for number, (context, entry, cells) in enumerate(rows, start=1):
        question = _question(path, context, entry, cells, others)._replace(line=number)
        if needs_answers and question.answers is None:
            raise ValueError(
                f"{path}, question {question.id!r}: answers[] is missing. Only "
                "--test_file can omit it."
            )
        yield question
    if not question:
        raise ValueError(f"{path} contains no questions.")


# The passage of a question, its entry of qas[] in the format of SQuAD, other cells.
_Rows: TypeAlias = Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]


def _read(path: pathlib.Path, document: Mapping[str, Any]) -> _Rows:
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    title = {"title": article.get("title")}
                    yield paragraph["context"], entry, title
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: the format must be that of SQuAD, data[].paragraphs[] with "
            f"context and qas[]. Got {error!r}."
        ) from error


def _read_table(
    table: Table, columns: Sequence[str], others: Sequence[str], needs_answers: bool
) -> _Rows:
    question, context, answer, answer_start = columns
    id_, *others = others  # "" for the line.
    flags = "--question, --context, --answer, --answer_start, --id, --group, --keep"
    if len({question, context, answer}) < 3:
        raise ValueError(f"Question, passage and answer must differ. See {flags}.")
    if answer not in table.columns and f"{answer}s" in table.columns:
        answer += "s"
    # Keys in the format of SQuAD -> columns.
    names = {"question": question, "context": context}
    if id_:
        names["id"] = id_
    for key, column in (("answers", answer), ("answer_start", answer_start)):
        if column and (needs_answers or column in table.columns):
            names[key] = column
    columns, ambiguous, has_offsets = [*names.values(), *filter(None, others)], 0, False
    optional = {"id"}
    if table.suffix == ".jsonl":  # Objects may lack an answer or its offset.
        table.require(columns, flags, {"id", answer_start})
        optional |= {answer, answer_start}
    rows = table.rows(columns, flags=flags, nested=[answer], optional=optional)
    for line, values in rows:
        cells = dict(zip(columns, values))
        if cells.get(id_) is None:
            cells[id_] = str(line)
        entry = {key: cells[column] for key, column in names.items()}
        start, texts = entry.get("answer_start"), entry.get("answers")
        has_offsets |= start is not None
        texts = [texts] if isinstance(texts, str) else texts
        if isinstance(texts, list) and {*map(type, texts)} == {str}:
            entry["answers"] = []
            for text in texts:
                words, found = _occurrences(text, entry["context"])
                if not text.strip() or (text.strip() in MISSING_VALUES and not words):
                    continue
                ambiguous += start is None and len(words or found) > 1
                offset = [*words, *found, -1][0] if start is None else start
                entry["answers"].append({"text": text, "answer_start": offset})
        yield entry["context"], entry, cells
    if "answer_start" in names and not has_offsets:
        raise ValueError(
            f"{table.path} has no {answer_start!r}, the name in --answer_start."
        )
    if ambiguous:
        logging.warning(
            "%s: %d answers occur several times in their passages. The first "
            "occurrence is used; pass --answer_start to name the column of the offset.",
            table.path, ambiguous,
        )  # fmt: skip


def _occurrences(answer: str, context: str) -> tuple[list[int], list[int]]:
    """Returns the offsets of an answer as whole words, and all of its offsets."""
    pattern = _pattern(answer)
    patterns = rf"(?<!\w){pattern}(?!\w)", pattern
    return tuple([x.start() for x in re.finditer(p, context)] for p in patterns)


def _pattern(answer: str) -> str:
    """Returns a regular expression of the words of an answer."""
    return r"\s+".join(map(re.escape, answer.split()))


def _question(
    path: pathlib.Path,
    context: str,
    entry: Mapping[str, Any],
    cells: Mapping[str, Any],
    others: Sequence[str],
) -> Example:
    """Converts an entry of qas[]."""
    id_, group, *kept = others
    try:
        cells = {**entry, **cells}
        name, question, answers = str(cells[id_]), entry["question"], None
        kept = {name: str(cells[name]) for name in kept}
        group = str(cells[group]) if group else context
        impossible = str(entry.get("is_impossible") or 0).lower()
        is_impossible = {"true": 1, "1": 1, "false": 0, "0": 0}[impossible]
        if "answers" in entry or is_impossible:
            answers = () if is_impossible else _answers(entry["answers"])
        if not (isinstance(question, str) and isinstance(context, str)):
            raise TypeError(f"question={question!r}, context={context!r:.80}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        name = entry.get("id") if isinstance(entry, Mapping) else entry
        raise ValueError(
            f"{path}, question {name!r}: a question must have id, question and context "
            "as text, and answers[] with text and a number answer_start; is_impossible "
            f"must be true or false. Got {error!r}."
        ) from error
    gold = None if answers is None else next((text for text, _ in answers), "")
    texts, inputs = {"question": question}, (question, context)
    example = Example(name, texts, inputs, gold, path, answers=answers)
    return example._replace(kept=kept, group=group)


def _answers(answers: Any) -> tuple[tuple[str, int], ...]:
    """Returns texts and offsets of SQuAD's or Hugging Face's answers.

    Hugging Face's data sets have a list for each key. Annotation tools write empty
    answers for unanswerable questions; these are none. The offset is -1 for a value
    that is no number, which training reports.
    """
    if isinstance(answers, Mapping) and isinstance(answers["text"], list):
        texts, starts = answers["text"], answers.get("answer_start")
        starts = [None] * len(texts) if starts is None else starts
        pairs = zip(texts, starts, strict=True)
    else:
        answers = [answers] if isinstance(answers, Mapping) else answers or ()
        pairs = ((a["text"], a.get("answer_start")) for a in answers)
    pairs = [(str(text), start) for text, start in pairs if text is not None]
    return tuple((text, _offset(start)) for text, start in pairs if text.strip())


def _offset(value: Any) -> int:
    try:
        return int(float(value))
    except (TypeError, ValueError, OverflowError):
        return -1


def answer_bytes(question: Example) -> tuple[int, int] | None:
    """Returns byte offsets, end exclusive, of the first answer that is at its offset.

    As in google-research/bert, white space may differ, and an answer may be anywhere in
    the words that the characters from its offset cover.

    Returns:
        The offsets in UTF-8 in the context; None if there is no such answer.
    """
    context = question.inputs[1]
    for text, start in question.answers or ():
        if not 0 <= start < len(context):
            continue
        pattern = re.compile(_pattern(text))
        # A blank belongs to the word before, as in google's char_to_word_offset.
        begin = re.search(r"\S*\s*$", context[: start + 1]).start()
        end = re.compile(r"\S*").match(context, start + len(text) - 1).end()
        found = pattern.match(context, start) or pattern.search(context, begin, end)
        if found:
            return tuple(len(context[:offset].encode()) for offset in found.span())
    return None


# --- Scores ----------------------------------------------------------------------


def normalize(answer: str) -> str:
    """Lower-cases, and removes ASCII punctuation, articles and extra white space."""
    answer = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", answer).split())


def match(prediction: str, reference: str, version_2: bool) -> tuple[float, float]:
    """Returns exact match and F1 of the normalized words as multisets, 0 to 1.

    Two empty answers have the F1 1 in version 2.0 and 0 in version 1.1.
    """
    words = [normalize(answer).split() for answer in (prediction, reference)]
    shared = (collections.Counter(words[0]) & collections.Counter(words[1])).total()
    total = sum(map(len, words))
    f1 = 2 * shared / total if total else float(version_2)
    return float(words[0] == words[1]), f1


def scores(questions: Sequence[Example], answers: Sequence[str]) -> dict[str, float]:
    """Returns the percentages that SQuAD's scripts report.

    Args:
        questions: Questions with reference answers.
        answers: The answer to each question, "" for "no answer".

    Returns:
        `exact` and `f1`; for SQuAD 2.0 also those of the answerable (`HasAns_exact`,
        `HasAns_f1`) and the unanswerable questions (`NoAns_exact`, `NoAns_f1`).
    """
    values = 100 * _scores_per_question(questions, answers)
    has_answer = np.array([bool(question.answers) for question in questions])
    groups = {"": np.ones_like(has_answer)}
    if not has_answer.all():
        groups |= {"HasAns_": has_answer, "NoAns_": ~has_answer}
    return {
        f"{prefix}{name}": float(values[group, column].mean())
        for prefix, group in groups.items()
        for column, name in enumerate(("exact", "f1"))
        if group.any()
    }


def _scores_per_question(
    questions: Sequence[Example], answers: Sequence[str]
) -> np.ndarray:
    """Returns exact match and F1 [N, 2]: the maximum over the references."""
    version_2 = not all(question.answers for question in questions)
    values = []
    for question, predicted in zip(questions, answers, strict=True):
        references = [text for text, _ in question.answers]
        if version_2:
            references = [text for text in references if normalize(text)] or [""]
        values.append([match(predicted, text, version_2) for text in references])
    return np.array([np.max(pairs, axis=0) for pairs in values])


def best_threshold(
    questions: Sequence[Example], answers: Sequence[str], odds: np.ndarray
) -> float:
    """Returns the threshold of the odds of "no answer" with the highest F1.

    Args:
        questions: Questions with reference answers.
        answers: For each question, the answer if it is answered.
        odds: For each question, the log-odds of "no answer". The threshold is their
            highest value for which a question is answered.
    """
    has_answer = np.array([bool(question.answers) for question in questions])
    # Change of the total F1 if a question is answered.
    gains = _scores_per_question(questions, answers)[:, 1] - ~has_answer
    order = np.argsort(odds, kind="stable")
    odds, gains = odds[order], np.cumsum(gains[order])
    # No threshold separates questions with equal odds.
    gains[:-1][odds[:-1] == odds[1:]] = -math.inf
    best = gains.argmax()
    if gains[best] <= 0:
        return float(odds[0] - 1)
    # Halfway to the next question, to be robust to rounding.
    return float(odds[best : best + 2].mean())
