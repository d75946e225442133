# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Averages the answers of several models of a task (paper, table 2).

    python -m experiments.ensemble --models=models/squad0,models/squad1 \\
        --output=models/squad_ensemble --export=saved_models/squad

Input: model directories of one task with the same vocabulary and labels, such as
restarts, or encoders of several sizes. The data are those of the first model's
training, unless flags name other files. Output: metrics.json, the predictions of each
split in the files of the task, and a table of scores; with --export, a SavedModel that
runs all models.

What is averaged:

- classes, tags, choices: the probabilities;
- several labels: their probabilities. The thresholds are fitted again;
- spans: the n-best lists. A text that a list lacks has probability 0 there;
- scores: the scores;
- vectors: the similarities of two texts. They cannot be exported.

With --long_text of tasks.classification, the average is that of each window.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import checkpoints, cli, finetuning, heads, serving
from bert_tf.lazy import lazy_import

from . import report, runs

tf = lazy_import("tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleConfig(cli.Options):
    """Flags of `python -m experiments.ensemble`."""

    models: str = cli.option(help="Model directories, separated by commas.")
    output: str = cli.option(help="Folder of the results.", local=True)
    export: str = cli.option("", help="Folder of the SavedModel to write.")
    module: str = cli.option("", help="Module of the task; by default tasks.<kind>.")
    data_dir: str = cli.option("", help="Replaces that of the first model.")
    train_file: str = cli.option("", help="Replaces that of the first model.")
    dev_file: str = cli.option("", help="Replaces that of the first model.")
    test_file: str = cli.option("", help="Replaces that of the first model.")
    batch_size: int = cli.option(32, help="Examples per batch.", minimum=1)


def main(options: EnsembleConfig) -> dict[str, list[Mapping[str, float]]]:
    """Evaluates the models and their average.

    Returns:
        For each labeled split, the metrics of each model, then those of the ensemble.

    Raises:
        ValueError: The models are of different tasks, tokenizers or labels, or
            `output` is a model directory.
    """
    if pathlib.Path(options.output, "config.json").exists():
        raise ValueError(
            "--output must not be a model directory, whose metrics and predictions the "
            f"ensemble would replace. Got {options.output}."
        )
    members = [checkpoints.open_checkpoint(path) for path in options.models.split(",")]
    task = open_task(options, members)
    if options.export and task.kind == "embedding":
        raise ValueError("--export does not support vectors. Export each model.")
    splits = [task.dataset(name) for name in task.evaluation_splits]
    limits = options.batch_size, task.options.max_sequence_length
    outputs, found = [], []
    for member in members:  # One model at a time is in memory.
        print(f"Predicting with {member.path} ...", flush=True)
        model = task.head.build(member.build_backbone())
        member.load_into(model)
        outputs.append([finetuning.predict(model, split, *limits) for split in splits])
        found.append(_evaluate(task, splits, outputs[-1]))
    task.head = ensemble_head(task, len(members))
    means = [average_rows(task, values) for values in zip(*outputs)]
    found.append(_evaluate(task, splits, means))

    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    table = report.Table("ensemble", f"Ensemble of {len(members)} models (table 2)")
    metrics, percent = {}, 1 if task.kind == "question_answering" else 100
    for name, result in found[-1].items():
        task.write_predictions(name, result.answers, folder)
        if result.metrics:
            metrics[name] = [results[name].metrics for results in found]
            *single, mean = (percent * each[task.metric] for each in metrics[name])
            table.add("single models", f"{name} {task.metric}", single)
            table.add("ensemble", f"{name} {task.metric}", [mean])
    text = json.dumps({"models": options.models.split(","), **metrics}, indent=2)
    (folder / "metrics.json").write_text(text)
    command = f"tasks.{task.kind}"
    used = [
        runs.Run(x.path, command, x.options, "", x.read_metrics(), 0) for x in members
    ]
    print(report.write(table, folder, used))
    if options.export:
        decision = found[-1][splits[0].name].decision
        print(f"Exported to {export(task, members, decision, options.export)}.")
    return metrics


def open_task(
    options: EnsembleConfig, members: Sequence[checkpoints.Checkpoint]
) -> finetuning.Task:
    """Returns the task of the models, with the data of the first or of `options`."""
    first, kind = members[0], members[0].head["kind"]
    try:
        task_class = runs.find_task(options.module or f"{runs.TASKS}.{kind}")
    except ValueError as error:
        raise ValueError(
            f"--models must be of a task, whose module --module may name. Got "
            f"{first.path}, of the kind {kind}: {error}"
        ) from error
    fields = {field.name for field in dataclasses.fields(task_class.Config)}
    known = {name: x for name, x in first.options.items() if name in fields}
    names = ("data_dir", "train_file", "dev_file", "test_file")
    known |= {name: x for name in names if (x := getattr(options, name))}
    task = task_class(task_class.Config(**known), first)
    settings = {"kind": kind, **task.settings}
    for x in members:
        same = x.vocabulary.tokens == first.vocabulary.tokens and x.rules == first.rules
        same &= x.lowercase == first.lowercase
        if not same or any(
            x.head.get(name) != value for name, value in settings.items()
        ):
            raise ValueError(
                f"{x.path} and {first.path} must be models of the same task with equal "
                f"tokenizers and labels. Got {dict(x.head)} and {settings}."
            )
    return task


def _evaluate(
    task: finetuning.Task,
    splits: Sequence[finetuning.Split],
    outputs: Sequence[Sequence[Any]],
) -> dict[str, finetuning.Evaluation]:
    """Returns the evaluation of each split, with the decision for the first one."""
    found, decision = {}, None
    for split, rows in zip(splits, outputs, strict=True):
        found[split.name] = task.evaluate(split, rows, decision)
        decision = found[split.name].decision
    return found


# --- Averages --------------------------------------------------------------------


def average(problem: str, outputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Averages outputs [..., C] of M models; a graph function.

    Args:
        problem: `Task.problem`. For classes and labels, the probabilities of the
            result, a tensor of logits, are the means of those of the models.
        outputs: The outputs of the models.
    """
    stacked = tf.stack(outputs)
    if problem == "regression":
        return tf.reduce_mean(stacked, axis=0)
    if problem == "multi_label":
        yes, no = (
            tf.reduce_logsumexp(tf.math.log_sigmoid(x), axis=0)
            for x in (stacked, -stacked)
        )
        return yes - no
    total = tf.reduce_logsumexp(tf.nn.log_softmax(stacked), axis=0)
    return total - math.log(len(outputs))


def average_rows(task: finetuning.Task, outputs: Sequence[Sequence[Any]]) -> list[Any]:
    """Averages the outputs of M models for N rows.

    Returns:
        What `task.evaluate` takes, with `task.head = ensemble_head(task, M)`.
    """
    if task.kind == "question_answering":
        return [*itertools.chain(*outputs)]
    if task.kind == "embedding":
        return [np.concatenate(vectors) for vectors in zip(*outputs)]
    return [average(task.problem, rows).numpy() for rows in zip(*outputs)]


def ensemble_head(
    task: finetuning.Task, size: int, decision: Mapping[str, Any] | None = None
) -> heads.Head:
    """Returns the head of the task for the average of `size` models."""
    settings = {**task.settings, **(decision or {})}
    if task.kind != "question_answering":
        return task.build_head(settings)
    from .span_ensemble import SpanEnsemble  # Imports TensorFlow.

    head = SpanEnsemble(settings, task.options.to_dict(), task.tokenizer)
    head.size = size
    return head


# --- Export ----------------------------------------------------------------------


def export(
    task: finetuning.Task,
    members: Sequence[checkpoints.Checkpoint],
    decision: Mapping[str, Any],
    folder: str,
) -> Any:
    """Exports the ensemble as one SavedModel; returns its path.

    Its signatures are those of a single model, but for `ids`.
    """
    functions = [serving.load_signatures(member)["ids"] for member in members]
    names = [spec.name for spec in functions[0].input_signature]
    models = [lambda x, f=f: f(*(x[name] for name in names)) for f in functions]

    def mean(inputs, training=False):
        return average(task.problem, [model(inputs)["logits"] for model in models])

    head = ensemble_head(task, len(members), decision)
    has_spans = task.kind == "question_answering"
    signatures = head.signatures(models if has_spans else mean)
    metadata = {**members[0].head, "decision": dict(decision)}
    first = dataclasses.replace(members[0], head=metadata)
    return serving.export_saved_model(signatures, folder, checkpoint=first)


if __name__ == "__main__":
    cli.run(main, EnsembleConfig)
