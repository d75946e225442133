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
import json
import math
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert_tf import data
from bert_tf.lazy import lazy_import

from .runs import Run

figure = lazy_import("matplotlib.figure")
ticker = lazy_import("matplotlib.ticker")
stats = lazy_import("scipy.stats")

_PAPER, _OURS = "#c44e52", "#4c72b0"


class Cell(NamedTuple):
    """Scores of the restarts, NaN for failed ones, and the paper's score if any."""

    scores: Sequence[float]
    paper: float | None = None


@dataclasses.dataclass
class Table:
    """A table to report.

    Attributes:
        name: The name of its files.
        title: Its heading.
        claim: What the paper concludes, and what else a reader must know.
        cells: Cells by row and column. Row and column may be names of any kind.
        lower_is_better: The columns in which it is. They are plotted on a log scale.
        x_label: The label of the x axis if rows are numbers and columns lines.
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
        self.cells[row, column] = Cell(tuple(scores), paper)

    @property
    def rows(self) -> list[Any]:
        return list(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for _, column in self.cells))


def mean_and_interval(scores: Iterable[float]) -> tuple[float, float]:
    """Returns the mean of the finite scores and half of its 95 % confidence interval.

    The interval of fewer than two scores is NaN, as is the mean of none.
    """
    finite = [score for score in scores if math.isfinite(score)]
    if len(finite) < 2:
        return (finite or [math.nan])[0], math.nan
    error = statistics.stdev(finite) / len(finite) ** 0.5
    return statistics.mean(finite), float(stats.t.ppf(0.975, len(finite) - 1) * error)


def difference(some: Iterable[float], others: Iterable[float]) -> tuple[float, float]:
    """Returns the difference of the means and half of its 95 % interval (Welch)."""
    pair = [[x for x in scores if math.isfinite(x)] for scores in (some, others)]
    if min(map(len, pair)) < 2:
        return mean_and_interval(pair[0])[0] - mean_and_interval(pair[1])[0], math.nan
    interval = stats.ttest_ind(*pair, equal_var=False).confidence_interval()
    return (interval.high + interval.low) / 2, (interval.high - interval.low) / 2


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
    header, lines = [""], []
    has_paper = {
        column: any(
            cell.paper is not None
            for (_, c), cell in table.cells.items()
            if c == column
        )
        for column in table.columns
    }
    for column in table.columns:
        header += [column, "paper"] if has_paper[column] else [column]
    for row in table.rows:
        line = [str(row)]
        for column in table.columns:
            cell = table.cells.get((row, column), Cell(()))
            line.append(format_cell(cell))
            if has_paper[column]:
                line.append("" if cell.paper is None else f"{cell.paper:g}")
        lines.append(line)
    restarts = {len(cell.scores) for cell in table.cells.values() if cell.scores}
    counts = "1" if restarts <= {1} else f"{min(restarts)} to {max(restarts)}"
    counts = str(max(restarts)) if len(restarts) == 1 else counts
    note = f"Restarts per cell: {counts}."
    if max(restarts, default=0) > 1:
        note = f"Mean of the restarts ± its 95 % confidence interval. {note}"
    rows = [header, ["---"] * len(header), *lines]
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
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
    path.with_suffix(".md").write_text(
        f"{text}\n![{table.title}]({table.name}.svg)\n", encoding="utf-8"
    )
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
    path.with_suffix(".svg").write_text(draw(table), encoding="utf-8")
    return text


# --- Plots -----------------------------------------------------------------------


def draw(table: Table) -> str:
    """Returns an SVG: restarts as dots, means with their intervals, the paper's.

    The scale of a panel is ours. A diamond is where the row would be if it differed
    from the first row as in the paper: by a difference, or by a factor if lower is
    better.
    """
    columns, rows = table.columns, table.rows
    if table.x_label:
        picture = figure.Figure(figsize=(6, 4), layout="constrained")
        _draw_lines(picture.subplots(), table)
    else:
        size = (1.6 + 2.6 * len(columns), 1.3 + 0.38 * len(rows))
        picture = figure.Figure(figsize=size, layout="constrained")
        panels = picture.subplots(1, len(columns), squeeze=False, sharey=True)[0]
        for axes, column in zip(panels, columns):
            _draw_column(axes, table, column)
        panels[0].set_yticks(range(len(rows)), [str(row) for row in rows])
        panels[0].set_ylim(len(rows) - 0.5, -0.5)
        handles = {
            label: handle
            for axes in panels
            for handle, label in zip(*axes.get_legend_handles_labels())
        }
        picture.legend(
            handles.values(), handles.keys(), loc="outside lower center",
            ncols=len(handles), frameon=False, fontsize="small",
        )  # fmt: skip
    stream = io.StringIO()
    picture.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


def _draw_column(axes: Any, table: Table, column: str) -> None:
    is_log = column in table.lower_is_better
    cells = {
        place: table.cells[row, column]
        for place, row in enumerate(table.rows)
        if (row, column) in table.cells
    }
    for place, cell in cells.items():
        axes.plot(
            cell.scores, [place] * len(cell.scores), "o", color=_OURS, alpha=0.3,
            markersize=4, label="restarts",
        )  # fmt: skip
        mean, interval = mean_and_interval(cell.scores)
        error = None if math.isnan(interval) else interval
        axes.errorbar(
            mean, place, xerr=error, fmt="|", color=_OURS, markersize=12, capsize=3,
            label="mean, 95 % interval",
        )  # fmt: skip
    paper = {
        place: cell.paper for place, cell in cells.items() if cell.paper is not None
    }
    if paper:
        first = min(paper)
        ours = mean_and_interval(cells[first].scores)[0]
        moved = {
            place: ours * x / paper[first] if is_log else ours + x - paper[first]
            for place, x in paper.items()
        }
        axes.plot(
            moved.values(), moved.keys(), "D", color=_PAPER, markerfacecolor="none",
            label="the paper's difference from its first row",
        )  # fmt: skip
    axes.set_title(column, fontsize="medium")
    if is_log:
        axes.set_xscale("log")
        axes.xaxis.set(
            major_locator=ticker.MaxNLocator(4),
            major_formatter="{x:g}",
            minor_locator=ticker.NullLocator(),
        )
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_lines(axes: Any, table: Table) -> None:
    for column in table.columns:
        cells: Mapping[Any, Cell] = {
            row: cell for (row, c), cell in table.cells.items() if c == column
        }
        means = [mean_and_interval(cell.scores) for cell in cells.values()]
        lower, upper = zip(
            *((mean - (e or 0), mean + (e or 0)) for mean, e in means), strict=True
        )
        (line,) = axes.plot(cells.keys(), [m for m, _ in means], "o-", label=column)
        axes.fill_between(
            list(cells), lower, upper, color=line.get_color(), alpha=0.15, linewidth=0
        )
    axes.set(xlabel=table.x_label, ylabel="score")
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
