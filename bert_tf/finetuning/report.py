# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of predictions against gold labels, and the table of a sweep.

Strings are classes: precision, recall and F1 of each, and a confusion matrix. Floating
point numbers are scores: their quartiles, and a scatter plot.
"""

from __future__ import annotations

import collections
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import sklearn.metrics

from bert_tf import storage

_MAX_CLASSES = 30  # Rarer classes are merged, so that tables and plots stay readable.


def prediction_table(gold: Sequence, predicted: Sequence) -> str:
    """Returns metrics of each class, or quartiles of the scores, as text."""
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if not _are_scores(gold):
        return sklearn.metrics.classification_report(
            *_merge_rare_classes(gold, predicted), digits=4, zero_division=0
        )
    lines = [f"{'':10}{'minimum':>9}{'25 %':>9}{'median':>9}{'75 %':>9}{'maximum':>9}"]
    error = np.abs(predicted - gold)
    rows = {"gold": gold, "predicted": predicted, "|error|": error}
    for name, values in rows.items():
        quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
        lines.append(f"{name:10}" + "".join(f"{value:9.3f}" for value in quartiles))
    return "\n".join(lines) + "\n"


def prediction_plot(
    gold: Sequence, predicted: Sequence, title: str
) -> matplotlib.figure.Figure:
    """Returns a row-normalized confusion matrix, or a scatter plot of scores."""
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    figure = matplotlib.figure.Figure(layout="constrained")
    axes = figure.add_subplot(title=title)
    if _are_scores(gold):
        axes.scatter(gold, predicted, s=12, alpha=0.4, linewidths=0)
        axes.axline((gold.mean(), gold.mean()), slope=1, color="gray", linewidth=1)
        axes.set(xlabel="gold", ylabel="predicted")
        return figure
    gold, predicted = _merge_rare_classes(gold, predicted)
    names = np.unique(np.concatenate([gold, predicted]))
    side = max(4.0, 1.5 + 0.5 * len(names))
    figure.set_size_inches(side + 1, side)
    sklearn.metrics.ConfusionMatrixDisplay.from_predictions(
        gold,
        predicted,
        normalize="true",
        values_format=".0%" if len(names) > 3 else ".1%",
        cmap="Blues",
        im_kw={"vmin": 0, "vmax": 1},
        xticks_rotation=90 if len(names) > 3 else 0,
        ax=axes,
    )
    axes.set(xlabel="predicted", ylabel="gold")
    return figure


def write_plot(figure: matplotlib.figure.Figure, path: pathlib.Path) -> None:
    """Writes a PNG file atomically."""
    with storage.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def sweep_table(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """Returns mean and standard deviation of the scores over the seeds, as text.

    Args:
        rows: The rows of `runs.tsv`: `score`, `state`, `seconds`, and the options in
            which the runs differ.
        metric: Name of the score.
    """
    groups = collections.defaultdict(list)
    names = [n for n in rows[0] if n not in ("seed", "score", "state", "seconds")]
    for row in rows:
        groups[tuple(str(row[name]) for name in names)].append(row)
    table = [[*names, f"{metric}, mean ± sd", "best", "runs"]]
    for settings, group in groups.items():
        scores = [row["score"] for row in group if row["state"] != "diverged"]
        states = collections.Counter(row["state"] for row in group if row["state"])
        counts = [str(len(group)), *(f"{n} {state}" for state, n in states.items())]
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        mean = f"{statistics.mean(scores):.4f}{spread}" if scores else "-"
        best = f"{max(scores):.4f}" if scores else "-"
        table.append([*settings, mean, best, ", ".join(counts)])
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in table
    )


def _are_scores(values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.floating)


def _merge_rare_classes(gold: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Renames all but the most frequent gold classes to "(others)"."""
    names, counts = np.unique(gold, return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MAX_CLASSES]]
    return [np.where(np.isin(v, kept), v, "(others)") for v in (gold, predicted)]
