# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports the results of an experiment as Markdown and as a plot.

Input: an `Experiment` and the scores of each table cell in percent, one per fine-tuning
run. Output: a table with the paper's scores beside ours, the differences between rows
compared with the paper's, and a PNG.
"""

from __future__ import annotations

import math
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import matplotlib.figure
import scipy.stats

from benchmarks.paper import Column, Experiment
from bert_tf import storage

# Scores of a cell by (row, column); NaN for diverged runs.
Scores = Mapping[tuple[int, int], Sequence[float]]

_SIGNIFICANCE = 0.05


class Difference(NamedTuple):
    """The difference between the scores of two rows.

    Attributes:
        description: The column and the two rows.
        ours: Our difference in points; for perplexities, in nats.
        paper: The paper's difference; NaN if it has none.
        unit: Unit of our difference, after a space; empty for points.
        is_significant: Result of a t-test. Without variance, any difference counts.
    """

    description: str
    ours: float
    paper: float
    unit: str
    is_significant: bool

    @property
    def verdict(self) -> str:
        if not self.is_significant:
            return "Not significant"
        if math.isnan(self.paper):
            return "Significant, without a number in the paper"
        if self.ours * self.paper > 0:
            return "Same direction as in the paper"
        return "Opposite direction to the paper"

    def __str__(self) -> str:
        digits = 2 if self.unit else 1
        paper = f" (paper {self.paper:+.{digits}f})"
        paper = "" if math.isnan(self.paper) else paper
        return f"{self.description}: {self.ours:+.{digits}f}{self.unit}{paper}"


def markdown(
    experiment: Experiment,
    scores: Scores,
    data_sets: Mapping[str, str],
    baselines: Mapping[str, float],
) -> str:
    """Returns the report as Markdown.

    Args:
        experiment: The experiment, with the columns that were run.
        scores: Scores of all cells.
        data_sets: Names of our data sets by those of the paper.
        baselines: Scores of the majority baseline by the paper's data sets.
    """
    header, ruler = ["| |"], ["|---|"]
    for column in experiment.columns:
        header.append(f" {_title(column, data_sets)} |")
        header.append(" paper |" if column.paper else "")
        ruler.append("---|---|" if column.paper else "---|")
    lines = ["".join(header), "".join(ruler)]
    for r, row in enumerate(experiment.rows):
        cells = [f"| {row.name} |"]
        for c, column in enumerate(experiment.columns):
            cells.append(f" {_cell(scores[r, c])} |")
            cells.append(f" {column.paper[r]} |" if column.paper else "")
        lines.append("".join(cells))
    cells = ["| *majority baseline* |"]
    for column in experiment.columns:
        baseline = baselines.get(column.data_set)
        cells.append(" |" if baseline is None else f" {baseline:.1f} |")
        cells.append(" |" if column.paper else "")
    lines.append("".join(cells))
    restarts = max(map(len, scores.values()))
    spread = (
        f"Mean ± standard deviation of {restarts} fine-tuning runs"
        if restarts > 1
        else "One fine-tuning run"
    )
    text = [
        f"## {experiment.title} ({experiment.source})",
        f"The paper's conclusion: {experiment.claim}",
        "\n".join(lines),
        f"{spread} of one pre-trained model per row, on dev, at the best epoch.",
    ]
    groups: dict[str, list[str]] = {}
    for difference in differences(experiment, scores):
        groups.setdefault(difference.verdict, []).append(f"- {difference}")
    for verdict, items in sorted(groups.items()):
        text.append(f"**{verdict}:**\n\n" + "\n".join(items))
    return "\n\n".join(text) + "\n"


def differences(experiment: Experiment, scores: Scores) -> Iterator[Difference]:
    """Yields the difference of each row from its reference row, for each column."""
    names = [row.name for row in experiment.rows]
    for c, column in enumerate(experiment.columns):
        for r, row in enumerate(experiment.rows):
            other = names.index(row.against) if row.against in names else 0
            if other == r:
                continue
            mine, theirs = (_compared(column, scores[i, c]) for i in (r, other))
            if not (mine and theirs):
                continue
            paper = math.nan
            if column.paper:
                before, after = _compared(column, [column.paper[i] for i in (other, r)])
                paper = after - before
            yield Difference(
                f"{column.name}, {row.name} against {names[other]}",
                statistics.mean(mine) - statistics.mean(theirs),
                paper,
                " nats" if column.lower_is_better else "",
                _are_different(mine, theirs),
            )


def plot(
    experiment: Experiment,
    scores: Scores,
    data_sets: Mapping[str, str],
    path: pathlib.Path,
) -> None:
    """Plots one panel per column and writes a PNG file."""
    count, places = len(experiment.columns), range(len(experiment.rows))
    has_lines = bool(experiment.x_label)
    height = 3.6 if has_lines else 1.4 + 0.32 * len(experiment.rows)
    width = 5 if has_lines else 2.8
    figure = matplotlib.figure.Figure(
        figsize=(max(6, 1.6 + width * count), height), layout="constrained"
    )
    panels = figure.subplots(1, count, squeeze=False, sharey=not has_lines)[0]
    for c, (axes, column) in enumerate(zip(panels, experiment.columns, strict=True)):
        axes.set_title(_title(column, data_sets), fontsize="medium")
        axes.grid(alpha=0.3)
        draw = _draw_lines if has_lines else _draw_differences
        draw(axes, experiment, column, [scores[r, c] for r in places])
    # One legend, in the panel with the most labels.
    most = max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[1]))
    if len(most.get_legend_handles_labels()[1]) > 1:
        most.legend(fontsize="small")
    with storage.atomic_path(path) as unfinished:
        figure.savefig(unfinished, format="png", dpi=120)


def _draw_lines(axes, experiment: Experiment, column: Column, cells) -> None:
    for line in dict.fromkeys(row.line for row in experiment.rows):
        points = sorted(
            (row.x, *_mean_and_deviation(_finite(cell)))
            for row, cell in zip(experiment.rows, cells, strict=True)
            if row.line == line
        )
        x, mean, deviation = zip(*points, strict=True)
        axes.errorbar(x, mean, deviation, marker="o", capsize=3, label=line)
    axes.set(xlabel=experiment.x_label, ylabel="score")


def _draw_differences(axes, experiment: Experiment, column: Column, cells) -> None:
    """Plots differences from the first row; the paper's scores have another level."""
    first = statistics.mean(_compared(column, cells[0]) or [math.nan])
    places = range(len(cells))
    values = [_mean_and_deviation(_compared(column, cell)) for cell in cells]
    axes.errorbar(
        [mean - first for mean, _ in values],
        places,
        xerr=[deviation for _, deviation in values],
        fmt="o",
        capsize=3,
        label="ours",
    )
    if column.paper:
        paper = _compared(column, column.paper)
        axes.plot(
            [value - paper[0] for value in paper],
            places,
            "D",
            markerfacecolor="none",
            label="paper",
        )
    axes.axvline(0, color="gray", linewidth=1)
    unit = "nats" if column.lower_is_better else "points"
    axes.set_xlabel(f"{unit} from {experiment.rows[0].name}", fontsize="small")
    axes.set_yticks(places, [row.name for row in experiment.rows])
    axes.set_ylim(len(cells) - 0.5, -0.5)


