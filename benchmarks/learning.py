# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares the held-out loss of pre-training by tokens: bert_tf and transformers.

    python -m benchmarks.learning --records=wiki64-unpacked --output=learning

bert_tf and transformers with torch pre-train the same architecture from the same
initial weights, on the same batches and masks, with the same schedule and optimizer:
AdamW or, with the short recipe, Muon (`torch.optim.Muon`) for the encoder's matrices
and AdamW for the rest. Biases and LayerNorm have no weight decay, gradients are clipped
to norm 1. If the recipe has dropout, it draws different random numbers. Every
--validate_every steps, both compute the loss (masked LM + next sentence) on the same
held-out batches, without dropout, masked as in the paper. The records need one pair per
row (`bert_tf.corpus --pack=false`), because transformers does not support packed rows.

Writes learning.csv and the initial weights of each seed to --output. Runs with a curve
in learning.csv are not trained again. Each library runs in a process of its own, and
processor time is that of its steps and evaluations. Skips transformers if it is not
installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import pathlib
import statistics
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks import measure, peers
from bert_tf import cli
from bert_tf.training import PretrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig(cli.Options):
    """Options of `python -m benchmarks.learning`."""

    records: str = cli.option(help="Records with one pair per row.")
    output: str = cli.option(help="Folder for the curves.")
    size: str = cli.option("tiny", help="Architecture.")
    recipe: str = cli.option(
        "short",
        help="Optimizer, masking rate, dropout and initialization, as --recipe of "
        "bert_tf.pretrain.",
        choices=tuple(PretrainConfig.RECIPES),
    )
    batch_size: int = cli.option(32, help="Pairs per step.", minimum=1)
    steps: int = cli.option(16000, help="Training steps.", minimum=1)
    warmup_steps: int = cli.option(100, help="Warm-up steps.", minimum=0)
    learning_rate: float = cli.option(2e-3, help="Peak learning rate.")
    validate_every: int = cli.option(800, help="Steps between evaluations.", minimum=1)
    validation_batches: int = cli.option(20, help="Held-out batches.", minimum=1)
    seeds: int = cli.option(2, help="Runs of each library, from seed 0.", minimum=1)

    def pretraining(self) -> PretrainConfig:
        """Returns the recipe with the size, batches and schedule of this benchmark."""
        settings = {
            **PretrainConfig.RECIPES[self.recipe],
            "batch_size": self.batch_size,
            "steps": self.steps,
            "warmup_steps": self.warmup_steps,
            "learning_rate": self.learning_rate,
        }
        return PretrainConfig(
            records=self.records, output="", size=self.size, **settings
        )


def main(options: LearningConfig) -> None:
    """Trains the runs without a curve and prints their losses."""
    from bert_tf.data import read_table, write_table

    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "learning.csv"
    rows = read_table(path) if path.exists() else []
    has_peer = importlib.util.find_spec("transformers")
    libraries = LIBRARIES if has_peer else ("bert_tf",)
    for seed, name in itertools.product(range(options.seeds), libraries):
        if any((row["library"], int(row["seed"])) == (name, seed) for row in rows):
            continue
        curve = []
        for point in _curve(options, name, folder / f"seed-{seed}", seed):
            step, tokens, loss, seconds = point
            print(
                f"{name}, seed {seed}: step {step:,}, {tokens / 1e6:.1f} M tokens, "
                f"held-out loss {loss:.4f}, {seconds:,.0f} s",
                flush=True,
            )
            curve.append((name, seed, *point))
        names = ("library", "seed", "step", "tokens", "val_loss", "processor_seconds")
        rows += [dict(zip(names, point, strict=True)) for point in curve]
        write_table(path, rows)


