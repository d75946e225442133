# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the learning curves and the gains of pre-training in benchmarks/results.

    python -m benchmarks.figures

benchmarks/results/README.md has the hardware and the commands of the CSV files.
"""

from __future__ import annotations

import dataclasses
import pathlib

from bert_tf import cli, data
from bert_tf.lazy import lazy_import

matplotlib = lazy_import("matplotlib")
figure = lazy_import("matplotlib.figure")

_RESULTS = pathlib.Path(__file__).parent / "results"
_STYLE = {
    "svg.fonttype": "none",  # Text stays text.
    "svg.hashsalt": "bert_tf",  # The same file each time.
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Title -> column with its unit and scale; files with the labels of their curves.
_PANELS = {
    "BERT tiny, local attention": (
        ("val_loss", "held-out loss", 1),
        {"learning.csv": "{library}, {recipe} recipe"},
    ),
    "BERT mini": (
        ("val_mlm_accuracy", "held-out masked LM accuracy, %", 100),
        {
            "mini_bigram_64_128.csv": "rows of 64 and 128",
            "mini_bigram_long.csv": "rows of 32, 64 and 128",
            "mini_three_draws.csv": "rows of 64 and 128, three draws of pairs",
        },
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiguresConfig(cli.Options):
    """Options of `python -m benchmarks.figures`."""

    output: str = cli.option("docs", help="Folder of the pictures.")


def main(options: FiguresConfig) -> None:
    with matplotlib.rc_context(_STYLE):
        for name, draw in (("learning", _draw_learning), ("gain", _draw_gain)):
            drawing = figure.Figure(figsize=(10.5, 3.2), layout="constrained")
            draw(drawing)
            for axes in drawing.axes:
                axes.legend(frameon=False, fontsize=8)
                axes.grid(alpha=0.3)
            drawing.savefig(f"{options.output}/{name}.svg", metadata={"Date": None})


def _draw_learning(drawing: figure.Figure) -> None:
    all_axes = drawing.subplots(1, len(_PANELS))
    for axes, (title, (y, files)) in zip(all_axes, _PANELS.items(), strict=True):
        column, unit, scale = y
        for file, label in files.items():
            _plot(axes, file, label, column, scale)
        axes.set_title(title, fontsize=10)
        axes.set(xlabel="million tokens", ylabel=unit)


def _draw_gain(drawing: figure.Figure) -> None:
    """Draws a dot for each run of `benchmarks.gain`, in one line per data set."""
    axes, rows = drawing.subplots(), data.read_table(_RESULTS / "gain.csv")
    for weights, label in (("random", "random weights"), ("pretrained", "pre-trained")):
        runs = [row for row in rows if row["weights"] == weights]
        names = [row["data set"] for row in runs]
        axes.plot([float(row["score"]) for row in runs], names, "o", label=label)
    axes.set(xlabel="score, %", xlim=(0, 100))
    axes.invert_yaxis()


def _plot(axes, file: str, label: str, column: str, scale: float) -> None:
    """Plots the curves of a CSV file, one for each label."""
    rows = data.read_table(_RESULTS / file)
    for name in dict.fromkeys(label.format_map(row) for row in rows):
        curve = [row for row in rows if label.format_map(row) == name]
        tokens = [float(row["tokens"]) / 1e6 for row in curve]
        axes.plot(tokens, [scale * float(row[column]) for row in curve], label=name)


if __name__ == "__main__":
    cli.run(main, FiguresConfig)
