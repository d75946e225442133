# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports of trainings: report.md, a page with results, and report.svg, its pictures.

`write_report` writes any report; `pretraining_report` is that of `bert_tf.pretrain`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import cli, storage
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer
from bert_tf.text import Vocabulary
from bert_tf.training.pretrain_config import Phase, PretrainConfig

figure = lazy_import("matplotlib.figure")

# Finished trainings of BERT mini with the short recipe, on English documentation:
# tokens, masked LM loss and accuracy on held-out text. From docs/results.md.
_REFERENCES = (
    (2.0e6, 4.23, 0.310),
    (32.4e6, 3.39, 0.406),
    (79.1e6, 3.13, 0.438),
    (139.9e6, 2.99, 0.456),
)
_EXAMPLES = 8
_CONTEXT = 8  # Tokens on each side of the mask of an example.


def write_report(
    folder: pathlib.Path,
    title: str,
    sections: Mapping[str, str],
    panels: Sequence[Callable[[Any], None]],
) -> None:
    """Writes report.md and report.svg to a local folder.

    Args:
        folder: Where to write.
        title: Heading of the page.
        sections: Markdown by heading. The pictures follow the first section.
        panels: Each draws one picture on the `matplotlib.axes.Axes` that it gets.
    """
    picture = figure.Figure(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, draw in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels):
        draw(axes)
    with storage.atomic_path(folder / "report.svg") as path:
        picture.savefig(path, format="svg", metadata={"Date": None})
    texts = [f"## {heading}\n\n{text}" for heading, text in sections.items()]
    texts.insert(1, f"![{title}](report.svg)")
    page = "\n\n".join([f"# {title}", *texts])
    storage.write_text(str(folder / "report.md"), f"{page}\n")


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    cells = (
        [" ".join(str(x).replace("|", "\\|").split()) for x in row] for row in lines
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def command(module: str, options: cli.Options) -> str:
    """Returns the command line that gives `options`, as a code block."""
    flags = [
        f"--{field.name.removesuffix('_')}={','.join(map(str, value))}"
        for field in dataclasses.fields(options)
        if (value := np.atleast_1d(getattr(options, field.name)).tolist())
        != np.atleast_1d(field.default).tolist()
    ]
    return code_block(f"python -m {module} {shlex.join(flags)}")


def code_block(*lines: str) -> str:
    """Returns lines as they are, in Markdown."""
    return "\n".join(["```", *lines, "```"])


# --- Pre-training ----------------------------------------------------------------


def pretraining_report(
    folder: pathlib.Path,
    options: PretrainConfig,
    phase: Phase,
    history: Sequence[Mapping[str, float]],
    metrics: Mapping[str, float],
    examples: Sequence[Sequence[str]],
) -> None:
    """Writes the report of a pre-training.

    Args:
        folder: The model directory.
        options: Those of the training.
        phase: Its last phase.
        history: The rows of history.csv.
        metrics: The last of them, with the accuracies of the baselines.
        examples: The result of `fill_masks`.
    """
    seconds = sum(
        (row["tokens"] - before) / max(row["tokens_per_second"], 1)
        for row, before in zip(history, [0, *(row["tokens"] for row in history)])
    )
    rate, manifest = metrics["tokens"] / max(seconds, 1e-9), phase.manifest
    names = {
        "val_mlm_accuracy": "this model",
        "bigram_accuracy": "the most frequent token after the previous one",
        "unigram_accuracy": "the most frequent token",
    }
    accuracies = [(label, f"{metrics[name]:.1%}") for name, label in names.items()]
    run = [
        ("text", f"{manifest['train_pairs']:,} pairs in rows of "
         f"{manifest['max_sequence_length']} tokens"),
        ("read", f"{metrics['tokens'] / 1e6:.1f} million tokens, {phase.epochs:.1f} "
         f"epochs of {phase.records}"),
        ("time", f"{seconds / 60:.1f} minutes, {rate:,.0f} tokens/s on "
         + ", ".join(keras.distribution.list_devices())),
        ("masked LM loss on held-out text", f"{metrics['val_mlm_loss']:.3f}"),
    ]  # fmt: skip
    if options.next_sentence_prediction:
        run.append(("next sentence accuracy", f"{metrics['val_nsp_accuracy']:.1%}"))
    further = [
        (f"{tokens / 1e6:.1f} million", f"{tokens / rate / 3600:.2f}", loss, f"{x:.1%}")
        for tokens, loss, x in _REFERENCES
    ]
    output = options.output
    name = os.path.basename(output.rstrip("/"))
    following = code_block(
        "# Fine-tune on a table with the columns text and label:",
        "python -m tasks.classification --train_file=train.csv --dev_file=dev.csv \\",
        f"  --init_from={output} --label=label --output={output}-tuned",
        "# Export, and try it in a browser:",
        f"python -m bert_tf.export --model_dir={output} --name={name}",
        f"python -m bert_tf.serve --model_base_path=saved_models/{name} --demo",
    )
    sections = {
        "Held-out text": "Share of masked tokens that are predicted:\n\n"
        + table(["", "accuracy"], accuracies),
        "Training": f"{command('bert_tf.pretrain', options)}\n\n{table(['', ''], run)}",
        "Masked tokens": "The first rows of the held-out text.\n\n"
        + table(["text", "masked token", "predictions"], examples),
        "More training": f"Hours with more `--steps` at {rate:,.0f} tokens/s, and what "
        "BERT mini reached with the short recipe. Its text is another one, so compare "
        "the differences between the rows:\n\n"
        + table(["tokens", "hours", "masked LM loss", "accuracy"], further),
        "Next steps": following,
    }

    def draw_losses(axes):
        _draw(axes, history, {"loss": "training", "val_loss": "held-out"}, "loss")

    def draw_accuracies(axes):
        _draw(axes, history, {"val_mlm_accuracy": "this model"}, "masked LM accuracy")
        for number, (key, label) in enumerate(list(names.items())[1:], start=1):
            axes.axhline(metrics[key], color=f"C{number}", ls="--", label=label)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")

    title = f"Pre-training of {name}"
    write_report(folder, title, sections, (draw_losses, draw_accuracies))


def _draw(axes, history, names: Mapping[str, str], ylabel: str) -> None:
    tokens = [row["tokens"] / 1e6 for row in history]
    for name, label in names.items():
        axes.plot(tokens, [row[name] for row in history], marker=".", label=label)
    axes.set(xlabel="million tokens", ylabel=ylabel)
    axes.grid(alpha=0.3)
    axes.legend()


def fill_masks(
    model: BertPretrainer,
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    vocabulary: Vocabulary,
) -> list[tuple[str, str, str]]:
    """Predicts one masked token of each row.

    Args:
        model: The model.
        x: Inputs of a masked batch [B, ...].
        y: Its labels.
        vocabulary: That of the records.

    Returns:
        For the first rows, the text around the mask, the masked token, and the most
        probable tokens.
    """
    x = {name: np.asarray(values)[:_EXAMPLES] for name, values in x.items()}
    logits = keras.ops.convert_to_numpy(model(x, training=False)["mlm"])
    rows = []
    for row, (ids, positions) in enumerate(zip(x["token_ids"], x["mask_positions"])):
        is_mask = (positions > 0) & (ids[positions] == vocabulary.mask_id)
        if not is_mask.any():
            continue
        column = int(np.flatnonzero(is_mask)[is_mask.sum() // 2])
        start = max(0, positions[column] - _CONTEXT)
        near = ids[start : positions[column] + _CONTEXT + 1]
        words = [vocabulary.tokens[i] for i in near if i != vocabulary.pad_id]
        words[positions[column] - start] = "**[?]**"
        shares = keras.ops.convert_to_numpy(keras.ops.softmax(logits[row, column]))
        best = np.argsort(-shares)[:3]
        text = " ".join(words).replace(" ##", "")
        found = ", ".join(f"{vocabulary.tokens[i]} {shares[i]:.0%}" for i in best)
        label = vocabulary.tokens[int(y["mlm"][row][column])]
        rows.append((text, label, found))
    return rows
