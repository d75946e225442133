# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports an experiment: a Markdown table beside the paper's numbers, a plot, a CSV.

    table = Table("masking", "Masking (table 8)", claim="Fine-tuning is robust ...")
    table.add("80/10/10", "MNLI", scores=[81.2, 81.9, 80.7], paper=84.2)
    table.add("100/0/0", "MNLI", scores=[81.0, 82.4, 81.1], paper=84.3)
    print(write(table, "results", runs.used.values()))

A cell has the scores of several restarts. Tables show their mean, with the 95 %
confidence interval of the mean by Student's t-distribution.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bert_tf import data
from bert_tf.lazy import lazy_import

from .runs import Run

figure = lazy_import("matplotlib.figure")
stats = lazy_import("scipy.stats")

_PAPER, _OURS = "#c44e52", "#4c72b0"


class Cell(NamedTuple):
    """Scores of the restarts, NaN for failed ones, and the paper's score if any."""

    scores: Sequence[float] = ()
    paper: float | None = None


@dataclasses.dataclass
class Table:
    """A table to report.

    Attributes:
        name: The name of its files.
        title: Its heading.
        claim: What the paper concludes, and what else a reader must know.
        cells: Cells by row and column. Row and column may be names of any kind.
        lower_is_better: The columns in which it is.
        x_label: The label of the x axis if rows are its values and columns lines.
    """

    name: str
    title: str
    claim: str = ""
    cells: dict[tuple[Any, str], Cell] = dataclasses.field(default_factory=dict)
    lower_is_better: frozenset[str] = frozenset()
    x_label: str = ""

    def add(
        self, row: Any, column: str, scores: Iterable[float], paper: float | None = None
    ) -> None:
        before = self.cells.get((row, column), Cell()).scores
        self.cells[row, column] = Cell((*before, *scores), paper)

    @property
    def rows(self) -> list[Any]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> dict[str, list[Cell]]:
        """The cells of each column, in the order of `rows`; empty ones are missing."""
        names = dict.fromkeys(column for _, column in self.cells)
        return {x: [self.cells.get((y, x), Cell()) for y in self.rows] for x in names}


def mean_and_interval(scores: Iterable[float]) -> tuple[float, float]:
    """Returns the mean of the finite scores and half of its 95 % confidence interval.

    The interval of fewer than two scores is NaN, as is the mean of none.
    """
    finite = [score for score in scores if math.isfinite(score)]
    if len(finite) < 2:
        return (finite or [math.nan])[0], math.nan
    error = statistics.stdev(finite) / len(finite) ** 0.5
    return statistics.mean(finite), float(stats.t.ppf(0.975, len(finite) - 1) * error)


def format_cell(cell: Cell) -> str:
    """Returns e.g. `81.3 ± 0.9`, with the number of restarts that failed."""
    mean, interval = mean_and_interval(cell.scores)
    if math.isnan(mean):
        return "failed" if cell.scores else ""
    text = f"{mean:.1f}" + ("" if math.isnan(interval) else f" ± {interval:.1f}")
    failed = sum(not math.isfinite(score) for score in cell.scores)
    return text + f", {failed} failed" * bool(failed)


def markdown(table: Table) -> str:
    """Returns the table beside the paper's numbers, and what its numbers are."""
    columns = [["", *map(str, table.rows)]]
    for column, cells in table.columns.items():
        columns.append([column, *map(format_cell, cells)])
        paper = ["" if cell.paper is None else f"{cell.paper:g}" for cell in cells]
        columns += [["paper", *paper]] if any(paper) else []
    header, *rows = zip(*columns)
    rows = header, ["---"] * len(header), *rows
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    counts = {len(cell.scores) for cell in table.cells.values() if cell.scores} or {1}
    limits = " to ".join(map(str, sorted({min(counts), max(counts)})))
    note = f"Restarts per cell: {limits}."
    if max(counts) > 1:
        note = f"Mean of the restarts ± its 95 % confidence interval. {note}"
    parts = f"## {table.title}", table.claim, body, note
    return "\n\n".join(filter(None, parts)) + "\n"


