# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of README and docs, from the numbers in benchmarks/results.

    python -m benchmarks.figures --output=docs

Writes pipeline.svg, learning.svg and latency.svg. The CSV files have what the
benchmarks printed; benchmarks/results/README.md has their hardware and commands.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import pathlib

from bert_tf import cli
from bert_tf.lazy import lazy_import

matplotlib = lazy_import("matplotlib")
figure = lazy_import("matplotlib.figure")
patches = lazy_import("matplotlib.patches")

RESULTS = pathlib.Path(__file__).parent / "results"
_PEERS = ("ONNX Runtime", "OpenVINO", "torch")
_BLUE, _ORANGE, _GREEN, _GRAY = "#3b6fb5", "#d9822b", "#4b9b5f", "#8a8a8a"
_STYLE = {
    "svg.fonttype": "none",  # Text stays text.
    "svg.hashsalt": "bert_tf",  # The same file each time.
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "DejaVu Sans"],
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiguresConfig(cli.Options):
    """Options of `python -m benchmarks.figures`."""

    output: str = cli.option("docs", help="Folder for the pictures.")


def main(options: FiguresConfig) -> None:
    """Writes the pictures."""
    for draw in (pipeline, learning, latency):
        with matplotlib.rc_context(_STYLE):
            path = pathlib.Path(options.output) / f"{draw.__name__}.svg"
            draw().savefig(path, metadata={"Date": None})
            print(path)


def read(name: str) -> list[dict[str, str]]:
    """Returns the rows of a CSV file in benchmarks/results."""
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# --- Pipeline --------------------------------------------------------------------

# Rows of (x, text, command that writes the box to its right).
_STATIONS = {
    "text files": "vocab, corpus",
    "records": "pretrain",
    "model directory:\na Hugging Face folder": "export",
    "SavedModel with\nits tokenizer": "TensorFlow\nServing",
    "strings in,\nanswers out": "",
}
_X = (0, 2.5, 4.8, 8.1, 11.2)
_WIDTH = (1.2, 1.1, 2.0, 1.7, 1.4)


def pipeline() -> figure.Figure:
    """Returns the way of the data: folders as boxes, commands as arrows."""
    drawing = figure.Figure(figsize=(9, 2.6))
    axes = drawing.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-0.1, 12.7), ylim=(0, 3.6))
    axes.axis("off")

    def box(x, y, width, text, color):
        style = "round,pad=0.02,rounding_size=0.12"
        size = {"width": width, "height": 0.8, "boxstyle": style}
        axes.add_patch(
            patches.FancyBboxPatch((x, y), **size, facecolor=color, edgecolor=_GRAY)
        )
        axes.text(x + width / 2, y + 0.4, text, ha="center", va="center", fontsize=9)

    def arrow(start, end, text="", at=None, style="-|>"):
        line = {"arrowstyle": style, "color": _BLUE, "shrinkA": 3, "shrinkB": 3}
        axes.annotate("", end, start, arrowprops=line)
        x, y = at or ((start[0] + end[0]) / 2, start[1] + 0.12)
        axes.text(x, y, text, ha="center", va="bottom", fontsize=8.5, color=_BLUE)

    for x, width, text in zip(_X, _WIDTH, _STATIONS, strict=True):
        box(x, 1.4, width, text, "#fff3d6")
    gaps = zip(itertools.pairwise(_X), _WIDTH, _STATIONS.values(), strict=False)
    for (x, next_x), width, command in gaps:
        arrow((x + width, 1.8), (next_x, 1.8), command)
    center = _X[2] + _WIDTH[2] / 2
    projects = (
        "in and out: transformers, sentence-transformers, KerasHub\n"
        "in: google-research/bert, Model Garden"
    )
    box(center - 2.7, 2.75, 5.4, projects, "#e4eefb")
    arrow((center, 2.25), (center, 2.75), "convert", (center + 0.55, 2.36), "<|-|>")
    box(_X[2], 0.1, _WIDTH[2], "your tables", "#fff3d6")
    arrow((center, 0.95), (center, 1.35), "tasks", (center + 0.45, 1.0))
    return drawing


# --- Learning --------------------------------------------------------------------


def learning() -> figure.Figure:
    """Returns held-out losses against tokens."""
    drawing = figure.Figure(figsize=(9, 3.4), layout="constrained")
    left, right = drawing.subplots(1, 2)
    rows = read("learning.csv")
    names = sorted({(row["recipe"], row["library"]) for row in rows}, reverse=True)
    colors = {"short": _BLUE, "paper": _GREEN}
    for recipe, library in names:
        curve = [r for r in rows if (r["recipe"], r["library"]) == (recipe, library)]
        ours = library == "bert_tf"
        _plot(
            left,
            curve,
            "val_loss",
            label=f"{library}, {recipe} recipe",
            color=colors[recipe] if ours else _ORANGE,
            linewidth=1.5 if ours else 4,
            alpha=1 if ours else 0.6,
        )
    left.set_ylabel("held-out loss, masked LM + next sentence")
    left.set_title("BERT tiny", fontsize=10)
    runs = {
        "mini_wikipedia_books": ("64, 128 tokens per row", _ORANGE),
        "mini_longer_rows": ("32, 64, 128 tokens per row", _BLUE),
        "mini_identity_layers": ("32, 64, 128, identity_layers", _GREEN),
    }
    for name, (label, color) in runs.items():
        _plot(right, read(f"{name}.csv"), "val_mlm_loss", label=label, color=color)
    right.set_ylabel("held-out masked LM loss")
    right.set_title("BERT mini, short recipe", fontsize=10)
    for axes in (left, right):
        axes.set_xlabel("million tokens")
        axes.legend(frameon=False, fontsize=8)
        axes.grid(alpha=0.3)
    return drawing


def _plot(axes, curve: list[dict[str, str]], column: str, **style) -> None:
    tokens = [float(row["tokens"]) / 1e6 for row in curve]
    axes.plot(tokens, [float(row[column]) for row in curve], **style)


# --- Latency ---------------------------------------------------------------------


def latency() -> figure.Figure:
    """Returns the latency of one and of 32 texts, beside that of other runtimes."""
    drawing = figure.Figure(figsize=(9, 2.6), layout="constrained")
    settings = {("bert_tf", "1")} | {(p, "default") for p in _PEERS}
    rows = [
        row
        for row in read("serving_latency.csv")
        if (row["processor"], row["cores"]) == ("AMD Zen 3", "2")
        and (row["implementation"], row["threads_within_ops"]) in settings
    ]
    for axes, texts in zip(drawing.subplots(1, 2), ("1", "32"), strict=True):
        chosen = [row for row in rows if row["texts"] == texts]
        names = [f"{row['implementation']}, {row['precision']}" for row in chosen]
        names = [name.replace("mixed_", "") for name in names]
        values = [float(row["p50_ms"]) for row in chosen]
        ours = [row["implementation"] == "bert_tf" for row in chosen]
        colors = [_BLUE if own else "#c3c9d1" for own in ours]
        bars = axes.barh(names, values, color=colors)
        axes.bar_label(bars, [row["p50_ms"] for row in chosen], padding=3, fontsize=9)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.tick_params(labelsize=9)
        title = f"{texts} text{'s' if texts != '1' else ''} per request"
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("p50, milliseconds, two cores")
    return drawing


if __name__ == "__main__":
    cli.run(main, FiguresConfig)
