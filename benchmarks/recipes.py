# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares pre-training recipes at equal tokens and equal processor time.

    python -m benchmarks.recipes --records=wiki64 --output=recipes --runs=adamw,muon

Each run trains one of `RECIPES` from random weights and evaluates held-out batches with
the paper's masking rate of 15%, whatever the recipe trains with. Dropout is 0. Times
exclude evaluations. All runs see the same number of tokens, that of --steps.

Writes <run>-<seed>.csv per run, recipes.png, and prints a table. Finished runs are not
trained again.
"""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_tf import cli, data, modeling, text, training
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")


class Stage(NamedTuple):
    """A part of a training."""

    tokens: float
    """Share of the tokens of the training."""
    batch_size: float = 1
    """Rows per step, as a multiple of --batch_size."""
    mask_selection_rate: float | None = None
    """That of the recipe if None."""
    records: int = -1
    """Index in --records."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of a run: the paper's, except for the size of the training."""

    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    decay: str = "linear"
    mask_selection_rate: float = 0.15
    whole_word_masking: bool = False
    next_sentence_weight: float = 1
    initialization: str = "normal"
    stages: tuple[Stage, ...] = (Stage(1),)
    residual_scale: float = 1
    """Factor of the initial weights of the projections before residual sums."""
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """More arguments of the optimizer."""


_MUON_30 = Recipe(optimizer="muon", learning_rate=2e-3, mask_selection_rate=0.3)
# As in --recipe=short.
_LOCAL = dataclasses.replace(_MUON_30, initialization="local_attention")
_ZERO = dataclasses.replace(_MUON_30, initialization="identity_layers")
_RAMP = (Stage(0.25, batch_size=0.5), Stage(0.25), Stage(0.5, batch_size=2))
_SHORT_ROWS_FIRST = (Stage(0.25, batch_size=2, records=0), Stage(0.75))
_LESS_MASKING = (Stage(0.7), Stage(0.3, mask_selection_rate=0.15))
_DEPTH_SCALE = 8**-0.5  # As in GPT-2, for the eight residual sums of BERT mini.
# The evaluations see a running average of the weights.
_AVERAGE = {"use_ema": True, "ema_momentum": 0.98}