def _curve(
    options: LearningConfig, library: str, folder: pathlib.Path, seed: int
) -> Iterator[tuple[int, int, float, float]]:
    """Yields (step, tokens seen, held-out loss, CPU seconds) at each evaluation."""
    import keras

    from bert_tf import data

    if not folder.exists():
        _write_initial_weights(options, folder, seed)
    keras.utils.set_random_seed(seed)  # It also seeds the order of records.
    settings = options.pretraining()
    schedule = settings.phases()[0].schedule
    rates = schedule(np.arange(options.steps)).numpy().tolist()
    trainer = measure.Worker(_build, library, folder, settings, rates, seed)
    common = {"batch_size": options.batch_size, "seed": seed}
    records, rate = data.Records(options.records), settings.mask_selection_rate
    train = records.dataset(mask_selection_rate=rate, **common).take(options.steps)
    held_out = records.dataset("validation", **common)

    def mean_of_batch(x, y, weights):  # As the loss of transformers.
        return x, y, {name: w / keras.ops.sum(w) for name, w in weights.items()}

    held_out = held_out.take(options.validation_batches).map(mean_of_batch)
    held_out = list(held_out.as_numpy_iterator())
    tokens, cpu = 0, 0.0
    for step, batch in enumerate(train.as_numpy_iterator(), start=1):
        tokens += int((batch[0]["padding_mask"] > 0).sum())
        cpu += trainer("train", batch).cpu
        if step % options.validate_every == 0:
            call = trainer("evaluate", held_out)
            cpu += call.cpu
            yield step, tokens, call.value, cpu
    trainer.close()


def _write_initial_weights(
    options: LearningConfig, folder: pathlib.Path, seed: int
) -> None:
    """Writes a checkpoint of transformers with random weights."""
    import keras

    from bert_tf import checkpoints, modeling, training

    settings = options.pretraining()
    phases = settings.phases()
    architecture = training.resolve_architecture(settings, phases, None)
    keras.utils.set_random_seed(seed)
    model = modeling.BertPretrainer(modeling.BertBackbone(architecture))
    if settings.initialization == "corpus":
        token_ids = phases[0].records.token_ids()
        training.initialize_from_corpus(model, token_ids, seed)
    directory = checkpoints.ModelDirectory.create(
        folder,
        architecture=architecture,
        vocabulary=phases[0].records.vocabulary,
        lowercase=True,
        head={"kind": "pretrainer"},
        options={},
    )
    directory.save_weights(model)


def _build(library: str, *arguments) -> Callable:
    functions = LIBRARIES[library](*arguments)
    return lambda use, batches: functions[use](batches)


# Each returns functions that train on a batch `(x, y, sample_weight)`, and that return
# the mean loss of batches.


def _bert_tf(
    folder: pathlib.Path, settings: PretrainConfig, rates: Sequence[float], seed: int
) -> dict[str, Callable]:
    import keras

    from bert_tf import modeling, training

    keras.utils.set_random_seed(seed)
    model = modeling.BertPretrainer.from_checkpoint(folder)
    schedule = settings.phases()[0].schedule
    model.compile(training.create_optimizer(settings, schedule))

    def train(batch):
        model.train_on_batch(*batch)

    def evaluate(batches):
        model.reset_metrics()
        for batch in batches:
            metrics = model.test_on_batch(*batch, return_dict=True)
        return float(metrics["loss"])

    return {"train": train, "evaluate": evaluate}


def _transformers(
    folder: pathlib.Path, settings: PretrainConfig, rates: Sequence[float], seed: int
) -> dict[str, Callable]:
    import torch
    import transformers

    torch.manual_seed(seed)
    model = transformers.BertForPreTraining.from_pretrained(folder).train()
    is_muon = settings.optimizer == "muon"
    encoder, matrices, vectors = [], [], []
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            vectors.append(weight)
        elif is_muon and ".encoder." in name:
            encoder.append(weight)
        else:
            matrices.append(weight)
    groups = {"params": matrices}, {"params": vectors, "weight_decay": 0.0}
    optimizers = [torch.optim.AdamW(groups, weight_decay=0.01, eps=1e-6)]
    if is_muon:
        options = {"weight_decay": 0.01, "adjust_lr_fn": "match_rms_adamw"}
        optimizers.append(torch.optim.Muon(encoder, **options))
    learning_rates = iter(rates)

    def loss(batch):
        return model(**peers.transformers_batch(*batch)).loss

    def train(batch):
        model.zero_grad()
        loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = next(learning_rates)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    @torch.no_grad()
    def evaluate(batches):
        model.eval()
        mean = statistics.mean(float(loss(batch)) for batch in batches)
        model.train()
        return mean

    return {"train": train, "evaluate": evaluate}


LIBRARIES = {"bert_tf": _bert_tf, "transformers + torch": _transformers}


if __name__ == "__main__":
    cli.run(main, LearningConfig)
