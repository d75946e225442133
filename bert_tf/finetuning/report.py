# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of predictions against gold labels, and of a training."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np
import sklearn.metrics
import sklearn.preprocessing

from bert_tf import storage

_MAX_CLASSES = 30  # Rarer classes are merged, so that tables and plots stay readable.


def prediction_table(kind: str, gold: Sequence, predicted: Sequence) -> str:
    """Returns precision, recall and F1 of each class, or quartiles of scores, as text.

    Args:
        kind: `Task.target_kind`, which says what the labels are.
        gold: Gold labels.
        predicted: As many predictions.
    """
    report = sklearn.metrics.classification_report
    options = {"digits": 4, "zero_division": 0}
    if kind == "score":
        gold, predicted = np.asarray(gold), np.asarray(predicted)
        rows = {"gold": gold, "predicted": predicted, "|error|": abs(predicted - gold)}
        names = ("", "minimum", "25 %", "median", "75 %", "maximum")
        lines = ["{:10}{:>9}{:>9}{:>9}{:>9}{:>9}".format(*names)]
        for name, values in rows.items():
            quartiles = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
            lines.append(f"{name:10}" + "".join(f"{value:9.3f}" for value in quartiles))
        return "\n".join(lines) + "\n"
    if kind == "tags":
        # seqeval's top level imports Keras' metrics.
        from seqeval.metrics.sequence_labeling import classification_report as report
    elif kind == "labels":
        binarizer = sklearn.preprocessing.MultiLabelBinarizer().fit([*gold, *predicted])
        gold, predicted = map(binarizer.transform, (gold, predicted))
        options["target_names"] = binarizer.classes_
    else:
        gold, predicted = _merge_rare_classes(gold, predicted)
    return report(gold, predicted, **options)


def prediction_plot(
    kind: str, gold: Sequence, predicted: Sequence
) -> matplotlib.figure.Figure | None:
    """Returns a confusion matrix of classes, or a scatter plot of scores.

    For tags and labels there is no plot, only the table.
    """
    if kind in ("tags", "labels"):
        return None
    figure = matplotlib.figure.Figure(layout="constrained")
    axes = figure.add_subplot(xlabel="predicted", ylabel="gold")
    if kind == "score":
        axes.scatter(predicted, gold, s=12, alpha=0.4, linewidths=0)
        axes.axline((np.mean(gold), np.mean(gold)), slope=1, color="gray")
        return figure
    gold, predicted = _merge_rare_classes(gold, predicted)
    size = 3 + 0.6 * len({*gold, *predicted})
    figure.set_size_inches(size, size)
    sklearn.metrics.ConfusionMatrixDisplay.from_predictions(
        gold,
        predicted,
        normalize="true",
        values_format=".0%",
        xticks_rotation="vertical",
        cmap="Blues",
        colorbar=False,
        ax=axes,
    )
    return figure


def learning_plot(training: Mapping[str, Any]) -> matplotlib.figure.Figure:
    """Returns the loss and the score on the dev set after each epoch.

    Args:
        training: The metrics of the training; see `train.train`.
    """
    history, metric = training["epochs"], training["metric"]
    epochs = range(1, len(history) + 1)
    figure = matplotlib.figure.Figure(figsize=(8, 3.5), layout="constrained")
    curves = {"training loss": "loss", metric: metric.replace(" ", "_")}
    for axes, (title, name) in zip(figure.subplots(1, 2), curves.items()):
        axes.plot(epochs, [row[name] for row in history], marker="o")
        axes.set(title=title, xlabel="epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    best = training["best_epoch"]
    axes.axvline(best, color="gray", linewidth=1, linestyle="--", label="kept")
    axes.legend()
    return figure


def write_plot(figure: matplotlib.figure.Figure, path: pathlib.Path) -> None:
    """Writes a PNG file atomically."""
    with storage.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def _merge_rare_classes(gold: Sequence, predicted: Sequence) -> list[np.ndarray]:
    """Renames all but the most frequent classes to "(others)"."""
    names, counts = np.unique(np.concatenate([gold, predicted]), return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MAX_CLASSES]]
    return [np.where(np.isin(v, kept), v, "(others)") for v in (gold, predicted)]
