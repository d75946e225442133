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
import time
from collections.abc import Iterator

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
    for name, train in LIBRARIES.items():
        if any(row["library"] == name for row in rows):
            continue
        curve, start = [], time.process_time()
        for step, tokens, loss in train(options):
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


def _datasets(options: LearningConfig):
    import keras

    from bert_tf import data

    keras.utils.set_random_seed(options.seed)  # It also seeds the order of records.
    common = {"batch_size": options.batch_size, "seed": options.seed}
    train = data.pretrain_dataset(options.records, **common)
    held_out = data.pretrain_dataset(options.records, split="validation", **common)
    return train.take(options.steps), held_out.take(options.validation_batches).cache()


def _architecture(options: LearningConfig) -> BertConfig:
    from bert_tf import data

    _, vocabulary = data.read_manifest(options.records)
    return BertConfig.from_size(options.size, vocabulary.size)


def _schedule(options: LearningConfig):
    from bert_tf.training import WarmupDecay

    return WarmupDecay(options.learning_rate, options.warmup_steps, options.steps)


def _count_tokens(x) -> int:
    return int((x["padding_mask"].numpy() > 0).sum())


def _bert_tf(options: LearningConfig) -> Iterator[tuple[int, int, float]]:
    """Yields (step, tokens seen, held-out loss) at each evaluation."""
    from bert_tf.modeling import BertBackbone, BertPretrainer
    from bert_tf.training import AdamW

    train, held_out = _datasets(options)
    model = BertPretrainer(BertBackbone(_architecture(options)))
    model.compile(AdamW(_schedule(options)))
    tokens = 0
    for step, batch in enumerate(train, start=1):
        tokens += _count_tokens(batch[0])
        model.train_on_batch(*batch)
        if step % options.validate_every == 0:
            yield (
                step,
                tokens,
                model.evaluate(held_out, verbose=0, return_dict=True)["loss"],
            )


def _transformers(options: LearningConfig) -> Iterator[tuple[int, int, float]]:
    import numpy as np
    import torch
    import transformers

    train, held_out = _datasets(options)
    torch.manual_seed(options.seed)
    architecture = peers.transformers_config(_architecture(options))
    model = transformers.BertForPreTraining(architecture).train()
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}],
        weight_decay=0.01,
        eps=1e-6,
    )
    schedule = _schedule(options)
    tokens = 0
    for step, batch in enumerate(train, start=1):
        tokens += _count_tokens(batch[0])
        for group in optimizer.param_groups:
            group["lr"] = float(schedule(step - 1))
        optimizer.zero_grad()
        model(**peers.transformers_batch(*batch)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % options.validate_every == 0:
            model.eval()
            with torch.no_grad():
                losses = [
                    float(model(**peers.transformers_batch(*batch)).loss)
                    for batch in held_out
                ]
            model.train()
            yield step, tokens, float(np.mean(losses))


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
