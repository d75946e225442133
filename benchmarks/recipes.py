# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares pre-training recipes at equal tokens and equal processor time.

    python -m benchmarks.recipes --records=wiki64 --output=recipes --runs=adamw,muon

Each run trains one of `RECIPES` from random weights and evaluates held-out batches with
the paper's masking rate of 15%, whatever the recipe trains with. Dropout is 0. Times
exclude evaluations.

Writes <run>-<seed>.csv per run, recipes.png, and prints a table. Finished runs are not
trained again.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from bert_tf import cli, data, modeling, training
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a run: the paper's, except for the size of the training."""

    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    decay: str = "linear"
    mask_selection_rate: float = 0.15
    whole_word_masking: bool = False
    local_attention: bool = False
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """More arguments of the optimizer."""


_MUON_30 = Recipe(optimizer="muon", learning_rate=2e-3, mask_selection_rate=0.3)

RECIPES = {
    "adamw": Recipe(),
    "adamw_5e-4": Recipe(learning_rate=5e-4),
    "adamw_30": Recipe(mask_selection_rate=0.3),
    "adamw_beta_2": Recipe(arguments={"beta_2": 0.98}),
    "adamw_local": Recipe(local_attention=True),
    "muon": Recipe(optimizer="muon", learning_rate=2e-3),
    "muon_30": _MUON_30,
    "muon_30_1e-3": dataclasses.replace(_MUON_30, learning_rate=1e-3),
    "muon_30_4e-3": dataclasses.replace(_MUON_30, learning_rate=4e-3),
    "muon_40": dataclasses.replace(_MUON_30, mask_selection_rate=0.4),
    "muon_30_local": dataclasses.replace(_MUON_30, local_attention=True),
    "muon_30_local_4e-3": dataclasses.replace(
        _MUON_30, local_attention=True, learning_rate=4e-3
    ),
    "muon_40_local": dataclasses.replace(
        _MUON_30, local_attention=True, mask_selection_rate=0.4
    ),
    "muon_30_local_whole_word": dataclasses.replace(
        _MUON_30, local_attention=True, whole_word_masking=True
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipesConfig(cli.Options):
    """Options of `python -m benchmarks.recipes`."""

    records: str = cli.option(help="Folder written by bert_tf.corpus.")
    output: str = cli.option(help="Folder for the curves.")
    runs: str = cli.option(
        "adamw,muon_30,muon_30_local", help="Recipes, comma-separated."
    )
    size: str = cli.option("mini", help="Architecture.")
    batch_size: int = cli.option(32, help="Rows per step.", minimum=1)
    steps: int = cli.option(1000, help="Training steps.", minimum=1)
    warmup_steps: int = cli.option(100, help="Warm-up steps.", minimum=0)
    validate_every: int = cli.option(100, help="Steps between evaluations.", minimum=1)
    precision: str = cli.option("mixed_bfloat16", help="Keras dtype policy.")
    seed: int = cli.option(0, help="Seed of weights, masks and order.")


def main(options: RecipesConfig) -> None:
    """Trains the runs without a curve, then plots and prints all.

    Raises:
        ValueError: A recipe is unknown.
    """
    names = options.runs.split(",")
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        raise ValueError(f"--runs must be of {', '.join(RECIPES)}. Received: {unknown}")
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    curves = {}
    for name in names:
        path = folder / f"{name}-{options.seed}.csv"
        if not path.exists():
            data.write_table(path, train(options, RECIPES[name]))
        rows = data.read_table(path)
        curves[name] = [{k: float(v) for k, v in row.items()} for row in rows]
    draw(curves).savefig(folder / "recipes.png", dpi=120)
    print(table(curves))


def train(options: RecipesConfig, recipe: Recipe) -> list[dict[str, float]]:
    """Returns the step, tokens, processor seconds and metrics of each evaluation."""
    keras.utils.set_random_seed(options.seed)
    manifest, vocabulary = data.read_manifest(options.records)
    batches = data.pretrain_dataset(
        options.records,
        batch_size=options.batch_size,
        seed=options.seed,
        mask_selection_rate=recipe.mask_selection_rate,
        whole_word_masking=recipe.whole_word_masking,
    )
    rows = manifest["validation_rows"]
    held_out = data.pretrain_dataset(
        options.records, batch_size=min(256, rows), split="validation"
    ).cache()
    architecture = dataclasses.replace(
        modeling.BertConfig.resolve(options.size, vocabulary.size),
        dropout=0.0,
        attention_dropout=0.0,
    )
    backbone = modeling.BertBackbone(architecture, dtype=options.precision)
    if recipe.local_attention:
        modeling.initialize_local_attention(backbone, options.seed)
    model = modeling.BertPretrainer(backbone)
    schedule = training.WarmupDecay(
        recipe.learning_rate, options.warmup_steps, options.steps, recipe.decay
    )
    classes = {"adamw": training.AdamW, "muon": training.Muon}
    model.compile(classes[recipe.optimizer](schedule, **recipe.arguments))
    slots = options.batch_size * manifest["max_sequence_length"]
    tokens = slots * (1 - manifest["padding_share"])  # Per step.
    curve, clock = [], {"seconds": 0.0}

    def begin(epoch, logs):
        clock["start"] = time.process_time()

    def evaluate(epoch, logs):
        clock["seconds"] += time.process_time() - clock["start"]
        metrics = model.evaluate(held_out, return_dict=True, verbose=0)
        step = (epoch + 1) * options.validate_every
        times = {"step": step, "tokens": step * tokens, "seconds": clock["seconds"]}
        curve.append(times | metrics)
        print(
            f"step {step:,}, {clock['seconds']:,.0f} s: held-out MLM loss "
            f"{metrics['mlm_loss']:.3f}, accuracy {metrics['mlm_accuracy']:.2%}",
            flush=True,
        )

    model.fit(
        batches,
        steps_per_epoch=options.validate_every,
        epochs=options.steps // options.validate_every,
        shuffle=False,
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=evaluate)
        ],
    )
    return curve


def table(curves: Mapping[str, list[dict[str, float]]]) -> str:
    """Returns a Markdown table of the last evaluation of each run."""
    lines = [
        "| recipe | million tokens | CPU minutes | MLM loss | MLM accuracy | "
        "NSP accuracy |",
        "|---|---|---|---|---|---|",
    ]
    for name, curve in curves.items():
        last = curve[-1]
        lines.append(
            f"| {name} | {last['tokens'] / 1e6:.1f} | {last['seconds'] / 60:.1f} | "
            f"{last['mlm_loss']:.3f} | {last['mlm_accuracy']:.1%} | "
            f"{last['nsp_accuracy']:.1%} |"
        )
    return "\n".join(lines)


def draw(curves: Mapping[str, list[dict[str, float]]]):
    """Returns a figure of held-out loss against tokens and processor minutes."""
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    by_tokens, by_time = figure.subplots(1, 2, sharey=True)
    for name, curve in curves.items():
        losses = [row["mlm_loss"] for row in curve]
        by_tokens.plot([row["tokens"] / 1e6 for row in curve], losses, label=name)
        by_time.plot([row["seconds"] / 60 for row in curve], losses, label=name)
    by_tokens.set(xlabel="tokens, millions", ylabel="held-out MLM loss")
    by_time.set(xlabel="processor minutes")
    by_tokens.legend()
    for axes in (by_tokens, by_time):
        axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    cli.run(main, RecipesConfig)