# --- Numbers ---------------------------------------------------------------------


def _title(column: Column, data_sets: Mapping[str, str]) -> str:
    here = data_sets.get(column.data_set, column.data_set)
    if here == column.data_set:
        return column.name
    return f"{here} for {column.name}"


def _cell(scores: Sequence[float]) -> str:
    finite = _finite(scores)
    mean, deviation = _mean_and_deviation(finite)
    text = f"{mean:.1f} ± {deviation:.1f}" if len(finite) > 1 else f"{mean:.1f}"
    diverged = len(scores) - len(finite)
    return f"{text}, {diverged} diverged" if diverged else text


def _finite(scores: Sequence[float]) -> list[float]:
    return [score for score in scores if math.isfinite(score)]


def _compared(column: Column, scores: Sequence[float]) -> list[float]:
    """Returns the values to compare: scores, or logarithms of perplexities."""
    finite = _finite(scores)
    return [math.log(score) for score in finite] if column.lower_is_better else finite


def _mean_and_deviation(scores: Sequence[float]) -> tuple[float, float]:
    if not scores:
        return math.nan, 0.0
    deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
    return statistics.mean(scores), deviation


def _are_different(some: Sequence[float], others: Sequence[float]) -> bool:
    if len({*some}) == len({*others}) == 1:  # No variance, no t-test.
        return some[0] != others[0]
    return scipy.stats.ttest_ind(some, others).pvalue < _SIGNIFICANCE
