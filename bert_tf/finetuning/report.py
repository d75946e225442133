# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes the report of a fine-tuning: scores, curves, confusion matrix, errors."""

from __future__ import annotations

import collections
import itertools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf import cli, training
from bert_tf.finetuning.task import Evaluation, Task
from bert_tf.lazy import lazy_import

metrics_of_sklearn = lazy_import("sklearn.metrics")

_ERRORS = 10
_CLASSES = 20  # Larger confusion matrices are not drawn.
_LARGEST = """
## Largest errors

On {split}: wrong predictions with the highest confidence, not all of one kind, or
scores that are far off.

{rows}
"""


def finetuning_report(
    task: Task,
    folder: pathlib.Path,
    trained: Mapping[str, Any],
    found: Mapping[str, Evaluation],
) -> None:
    """Writes report.md and report.svg.

    Args:
        task: The task.
        folder: The model directory.
        trained: The result of `train`.
        found: The evaluation of each split.
    """
    split = task.evaluation_splits[0]
    is_score = task.problem == "regression"
    rows = [row for row in task.rows(split, found[split].answers) if "gold" in row]
    pairs = [(row["gold"], str(row["prediction"])) for row in rows]
    epochs = [{"epoch": n, **row} for n, row in enumerate(trained["epochs"], start=1)]

    def error_size(row: Mapping[str, Any]) -> float:
        if is_score:  # Similarities have another scale than gold scores.
            is_similarity = "problem" not in task.settings
            return 0 if is_similarity else abs(float(row["gold"]) - row["prediction"])
        parts = str(row.get("confidence", 0.0)).split()  # A number, or several.
        is_correct = task.is_correct(row["gold"], row["prediction"])
        return np.prod(np.float64(parts)) * (not is_correct)

    kept, kinds = getattr(task.options, "kept", ()), collections.Counter()

    def is_repeated(row: Mapping[str, Any]) -> bool:
        """Whether two rows before have the same label and prediction."""
        kind = not is_score and (row["gold"], row["prediction"])
        kinds[kind] += 1
        return kinds[kind] > 2

    def cells(row: Mapping[str, Any]) -> list[Any]:
        texts = itertools.takewhile(lambda name: name != "prediction", row)
        text = " / ".join(str(row[name]) for name in texts if name not in ("id", *kept))
        parts = str(row.get("confidence", "")).split()
        confidence = " ".join(f"{float(part):.2f}" for part in parts)
        shown = (row[name] for name in ("id", *kept))
        return [*shown, text[:300], row["gold"], row["prediction"], confidence]

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
    errors = sorted(filter(error_size, rows), key=error_size, reverse=True)
    errors = sorted(errors, key=is_repeated)[:_ERRORS]
    errors.sort(key=error_size, reverse=True)
    columns = "id", *kept, "text", "label", "prediction", "confidence"
    scores = [
        (name, metric, f"{score:.4f}")
        for name in task.evaluation_splits
        for metric, score in found[name].metrics.items()
    ]
    errors = [columns, ["---"] * len(columns), *map(cells, errors)] if errors else []
    values = {
        **trained,
        "program": cli.program(type(task)),
        "split": split,
        "scores": training.report.table_rows(scores),
        "tables": "".join(
            f"\n```\n{name}:\n{x.report}```\n" for name, x in found.items() if x.report
        ),
        "errors": _LARGEST.format(split=split, rows=training.report.table_rows(errors))
        * bool(errors),
    }
    template = pathlib.Path(__file__).with_name("finetuning_report.txt")
    panels = [draw_epochs, draw_predictions][: 1 + bool(pairs and few)]
    program = values["program"]
    training.report.write_report(
        folder, template, program, task.options, values, panels
    )
