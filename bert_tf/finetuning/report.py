# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model answered against what is right, as a table and as a picture.

In: gold and predicted answers, N names or N numbers. Out: for names the precision,
recall and F1 of each and a confusion matrix; for numbers their quartiles and a
scatter plot.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import matplotlib.figure
import numpy as np
import sklearn.metrics

from bert_tf import storage

_NAMES_SHOWN = 30  # More are neither a table nor a picture that anybody reads.


def table(gold: Sequence, predicted: Sequence) -> str:
    """Returns the comparison for the terminal."""
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if not _are_numbers(gold):
        return sklearn.metrics.classification_report(
            *_frequent(gold, predicted), digits=4, zero_division=0
        )
    lines = [f"{'':10}{'minimum':>9}{'25 %':>9}{'median':>9}{'75 %':>9}{'maximum':>9}"]
    for name, values in (
        ("gold", gold),
        ("predicted", predicted),
        ("|error|", np.abs(predicted - gold)),
    ):
        quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
        lines.append(f"{name:10}" + "".join(f"{value:9.3f}" for value in quartiles))
    return "\n".join(lines) + "\n"


def plot(
    gold: Sequence, predicted: Sequence, *, title: str, path: pathlib.Path
) -> None:
    """Draws the comparison into a PNG file at `path`."""
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    figure = matplotlib.figure.Figure(layout="constrained")
    axes = figure.add_subplot(title=title)
    if _are_numbers(gold):
        axes.scatter(gold, predicted, s=12, alpha=0.4, linewidths=0)
        axes.axline((gold.mean(), gold.mean()), slope=1, color="gray", linewidth=1)
        axes.set(xlabel="gold", ylabel="predicted")
    else:
        gold, predicted = _frequent(gold, predicted)
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
    with storage.atomic_path(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=120)


def _are_numbers(values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.floating)


def _frequent(gold: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Puts all but the most frequent gold names together as "(others)"."""
    names, counts = np.unique(gold, return_counts=True)
    shown = names[np.argsort(-counts, kind="stable")[:_NAMES_SHOWN]]
    return [np.where(np.isin(v, shown), v, "(others)") for v in (gold, predicted)]
