# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes an encoder on a task (paper, section 4 and appendix A.3), and predicts.

A module of `tasks/` calls `run_task`. Input: a checkpoint of an encoder and the task's
files. Output: a model directory with config.json, vocab.txt, the weights of the best
epoch, metrics.json, TensorBoard logs, and predictions for each evaluation split. Rerun
the same command to resume. With a finished directory, it only evaluates, predicts and
exports. `--predict` reads such a directory, or a checkpoint of another project.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from tqdm import tqdm

from bert_tf import checkpoints, data, lazy, serving, storage, training
from bert_tf.checkpoints import Checkpoint, ModelDirectory
from bert_tf.finetuning import distillation
from bert_tf.finetuning.task import Example, FinetuneConfig, PredictConfig, Task
from bert_tf.finetuning.train import FineTuning
from bert_tf.modeling import BertBackbone, encoder_name

_HELD_OUT = "held_out.csv"
_EXPORT_LATER = "omit it and export the model later, with python -m bert_tf.export"


def run_task(task_class: type[Task], options: FinetuneConfig | PredictConfig) -> None:
    """Runs the command of a task: fine-tunes, or predicts a file."""
    is_training = isinstance(options, FinetuneConfig)
    (fine_tune if is_training else predict_file)(task_class, options)


def fine_tune(
    task_class: type[Task],
    options: FinetuneConfig,
    *,
    encoder_class: type[BertBackbone] | None = None,
    cache: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Trains unless the directory is finished, evaluates, reports and exports.

    Args:
        task_class: The task.
        options: Its options.
        encoder_class: A registered subclass of `BertBackbone`, see
            docs/adding_a_task.md. By default that of `init_from`.
        cache: Keeps the compiled model for the next call with the same dictionary. A
            run with other seeds or initial weights, but the same options, then starts
            without building its graphs again. Its results are the same.

    Returns:
        The metrics of the training and of each labeled split.

    Raises:
        ValueError: An option or the data are invalid.
        DivergedError: The loss became NaN or infinite.
    """
    if options.export:
        lazy.require_backend("--export", "tensorflow", fix=_EXPORT_LATER)
        serving.check_model_name(os.path.basename(os.path.abspath(options.export)))
    devices = training.create_devices(options.strategy, options.precision)
    # Check everything before anything is written.
    encoder = _open_encoder(options)
    if encoder_class:
        encoder = dataclasses.replace(encoder, encoder=encoder_name(encoder_class))
    training.check_batch_size(options.batch_size, devices.replicas)
    if devices.has_peers:
        raise ValueError(
            f"--strategy={options.strategy} must be that of one process: only "
            "bert_tf.pretrain trains on several hosts. Got a process with peers."
        )
    task = task_class(options, encoder)
    _check_hyperparameters(task)
    teacher = distillation.open_teacher(task)
    content = {"init_from": encoder, "teacher": teacher}
    content = {f"{k}_content": v.fingerprint() if v else "" for k, v in content.items()}
    if task.held_out:
        content["train_file_content"] = _content(options.train_file)
    new = {
        "head": {"kind": task.kind, **task.settings},
        "options": task.options.to_dict() | content,
    }
    attributes, resumable = encoder.attributes() | new, options.resumable()
    directory = ModelDirectory.create(options.output, resumable=resumable, **attributes)
    with storage.exclusive(directory.path), devices.errors():
        if task.held_out:
            data.write_table(directory.path / _HELD_OUT, task.held_out)
        cache = {} if cache is None else cache
        return FineTuning(task, teacher, directory, devices, cache).run()


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
            f"--model must have a head for {task_class.kind}. Received: "
            f"{checkpoint.path}, of the kind {head['kind']}. To fine-tune it, pass it "
            "as --init_from."
        )
    # A model of another project names no columns; they are the inputs of its signature.
    inputs = [spec.name for spec in model.signatures["serving_default"].input_signature]
    known = dict(zip(inputs, inputs)) | checkpoint.options
    fields = [field.name for field in dataclasses.fields(config_class)]
    known = {name: known.get(name, getattr(config_class, name, "")) for name in fields}
    changed = {name: x for name in ("id", "keep") if (x := getattr(options, name))}
    if unknown := changed.keys() - known.keys():
        raise ValueError(
            f"--{min(unknown)} is for tasks on tables, not for {task_class.kind}."
        )
    config = config_class(**known | changed)
    examples = iter(task_class.read_input(config, options.input))
    if options.split:
        examples = filter(_held_out(checkpoint, options), examples)

    def rows() -> Iterator[dict[str, Any]]:
        names = None
        while batch := list(itertools.islice(examples, options.batch_size)):
            columns = list(zip(*(example.inputs for example in batch), strict=True))
            answers = task_class.answer(model, columns, options.batch_size)
            for row in task_class.prediction_rows(batch, answers, head, config):
                # `gold` may be missing in some batches.
                names = names or [*row]
                yield {name: row.get(name, "") for name in names}

    count = data.write_table(options.output, tqdm(rows(), unit=" rows", disable=None))
    print(f"{count:,} rows in {options.output}.")


def _content(path: str) -> str:
    return f"{zlib.crc32(pathlib.Path(path).read_bytes()):08x}"


def _held_out(
    checkpoint: Checkpoint, options: PredictConfig
) -> Callable[[Example], bool]:
    """Returns a function that tells whether a row is in the split `options.split`.

    Raises:
        ValueError: The model has no such split, or its training file is another one.
    """
    if checkpoint.options.get("train_file_content") != _content(options.input):
        raise ValueError(
            f"--split requires the --train_file of {checkpoint.path}, unchanged, and a "
            f"training with --{options.split}_share. Got --input={options.input}."
        )
    rows = data.read_table(checkpoint.path / _HELD_OUT)
    found = {int(x["line"]) for x in rows if x["split"] == options.split}
    if not found:
        raise ValueError(
            f"--split={options.split}: {checkpoint.path} was trained without "
            f"--{options.split}_share."
        )
    return lambda row: row.line in found  # `--id` may have changed.


# --- Checks ----------------------------------------------------------------------


def _open_encoder(options: FinetuneConfig) -> Checkpoint:
    """Opens `--init_from`. For `--size`, the result has no weights."""
    if options.init_from and not (options.size or options.vocabulary):
        encoder = checkpoints.open_checkpoint(options.init_from)
    elif options.size and options.vocabulary and not options.init_from:
        encoder = Checkpoint.untrained(options.size, options.vocabulary)
    else:
        raise ValueError(
            "Pass either --init_from, or both --size and --vocabulary to start from "
            f"random weights. Got init_from={options.init_from!r}, "
            f"size={options.size!r}, vocabulary={options.vocabulary!r}."
        )
    if options.layers:
        limit = encoder.architecture.num_layers
        if not options.init_from or not {*options.layers} <= {*range(1, limit + 1)}:
            raise ValueError(
                f"--layers must be numbers of layers of --init_from, from 1 to {limit}."
                f" Received: layers={options.layers}"
            )
        encoder = encoder.keep_layers(options.layers)
    if options.dropout is None:
        return encoder
    names = ("dropout", "attention_dropout", "classifier_dropout")
    rates = dict.fromkeys(names, options.dropout)
    architecture = dataclasses.replace(encoder.architecture, **rates)
    return dataclasses.replace(encoder, architecture=architecture)


def _check_hyperparameters(task: Task) -> None:
    encoder = task.encoder.architecture
    limits = encoder.num_layers, encoder.max_sequence_length
    for name, limit in zip(("frozen_layers", "max_sequence_length"), limits):
        if (value := getattr(task.options, name)) > limit:
            rule = f"must be at most {limit}, as in the encoder"
            raise ValueError(f"--{name} {rule}. Got {value}.")
