# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of predictions against gold labels, and of a training.

What a prediction is decides its table and plot:

    string          a class: precision, recall and F1 of each, and a confusion matrix
    list            the IOB2 tags of a sentence: the same metrics of each entity type,
                    and a plot of them
    tuple           the labels of a text: as for entity types
    floating point  a score: quartiles and a scatter plot
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.axes
import matplotlib.figure
import numpy as np
import sklearn.metrics
import sklearn.preprocessing

from bert_tf import storage

_MAX_CLASSES = 30  # Rarer classes are merged, so that tables and plots stay readable.


def prediction_table(gold: Sequence, predicted: Sequence) -> str:
    """Returns metrics of each class, or quartiles of the scores, as text."""
    if not _are_scores(gold):
        return _class_report(gold, predicted, digits=4)
    gold, predicted = np.asarray(gold), np.asarray(predicted)
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
    """Returns a confusion matrix, the scores of each class, or a scatter plot."""
    figure = matplotlib.figure.Figure(layout="constrained")
    axes = figure.add_subplot(title=title)
    if isinstance(gold[0], list | tuple):
        _plot_class_scores(axes, _class_report(gold, predicted, output_dict=True))
        return figure
    gold, predicted = np.asarray(gold), np.asarray(predicted)
    if _are_scores(gold):
        axes.scatter(gold, predicted, s=12, alpha=0.4, linewidths=0)
        axes.axline((gold.mean(), gold.mean()), slope=1, color="gray", linewidth=1)
        axes.set(xlabel="gold", ylabel="predicted")
        return figure
    gold, predicted = _merge_rare_classes(gold, predicted)
    names = np.unique(np.concatenate([gold, predicted]))
    counts = sklearn.metrics.confusion_matrix(gold, predicted, labels=names)
    in_gold = counts.any(axis=1)  # Other names have no row, only a column.
    counts = counts[in_gold]
    shares = counts / counts.sum(axis=1, keepdims=True)
    width, height = (max(3.0, 1.5 + 0.6 * size) for size in counts.shape[::-1])
    figure.set_size_inches(width, height)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        if share := shares[row, column]:
            color = "white" if share > 0.5 else "black"
            text = f"{count:,}\n{share:.0%}"
            axes.text(column, row, text, color=color, size=8, ha="center", va="center")
    rotation = 90 if max(map(len, names)) > 6 else 0
    axes.set_xticks(range(len(names)), names, rotation=rotation)
    axes.set_yticks(range(len(counts)), names[in_gold])
    axes.set(xlabel="predicted", ylabel="gold")
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


def _are_scores(values: Sequence) -> bool:
    return isinstance(values[0], float | np.floating)


def _class_report(gold: Sequence, predicted: Sequence, **options: Any) -> Any:
    """Returns scikit-learn's classification report; seqeval's for tags."""
    if isinstance(gold[0], list):
        # Its top level imports Keras' metrics.
        from seqeval.metrics.sequence_labeling import classification_report

        return classification_report(gold, predicted, zero_division=0, **options)
    if isinstance(gold[0], tuple):
        binarizer = sklearn.preprocessing.MultiLabelBinarizer().fit([*gold, *predicted])
        gold, predicted = map(binarizer.transform, (gold, predicted))
        options["target_names"] = binarizer.classes_
    else:
        gold, predicted = _merge_rare_classes(np.asarray(gold), np.asarray(predicted))
    return sklearn.metrics.classification_report(
        gold, predicted, zero_division=0, **options
    )


def _plot_class_scores(axes: matplotlib.axes.Axes, scores: Mapping[str, Any]) -> None:
    """Draws precision, recall and F1 of each class as bars."""
    classes = [name for name in scores if not name.endswith(" avg")]
    for offset, metric in enumerate(("precision", "recall", "f1-score")):
        positions = np.arange(len(classes)) + 0.27 * (offset - 1)
        values = [scores[name][metric] for name in classes]
        axes.barh(positions, values, height=0.25, label=metric)
    axes.figure.set_size_inches(7, max(3.0, 1.5 + 0.4 * len(classes)))
    supports = [f"{name} ({int(scores[name]['support']):,})" for name in classes]
    axes.set_yticks(range(len(classes)), supports)
    axes.set(xlim=(0, 1), xlabel="score", ylabel="class (gold count)")
    axes.invert_yaxis()
    axes.figure.legend(loc="outside lower center", ncols=3)


def _merge_rare_classes(gold: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    """Renames all but the most frequent classes to "(others)"."""
    names, counts = np.unique(np.concatenate([gold, predicted]), return_counts=True)
    kept = names[np.argsort(-counts, kind="stable")[:_MAX_CLASSES]]
    return [np.where(np.isin(v, kept), v, "(others)") for v in (gold, predicted)]
