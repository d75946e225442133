# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plots the held-out loss of pre-training against tokens: bert_tf and transformers.

    python -m benchmarks.learning --records=wiki128-unpacked --output=learning

bert_tf and transformers with torch pre-train the same architecture on the same batches
and masks, with the same schedule and AdamW (bias correction, no weight decay of biases
and LayerNorm, gradients clipped to norm 1). Each starts from its own random weights.
Every --validate_every steps, both compute the loss (masked LM + next sentence) on the
same held-out batches, without dropout. The records need one pair per row
(`bert_tf.corpus --pack=false`), because transformers does not support packed rows.

Writes learning.csv and learning.png to --output. Libraries with a curve in learning.csv
are not trained again. Needs torch and transformers.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

from benchmarks import peers
from bert_tf import cli
from bert_tf.modeling import BertConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig(cli.Options):
    """Options of `python -m benchmarks.learning`."""

    records: str = cli.option(help="Records with one pair per row.")
    output: str = cli.option(help="Folder for the curves.")
    size: str = cli.option("small", help="Architecture.")
    batch_size: int = cli.option(32, help="Pairs per step.", minimum=1)
    steps: int = cli.option(1000, help="Training steps.", minimum=1)
    warmup_steps: int = cli.option(100, help="Warm-up steps.", minimum=0)
    learning_rate: float = cli.option(5e-4, help="Peak learning rate.")
    validate_every: int = cli.option(100, help="Steps between evaluations.", minimum=1)
    validation_batches: int = cli.option(20, help="Held-out batches.", minimum=1)
    seed: int = cli.option(0, help="Seed of weights, dropout, masks and order.")


def main(options: LearningConfig) -> None:
    """Trains the libraries without a curve and plots all curves."""
    from bert_tf.data import read_table, write_table

    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "learning.csv"
    rows = read_table(path) if path.exists() else []
    for name in LIBRARIES:
        if any(row["library"] == name for row in rows):
            continue
        curve, start = [], time.process_time()
        for step, tokens, loss in _curve(options, name):
            seconds = time.process_time() - start
            print(f"{name}: step {step:,}, held-out loss {loss:.4f}, {seconds:,.0f} s")
            curve.append((step, tokens, loss, seconds))
        names = ("library", "step", "tokens", "val_loss", "processor_seconds")
        rows += [dict(zip(names, (name, *point), strict=True)) for point in curve]
        write_table(path, rows)
    _draw(rows, folder / "learning.png")
    last = {row["library"]: float(row["val_loss"]) for row in rows}
    losses = ", ".join(f"{name} {loss:.4f}" for name, loss in last.items())
    print(f"Held-out loss after {options.steps:,} steps: {losses}. Curves in {folder}.")


_TrainStep = Callable[[tuple], None]  # Trains on a batch `(x, y, sample_weight)`.
_Evaluate = Callable[[Iterable[tuple]], float]  # Returns the mean loss of batches.


def _curve(options: LearningConfig, library: str) -> Iterator[tuple[int, int, float]]:
    """Yields (step, tokens seen, held-out loss) at each evaluation."""
    import keras

    from bert_tf import data
    from bert_tf.training import WarmupDecay

    keras.utils.set_random_seed(options.seed)  # It also seeds the order of records.
    _, vocabulary = data.read_manifest(options.records)
    architecture = BertConfig.from_size(options.size, vocabulary.size)
    schedule = WarmupDecay(options.learning_rate, options.warmup_steps, options.steps)
    train_step, evaluate = LIBRARIES[library](architecture, schedule, options.seed)
    common = {"batch_size": options.batch_size, "seed": options.seed}
    train = data.pretrain_dataset(options.records, **common).take(options.steps)
    held_out = data.pretrain_dataset(options.records, split="validation", **common)
    held_out = held_out.take(options.validation_batches).cache()
    tokens = 0
    for step, batch in enumerate(train, start=1):
        tokens += int((batch[0]["padding_mask"].numpy() > 0).sum())
        train_step(batch)
        if step % options.validate_every == 0:
            yield step, tokens, evaluate(held_out)


def _bert_tf(architecture: BertConfig, schedule, seed) -> tuple[_TrainStep, _Evaluate]:
    from bert_tf.modeling import BertBackbone, BertPretrainer
    from bert_tf.training import AdamW

    model = BertPretrainer(BertBackbone(architecture))
    model.compile(AdamW(schedule))

    def train_step(batch):
        model.train_on_batch(*batch)

    def evaluate(batches):
        return model.evaluate(batches, verbose=0, return_dict=True)["loss"]

    return train_step, evaluate


def _transformers(
    architecture: BertConfig, schedule, seed
) -> tuple[_TrainStep, _Evaluate]:
    import torch
    import transformers

    torch.manual_seed(seed)
    config = peers.transformers_config(architecture)
    model = transformers.BertForPreTraining(config).train()
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        lr=1.0,  # The schedule multiplies it.
        weight_decay=0.01,
        eps=1e-6,
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: float(schedule(step))
    )

    def loss(batch):
        return model(**peers.transformers_batch(*batch)).loss

    def train_step(batch):
        optimizer.zero_grad()
        loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()

    def evaluate(batches):
        model.eval()
        with torch.no_grad():
            mean = statistics.mean(float(loss(batch)) for batch in batches)
        model.train()
        return mean

    return train_step, evaluate


LIBRARIES = {"bert_tf": _bert_tf, "transformers + torch": _transformers}


def _draw(rows: list[dict], path: pathlib.Path) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name in LIBRARIES:
        curve = [row for row in rows if row["library"] == name]
        tokens = [float(row["tokens"]) / 1e6 for row in curve]
        axes.plot(tokens, [float(row["val_loss"]) for row in curve], label=name)
    axes.set(xlabel="tokens seen, millions", ylabel="held-out loss (MLM + NSP)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    cli.run(main, LearningConfig)
