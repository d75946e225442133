# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of toy data sets, and tasks that read them."""

import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar

import tensorflow as tf

from bert_tf.finetuning import Split, Task
from bert_tf.text import Vocabulary
from tests.toy.checkpoints import ENCODER, encoder

_Task = TypeVar("_Task", bound=Task)


def write_file(path: pathlib.Path, content: str | bytes) -> str:
    """Writes a file with exactly these line ends, and returns its path."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def write(folder: pathlib.Path, **files: str | bytes) -> None:
    """Writes files; `train__tsv` is the name train.tsv."""
    for name, content in files.items():
        write_file(folder / name.replace("__", "."), content)


def token_rows(split: Split) -> list:
    """Returns the token ids of each row, or of the rows of each example."""
    inputs = split.rows.inputs()
    is_token = inputs["padding_mask"] > 0
    return tf.ragged.boolean_mask(inputs["token_ids"], is_token).to_list()


def read(
    task_class: type[_Task],
    folder: pathlib.Path,
    vocabulary: Vocabulary,
    content: str = "",
    name: str = "x.tsv",
    head: Mapping[str, Any] = ENCODER,
    **options,
) -> _Task:
    """Returns a task that has read its files.

    Args:
        task_class: The task.
        folder: The folder of `train_file`, `dev_file` and `test_file`.
        vocabulary: The vocabulary of the tokenizer.
        content: The content of the train and dev files `name`, which are written.
        head: The head of the encoder's checkpoint.
        **options: Options of the task.
    """
    if content:
        (folder / name).write_text(content)
        options = {"train_file": name, "dev_file": name, **options}
    for name in ("train_file", "dev_file", "test_file"):
        if name in options:
            options[name] = str(folder / options[name])
    options = task_class.Config(output="unused", **options)
    return task_class(options, encoder(vocabulary, head))