RECIPES = {
    "adamw": Recipe(),
    "adamw_5e-4": Recipe(learning_rate=5e-4),
    "adamw_2e-3": Recipe(learning_rate=2e-3),
    "adamw_30": Recipe(mask_selection_rate=0.3),
    "adamw_beta_2": Recipe(arguments={"beta_2": 0.98}),
    "adamw_clip": Recipe(arguments={"global_clipnorm": 0.5}),
    "adamw_cosine": Recipe(decay="cosine"),
    "adamw_whole_word": Recipe(whole_word_masking=True),
    "adamw_residuals": Recipe(residual_scale=_DEPTH_SCALE),
    "adamw_ramp": Recipe(stages=_RAMP),
    "adamw_short_rows_first": Recipe(stages=_SHORT_ROWS_FIRST),
    "adamw_local": Recipe(initialization="local_attention"),
    "muon": Recipe(optimizer="muon", learning_rate=2e-3),
    "muon_30": _MUON_30,
    "muon_30_1e-3": dataclasses.replace(_MUON_30, learning_rate=1e-3),
    "muon_30_4e-3": dataclasses.replace(_MUON_30, learning_rate=4e-3),
    "muon_40": dataclasses.replace(_MUON_30, mask_selection_rate=0.4),
    "muon_30_local": _LOCAL,
    "muon_15_local": dataclasses.replace(_LOCAL, mask_selection_rate=0.15),
    "muon_40_local": dataclasses.replace(_LOCAL, mask_selection_rate=0.4),
    "muon_30_local_1e-3": dataclasses.replace(_LOCAL, learning_rate=1e-3),
    "muon_30_local_4e-3": dataclasses.replace(_LOCAL, learning_rate=4e-3),
    "muon_30_local_whole_word": dataclasses.replace(_LOCAL, whole_word_masking=True),
    "muon_30_local_beta_2": dataclasses.replace(_LOCAL, arguments={"beta_2": 0.98}),
    "muon_30_local_cosine": dataclasses.replace(_LOCAL, decay="cosine"),
    "muon_30_local_residuals": dataclasses.replace(_LOCAL, residual_scale=_DEPTH_SCALE),
    "muon_30_local_zero": _ZERO,
    "muon_30_local_ramp": dataclasses.replace(_LOCAL, stages=_RAMP),
    "muon_30_local_short_rows_first": dataclasses.replace(
        _LOCAL, stages=_SHORT_ROWS_FIRST
    ),
    "muon_30_local_zero_short_rows_first": dataclasses.replace(
        _ZERO, stages=_SHORT_ROWS_FIRST
    ),
    "muon_30_local_less_masking": dataclasses.replace(_LOCAL, stages=_LESS_MASKING),
    "muon_30_local_less_nsp": dataclasses.replace(_LOCAL, next_sentence_weight=0.25),
    "muon_30_local_average": dataclasses.replace(
        _LOCAL, decay="constant", arguments=_AVERAGE
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecipesConfig(cli.Options):
    """Options of `python -m benchmarks.recipes`."""

    records: str = cli.option(
        help="Folder written by bert_tf.corpus. Two, comma-separated, for recipes that "
        "begin with the shorter rows of the first."
    )
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
        ValueError: A recipe is unknown, or needs two folders of records.
    """
    names = options.runs.split(",")
    unknown = sorted(set(names) - set(RECIPES))
    if unknown:
        raise ValueError(f"--runs must be of {', '.join(RECIPES)}. Received: {unknown}")
    stages = {stage for name in names for stage in RECIPES[name].stages}
    if "," not in options.records and any(stage.records == 0 for stage in stages):
        raise ValueError(
            "--records must be two folders, shorter rows first, for --runs="
            f"{options.runs}. Received: {options.records}"
        )
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
    folders = options.records.split(",")
    manifests, vocabularies = zip(*map(data.read_manifest, folders), strict=True)
    held_out = data.pretrain_dataset(
        folders[-1],
        batch_size=min(256, manifests[-1]["validation_rows"]),
        split="validation",
    ).cache()

    def rows(stage):  # Per step.
        return int(options.batch_size * stage.batch_size)

    def slots(stage):  # Per step; a few are padding.
        return rows(stage) * manifests[stage.records]["max_sequence_length"]

    each = slots(Stage(1))
    total = options.steps * each
    steps = [round(total * stage.tokens / slots(stage)) for stage in recipe.stages]
    model = _build(options, recipe, vocabularies[-1], sum(steps))
    curve, clock = [], {"seconds": 0.0, "step": 0, "tokens": 0.0}

    def begin(epoch, logs):
        clock["start"] = time.process_time()

    def evaluate(epoch, logs):
        clock["seconds"] += time.process_time() - clock.pop("start")
        clock["step"] += every
        clock["tokens"] += every * slots(stage) * (1 - manifest["padding_share"])
        metrics = model.evaluate(held_out, return_dict=True, verbose=0)
        curve.append(clock | metrics)
        print(
            f"step {clock['step']:,}, {clock['seconds']:,.0f} s: held-out MLM loss "
            f"{metrics['mlm_loss']:.3f}, accuracy {metrics['mlm_accuracy']:.2%}",
            flush=True,
        )

    callbacks = [
        keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_epoch_end=evaluate)
    ]
    if "use_ema" in recipe.arguments:
        callbacks.insert(0, keras.callbacks.SwapEMAWeights(swap_on_epoch=True))
    for number, (stage, count) in enumerate(zip(recipe.stages, steps, strict=True)):
        manifest = manifests[stage.records]
        batches = data.pretrain_dataset(
            folders[stage.records],
            batch_size=rows(stage),
            seed=options.seed + 1000 * number,  # Other rows than before.
            mask_selection_rate=stage.mask_selection_rate or recipe.mask_selection_rate,
            whole_word_masking=recipe.whole_word_masking,
        )
        epochs = max(round(count * slots(stage) / each / options.validate_every), 1)
        every = count // epochs  # Steps between evaluations.
        model.train_function = None  # The shapes may differ.
        model.fit(
            batches,
            steps_per_epoch=every,
            epochs=epochs,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )
    return curve


def _build(
    options: RecipesConfig, recipe: Recipe, vocabulary: text.Vocabulary, steps: int
) -> modeling.BertPretrainer:
    """Returns the compiled model with the initial weights of the recipe."""
    architecture = dataclasses.replace(
        modeling.BertConfig.resolve(options.size, vocabulary.size),
        dropout=0.0,
        attention_dropout=0.0,
    )
    backbone = modeling.BertBackbone(architecture, dtype=options.precision)
    modeling.initialize_weights(backbone, recipe.initialization, options.seed)
    for layer in backbone.encoder_layers:
        for dense in (layer.attention_output, layer.output_dense):
            dense.kernel.assign(dense.kernel * recipe.residual_scale)
    model = modeling.BertPretrainer(backbone)
    schedule = training.WarmupDecay(
        recipe.learning_rate, options.warmup_steps, steps, recipe.decay
    )
    classes = {"adamw": training.AdamW, "muon": training.Muon}
    model.compile(
        classes[recipe.optimizer](schedule, **recipe.arguments),
        loss_weights={"mlm": 1.0, "nsp": recipe.next_sentence_weight},
    )
    return model


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

    figure = matplotlib.figure.Figure(figsize=(11, 3.6), layout="constrained")
    by_tokens, by_time = figure.subplots(1, 2, sharey=True)
    for name, curve in curves.items():
        losses = [row["mlm_loss"] for row in curve]
        by_tokens.plot([row["tokens"] / 1e6 for row in curve], losses, label=name)
        by_time.plot([row["seconds"] / 60 for row in curve], losses, label=name)
    by_tokens.set(xlabel="tokens, millions", ylabel="held-out MLM loss")
    by_time.set(xlabel="processor minutes")
    figure.legend(*by_tokens.get_legend_handles_labels(), loc="outside right center")
    for axes in (by_tokens, by_time):
        axes.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    cli.run(main, RecipesConfig)
