# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Predicts files of any size with a finished model, without its training files."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from bert_tf import data, serving
from bert_tf.finetuning.task import PredictConfig, Task


def predict_file(task_class: type[Task], options: PredictConfig) -> None:
    """Predicts `options.input` with a finished model.

    The rows of `options.output` have the columns of `predictions_<split>.tsv`. Input
    and output are streamed, so that they may be larger than the memory. The output
    appears when it is complete.

    Raises:
        ValueError: The model is for another task, the input is malformed, or it is the
            output.
        OSError: A file cannot be read or written.
    """
    output = pathlib.Path(options.output)
    if output.is_dir() or (output.exists() and output.samefile(options.input)):
        raise ValueError(f"--output must be a file other than --input. Got {output}.")
    model, config_class = serving.load(options.model), task_class.Config
    checkpoint, head = model.checkpoint, model.checkpoint.head
    if head["kind"] != task_class.kind:
        raise ValueError(
            f"--model must be a model for {task_class.kind}. {checkpoint.path} is a "
            f"model for {head['kind']}."
        )
    # A model of another project names no columns; they are the inputs of its signature.
    inputs = [spec.name for spec in model.signatures["serving_default"].input_signature]
    known = dict(zip(inputs, inputs)) | checkpoint.options
    fields = [field.name for field in dataclasses.fields(config_class)]
    known = {name: known.get(name, getattr(config_class, name, "")) for name in fields}
    config = config_class(**known)
    examples = iter(task_class.read_input(config, options.input))

    def rows() -> Iterator[dict[str, Any]]:
        while batch := list(itertools.islice(examples, options.batch_size)):
            columns = list(zip(*(example.inputs for example in batch), strict=True))
            answers = task_class.answer(model, columns, options.batch_size)
            yield from task_class.prediction_rows(batch, answers, head, config)

    count = data.write_table(options.output, tqdm(rows(), unit=" rows", disable=None))
    print(f"{count:,} rows in {options.output}.")
