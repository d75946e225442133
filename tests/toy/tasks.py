# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tasks on data files of one or two rows."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf import heads, serving
from bert_tf.finetuning import Task
from bert_tf.text import Tokenizer
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.multiple_choice import MultipleChoice
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

_QUESTION = {"id": "1", "question": "a", "answers": [], "is_impossible": True}
_PARAGRAPH = {"context": "b", "qas": [_QUESTION]}
_FILES = {
    "tsv": "x\ty\tname\tscore\tright\na\tb\tno\t1\t0\nthe\tcat\tyes\t2.5\t1\n",
    "json": json.dumps({"data": [{"paragraphs": [_PARAGRAPH]}]}),
    "conll": "the O\ncat B-P\nsat B-L\n",
}
_FORMATS = {
    Classification: "tsv",
    Embedding: "tsv",
    MultipleChoice: "tsv",
    QuestionAnswering: "json",
    Tagging: "conll",
}


def make_task(
    kind: type[Task], folder: pathlib.Path, tokenizer: Tokenizer, **options
) -> Task:
    """Writes a data file to `folder` and returns a task that reads it.

    Rows have at most 32 tokens. The columns of a table are x, y, name, score, right.
    """
    file = folder / f"data.{_FORMATS[kind]}"
    file.write_text(_FILES[_FORMATS[kind]])
    files = dict.fromkeys(("train_file", "dev_file"), str(file))
    options = {"output": "unused", "max_sequence_length": 32, **files, **options}
    return kind(kind.Config(**options), tokenizer)


def serve(
    task: Task, model: keras.Model, decision: Mapping[str, Any] | None = None
) -> dict[str, heads.Signature]:
    """Returns the signatures that an export of the task's model has."""
    head = {"kind": task.kind, **task.head, **(decision or {})}
    return serving.head_signatures(task.served_head(head), model)
