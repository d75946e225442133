# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import json
import re

import numpy as np
import pytest

from bert_tf import finetuning
from bert_tf.data import read_table
from tasks.question_answering import QuestionAnswering
from tests.toy import tables

COLUMNS = {"question": "ask", "context": "text", "answer": "found"}
LIMITS = {"max_sequence_length": 16, "max_question_length": 4, "stride": 4}


@pytest.fixture
def read(tmp_path, vocabulary):
    """Creates the task for rows of question, passage, answer and its offset."""

    def read(*rows, **options):
        lines = ["ask,text,found,at", *(",".join(map(str, row)) for row in rows)]
        options = {"answer_start": "at", **COLUMNS, **LIMITS, **options}
        path, content = tmp_path, "\n".join(lines)
        task = QuestionAnswering
        return tables.read(task, path, vocabulary, content, "x.csv", **options)

    return read


# --- Targets ---------------------------------------------------------------------


def test_targets_from_character_offsets(read, vocabulary):
    # Characters of one to four bytes; the answer ends inside a word.
    context = "é 漢🙂 the cats. sat"
    task = read(("a b", context, "cat", 9), ("c", context, "", ""))
    train = task.dataset("train")
    start, end = (train.targets[k] for k in ("start_logits", "end_logits"))
    token = vocabulary.tokens[tables.token_rows(train)[0][start[0]]]
    assert (token, end[0]) == ("cat", start[0])
    assert (start[1], end[1]) == (0, 0)
    assert task.settings["no_answer"]


def test_targets_of_windows_without_the_answer_are_cls(read):
    context = "a b c d e f g h i j k l m n o p q r"
    task = read(("x y", context, "j k l m", context.index("j")))
    train = task.dataset("train")
    found = []
    for row, ids in enumerate(tables.token_rows(train)):
        start, end = (int(t[row]) for t in train.targets.values())
        tokens = [task.tokenizer.vocabulary.tokens[i] for i in ids]
        found.append(" ".join(tokens[start : end + 1]))
    # Windows of eleven words with a stride of four.
    assert found == ["[CLS]", "j k l m", "j k l m"]
    assert not task.settings["no_answer"]


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        (("c", "a b", "b", 1), {}, "1 of 1 questions have no answer at its offset"),
        (("c", "a \u200b", "\u200b", 2), {}, "'2': the answer must contain a token"),
        (("c", "a", "a", 0), {"max_sequence_length": 7}, "question_length + 4"),
    ],
)
def test_bad_input(read, row, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(row, **options).dataset("train")


def test_targets_and_predictions_of_tables(read, tmp_path):
    tables.write(tmp_path, test__csv='ask,text\n"a, b",the cat\nc,a mat\n')
    rows = ("x", "a cat on a mat", "a", 9), ("x", "the cat", "", "")
    task = read(*rows, test_file="test.csv")
    # [CLS] x [SEP] a cat on a mat [SEP]; [CLS] x [SEP] the cat [SEP]
    targets = task.dataset("train").targets["start_logits"]
    assert targets.tolist() == [6, 0]
    test = task.dataset("test")
    logits = np.arange(16, dtype=np.float32)
    outputs = [{"start_logits": logits, "end_logits": logits}] * 2
    found = task.evaluate(test, outputs, {})
    task.write_predictions("test", found.answers, tmp_path)
    answers = json.loads((tmp_path / "predictions_test.json").read_text())
    assert answers == {"2": "cat", "3": "mat"}
    rows = read_table(tmp_path / "predictions_test.tsv")
    found = [(row["id"], row["question"], row["prediction"]) for row in rows]
    assert found == [("2", "a, b", "cat"), ("3", "c", "mat")]


@pytest.mark.parametrize(("answer", "is_correct"), [("The cat!", True), ("a", False)])
def test_any_reference_is_correct(answer, is_correct):
    example = finetuning.Example("1", {}, ("", ""), "x", answers=(("x", 0), ("cat", 2)))
    found = QuestionAnswering.prediction(
        example, {"answer": answer, "score": 1}, {}, None
    )
    assert found.gold == ("cat" if is_correct else "x")
    assert QuestionAnswering.is_correct(found.gold, answer) == is_correct