def write(table: Table, folder: str | pathlib.Path, used: Iterable[Run]) -> str:
    """Writes `<name>.md`, `<name>.svg` and `<name>.csv`, with a row per run.

    Args:
        table: The table.
        folder: Where to write.
        used: The runs of the table, `Runs.used`.

    Returns:
        The Markdown.
    """
    path, text = pathlib.Path(folder, table.name), markdown(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    image = f"\n![{table.title}]({table.name}.svg)\n"
    path.with_suffix(".md").write_text(text + image, encoding="utf-8")
    path.with_suffix(".svg").write_text(draw(table), encoding="utf-8")
    rows = [
        {
            "command": run.command,
            "encoder": run.encoder,
            "score": round(run.score, 3),
            "scores": json.dumps(run.scores),
            "failure": run.failure,
            "seconds": round(run.seconds),
            "folder": "/".join(run.path.parts[-2:]),
            "options": json.dumps(dict(run.options)),
        }
        for run in used
    ]
    data.write_table(path.with_suffix(".csv"), rows)
    return text


def draw(table: Table) -> str:
    """Returns an SVG: restarts as dots, means with their intervals, the paper's.

    The scale of a panel is ours. A diamond is where the row would be if it differed
    from the first row as in the paper: by a difference, or by a factor if lower is
    better.
    """
    columns, rows = table.columns, table.rows
    count = 1 if table.x_label else max(1, len(columns))
    are_names = isinstance(rows[0], str)  # Between them, a line has no meaning.
    size = (
        (6, 6 if are_names else 4)
        if table.x_label
        else (1.6 + 2.6 * count, 1.3 + 0.38 * len(rows))
    )
    picture = figure.Figure(figsize=size, layout="constrained")
    panels, handles = picture.subplots(1, count, squeeze=False, sharey=True)[0], {}
    for axes, (column, cells) in zip(itertools.cycle(panels), columns.items()):
        means, errors = zip(*(mean_and_interval(cell.scores) for cell in cells))
        axes.grid(axis="both" if table.x_label else "x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        if table.x_label:
            style = {"fmt": "o" if are_names else "o-", "capsize": 3}
            handles[column] = axes.errorbar(rows, means, errors, **style)
            axes.set(xlabel=table.x_label, ylabel="score")
            axes.tick_params("x", rotation=90 * are_names)
            continue
        axes.set_title(column, fontsize="medium")
        axes.set_yticks(range(len(rows)), map(str, rows))
        axes.set_ylim(len(rows) - 0.5, -0.5)
        dots = [(x, y) for y, cell in enumerate(cells) for x in cell.scores]
        (handles["restarts"],) = axes.plot(*zip(*dots), "o", color=_OURS, alpha=0.3)
        style = {"fmt": "|", "color": _OURS, "markersize": 12, "capsize": 3}
        bars = axes.errorbar(means, range(len(rows)), xerr=errors, **style)
        handles["mean, 95 % interval"] = bars
        paper = {y: x.paper for y, x in enumerate(cells) if x.paper is not None}
        if paper:
            ours, theirs = means[min(paper)], paper[min(paper)]
            if column in table.lower_is_better:
                moved = [ours * (x / theirs) for x in paper.values()]
            else:
                moved = [ours + (x - theirs) for x in paper.values()]
            style = {"color": _PAPER, "markerfacecolor": "none"}
            (diamonds,) = axes.plot(moved, [*paper], "D", **style)
            handles["the paper's difference from its first row"] = diamonds
    style = {"ncols": 2 if table.x_label else 3, "frameon": False, "fontsize": "small"}
    picture.legend(handles.values(), handles, loc="outside lower center", **style)
    stream = io.StringIO()
    picture.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()
