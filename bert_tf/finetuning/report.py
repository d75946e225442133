# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the report of a fine-tuning: scores, curves, confusion matrix, errors."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf import data, training
from bert_tf.finetuning.task import Task
from bert_tf.lazy import lazy_import

metrics_of_sklearn = lazy_import("sklearn.metrics")

_ERRORS = 10
_CLASSES = 20  # Larger confusion matrices are not drawn.
_NO_TEXT = ("id", "prediction", "confidence", "gold", "probabilities")


def finetuning_report(
    task: Task, folder: pathlib.Path, metrics: Mapping[str, Any], tables: Mapping
) -> None:
    """Writes report.md and report.svg.

    Args:
        task: The task.
        folder: The model directory, with the predictions.
        metrics: The content of metrics.json.
        tables: Scores of each class as text, by split.
    """
    trained, split = metrics["training"], task.evaluation_splits[0]
    is_score = task.head.get("problem") == "regression"
    rows, pairs = _predictions(folder / f"predictions_{split}")
    epochs = [{"epoch": n, **row} for n, row in enumerate(trained["epochs"], start=1)]

    def error_size(row: Mapping[str, str]) -> float:
        if is_score:
            return abs(float(row["gold"]) - float(row["prediction"]))
        return float(row.get("confidence", 0)) * (row["gold"] != row["prediction"])

    def cells(row: Mapping[str, str]) -> list[str]:
        columns = [k for k in row if k not in _NO_TEXT and not k.startswith("P(")]
        text = " / ".join(row[name] for name in columns)
        return [text[:300], row["gold"], row["prediction"], row.get("confidence", "")]

    def draw_epochs(axes):
        names = ("loss", trained["metric"].replace(" ", "_"))
        training.report.plot(axes, epochs, "epoch", dict(zip(names, names)))

    def draw_predictions(axes):
        gold, predicted = zip(*pairs)
        if is_score:
            axes.scatter(np.float64(predicted), np.float64(gold), alpha=0.3)
            axes.set(xlabel="Predicted score", ylabel="True score")
        else:
            metrics_of_sklearn.ConfusionMatrixDisplay.from_predictions(
                gold, predicted, ax=axes, colorbar=False, xticks_rotation="vertical"
            )

    few = is_score or len({name for pair in pairs for name in pair}) <= _CLASSES
    errors = sorted(filter(error_size, rows), key=error_size, reverse=True)[:_ERRORS]
    scores = [
        (name, metric, f"{score:.4f}")
        for name in task.evaluation_splits
        for metric, score in metrics.get(name, {}).items()
    ]
    values = {
        **trained,
        "kind": task.kind,
        "split": split,
        "scores": training.report.table_rows(scores),
        "tables": "".join(f"\n```\n{x}:\n{text}```\n" for x, text in tables.items()),
        "errors": training.report.table_rows(map(cells, errors)),
    }
    template = pathlib.Path(__file__).with_name("finetuning_report.txt")
    panels = [draw_epochs, draw_predictions][: 1 + bool(pairs and few)]
    module, options = f"tasks.{task.kind}", task.options
    training.report.write_report(folder, template, module, options, values, panels)


def _predictions(path: pathlib.Path) -> tuple[list[dict], list[tuple[str, str]]]:
    """Returns the labeled rows of a table of predictions; labels and predictions."""
    if (tags := path.with_suffix(".conll")).exists():
        lines = tags.read_text(encoding="utf-8").split("\n")
        return [], [tuple(line.split()[-2:]) for line in lines if line.strip()]
    table = path.with_suffix(".tsv")
    rows = data.read_table(table) if table.exists() else []
    rows = [row for row in rows if {"gold", "prediction"} <= row.keys()]
    return rows, [(row["gold"], row["prediction"]) for row in rows]
