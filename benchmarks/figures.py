# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/learning.svg from the numbers in benchmarks/results.

    python -m benchmarks.figures

benchmarks/results/README.md has the hardware and the commands of the CSV files.
"""

from __future__ import annotations

import csv
import pathlib

import matplotlib
from matplotlib import figure

_ROOT = pathlib.Path(__file__).parent.parent
_STYLE = {
    "svg.fonttype": "none",  # Text stays text.
    "svg.hashsalt": "bert_tf",  # The same file each time.
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# File -> label, and the column that labels several curves of a file.
_TINY = ("learning.csv", "{library}, {recipe} recipe")
_MINI = (
    ("mini_initialization.csv", "begins with {initialization}"),
    ("mini_longer_rows.csv", "local attention, rows of 32 to 128"),
    ("mini_bigram_rows.csv", "bigram model, rows of 32 to 128"),
)


def main() -> None:
    with matplotlib.rc_context(_STYLE):
        drawing = figure.Figure(figsize=(9, 3.4), layout="constrained")
        left, right = drawing.subplots(1, 2)
        _plot(left, *_TINY, "val_loss", 1)
        for file, label in _MINI:
            _plot(right, file, label, "val_mlm_accuracy", 100)
        left.set(title="BERT tiny", ylabel="held-out loss, masked LM + next sentence")
        right.set(title="BERT mini, short recipe", ylabel="held-out accuracy, %")
        for axes in (left, right):
            axes.set_xlabel("million tokens")
            axes.legend(frameon=False, fontsize=8)
            axes.grid(alpha=0.3)
        path = _ROOT / "docs" / "learning.svg"
        drawing.savefig(path, metadata={"Date": None})
        print(path)


def _plot(axes, file: str, label: str, column: str, scale: float) -> None:
    """Plots the curves of a CSV file, one for each label."""
    path = _ROOT / "benchmarks" / "results" / file
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for name in dict.fromkeys(label.format_map(row) for row in rows):
        curve = [row for row in rows if label.format_map(row) == name]
        tokens = [float(row["tokens"]) / 1e6 for row in curve]
        axes.plot(tokens, [scale * float(row[column]) for row in curve], label=name)


if __name__ == "__main__":
    main()
