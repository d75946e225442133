# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes reports of trainings: report.md, a page of results, and report.svg, its plots.

The texts are in templates, `*_report.txt`, next to the modules that fill them in.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import cli, storage, text_files
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer
from bert_tf.text import Vocabulary
from bert_tf.training.pretrain_config import Phase, PretrainConfig

figure = lazy_import("matplotlib.figure")
matplotlib = lazy_import("matplotlib")

_EXAMPLES = 8
_CONTEXT = 8  # Tokens on each side of the mask of an example.


def write_report(
    folder: pathlib.Path,
    template: pathlib.Path,
    program: str,
    options: cli.Options,
    values: Mapping[str, Any],
    panels: Sequence[Callable[[Any], None]],
) -> None:
    """Writes report.md and report.svg to a local folder.

    Args:
        folder: Where to write.
        template: Markdown with fields, as in `str.format`. `output` and `name`, that of
            the folder, are quoted for a shell.
        program: That of the training, for example `python -m bert_tf.pretrain`.
        options: Its options.
        values: The values of the other fields, and the `seconds` of the training.
        panels: Each draws one plot on the `matplotlib.axes.Axes` that it gets.
    """
    picture = figure.Figure(figsize=(5 * len(panels), 4), layout="constrained")
    # Names of classes may have dollars, as in $10-$20.
    with matplotlib.rc_context({"text.parse_math": False}):
        for axes, draw in zip(
            picture.subplots(1, len(panels), squeeze=False)[0], panels
        ):
            draw(axes)
    with storage.atomic_path(folder / "report.svg") as path:
        picture.savefig(path, format="svg", metadata={"Date": None})
    fields = {
        "name": shlex.quote(os.path.basename(options.output.rstrip("/"))),
        "output": shlex.quote(options.output),
        "command": command(program, options),
        "minutes": values["seconds"] / 60,
        "devices": ", ".join(keras.distribution.list_devices()),
    }
    page = template.read_text(encoding="utf-8").format_map({**values, **fields})
    text_files.write_text(str(folder / "report.md"), page)


def table_rows(rows: Iterable[Iterable[Any]]) -> str:
    """Returns rows of a table in Markdown."""
    escaped = ([str(x).replace("|", "\\|") for x in row] for row in rows)
    return "\n".join(" ".join(f"| {' | '.join(row)} |".split()) for row in escaped)


def command(program: str, options: cli.Options) -> str:
    """Returns the command line with the flags that differ from their defaults."""
    line = []
    for field in dataclasses.fields(options):
        if (value := getattr(options, field.name)) != field.default:
            values = value if isinstance(value, tuple) else (value,)
            name = field.name.removesuffix("_")
            line.append(f"--{name}={','.join(map(str, values))}")
    return f"{program} {shlex.join(line)}"


def plot(axes: Any, rows: Sequence[Mapping], x: str, y: Mapping[str, str]) -> None:
    """Plots the columns `y` of `rows`, given with their labels, against column `x`."""
    for name, label in y.items():
        values = [row[name] for row in rows]
        axes.plot([row[x] for row in rows], values, marker=".", label=label)
    axes.set_xlabel(x)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


# --- Pre-training ----------------------------------------------------------------


def pretraining_report(
    folder: pathlib.Path,
    options: PretrainConfig,
    phase: Phase,
    history: Sequence[Mapping[str, float]],
    **values: Any,
) -> None:
    """Writes the report of a pre-training.

    Args:
        folder: The model directory.
        options: Those of the training.
        phase: Its last phase.
        history: The rows of history.csv.
        **values: Further fields of the template.
    """
    steps = zip(history, [0, *(row["tokens"] for row in history)])
    seconds = sum((row["tokens"] - x) / row["tokens_per_second"] for row, x in steps)
    speed = history[-1]["tokens"] / seconds
    values |= {
        "epochs": phase.epochs,
        "seconds": seconds,
        "speed": speed,
        "hours": 1e8 / speed / 3600,
        "results": table_rows(_results(values | history[-1])),
    }

    def draw_losses(axes):
        losses = {"loss": "training loss", "val_loss": "held-out loss"}
        plot(axes, history, "tokens", losses)

    def draw_accuracies(axes):
        for number, name in enumerate(("bigram", "unigram"), start=1):
            accuracy = values[f"{name}_accuracy"]
            axes.axhline(accuracy, color=f"C{number}", ls="--", label=name)
        plot(axes, history, "tokens", {"val_mlm_accuracy": "masked LM accuracy"})
        axes.set_ylim(bottom=0)

    template = pathlib.Path(__file__).with_name("pretraining_report.txt")
    panels = (draw_losses, draw_accuracies)
    values = {**phase.records.manifest, **history[-1], **values}
    write_report(
        folder, template, "python -m bert_tf.pretrain", options, values, panels
    )


def accuracies(metrics: Mapping[str, float]) -> str:
    """Returns the held-out accuracies of the tasks that a model learns."""
    names = {"val_mlm_accuracy": "MLM", "val_nsp_accuracy": "NSP"}
    found = (f"{x} accuracy {metrics[k]:.2%}" for k, x in names.items() if k in metrics)
    return ", ".join(found)


def _results(metrics: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yields rows of a table: held-out accuracies and losses, and baselines."""
    for task, title in ("mlm", "masked tokens"), ("nsp", "next sentences"):
        for name, found in ("this model", metrics), ("before", metrics["start"]):
            if found and f"val_{task}_loss" in metrics:
                accuracy, loss = (
                    found[f"val_{task}_{x}"] for x in ("accuracy", "loss")
                )
                yield f"{title}, {name}", f"{accuracy:.1%}", f"{loss:.3f}"
    for name, title in ("bigram", " after the previous one"), ("unigram", ""):
        accuracy = f"{metrics[f'{name}_accuracy']:.1%}"
        yield f"masked tokens, most frequent token{title}", accuracy, ""


def fill_masks(
    model: BertPretrainer, batch: Sequence[Mapping[str, Any]], vocabulary: Vocabulary
) -> str:
    """Predicts one masked token of each of the first rows of a batch.

    Args:
        model: The model.
        batch: Inputs [B, ...] and labels of a masked batch.
        vocabulary: That of the records.

    Returns:
        Rows of a table: the text around the mask, the token, the best predictions.
    """
    x, y, *_ = batch
    x = {name: np.asarray(values)[:_EXAMPLES] for name, values in x.items()}
    logits = model(x, training=False)["mlm"]
    shares = keras.ops.convert_to_numpy(keras.ops.softmax(logits))  # [8, P, V]
    tokens, rows = np.array(vocabulary.tokens, object), []
    for row, (ids, positions) in enumerate(zip(x["token_ids"], x["mask_positions"])):
        masks = np.flatnonzero(ids[positions] == vocabulary.mask_id)
        if not masks.size:
            continue
        column = masks[masks.size // 2]
        position, best = positions[column], np.argsort(-shares[row, column])[:3]
        words = np.where(ids == vocabulary.pad_id, "", tokens[ids])
        words[position] = "**[?]**"
        text = " ".join(words[max(0, position - _CONTEXT) : position + _CONTEXT + 1])
        found = (f"{tokens[i]} {shares[row, column, i]:.0%}" for i in best)
        label = tokens[int(y["mlm"][row][column])]
        rows.append((text.replace(" ##", ""), label, ", ".join(found)))
    return table_rows(rows)
