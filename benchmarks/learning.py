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
import types
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks import measure, peers
from bert_tf import cli, data
from bert_tf.training import PretrainConfig

_RUN = ("recipe", "library", "seed")
_COLUMNS = (*_RUN, "step", "tokens", "val_loss", "processor_seconds")

# Replace the defaults of `PretrainConfig`.
_DEFAULTS = {"size": "tiny", "batch_size": 32, "steps": 16000, "warmup_steps": 100}
_DEFAULTS |= {"validate_every": 800}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearningConfig(PretrainConfig):
    """Options of `python -m benchmarks.learning`, and those of `bert_tf.pretrain`.

    `output` is the folder of the curves. Each run has a `seed`, from 0.
    """

    RECIPES = types.MappingProxyType(
        {name: _DEFAULTS | PretrainConfig.RECIPES[name] for name in ("short", "paper")}
    )

    validation_batches: int = cli.option(20, help="Held-out batches.", minimum=1)
    seeds: int = cli.option(2, help="Runs of each library, from seed 0.", minimum=1)


def main(options: LearningConfig) -> None:
    """Trains the runs without a curve and prints their losses."""
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "learning.csv"
    rows = data.read_table(path) if path.exists() else []
    libraries = LIBRARIES if importlib.util.find_spec("transformers") else ("bert_tf",)
    for seed, name in itertools.product(range(options.seeds), libraries):
        run = dataclasses.replace(options, seed=seed)
        is_short = run.optimizer == LearningConfig.RECIPES["short"]["optimizer"]
        key = "short" if is_short else "paper", name, str(seed)
        if any(tuple(str(row[column]) for column in _RUN) == key for row in rows):
            continue
        for point in _curve(run, name, folder / f"{key[0]}-{seed}"):
            rows.append(dict(zip(_COLUMNS, (*key, *point), strict=True)))
            print(*(f"{k}={v}" for k, v in rows[-1].items()), flush=True)
        data.write_table(path, rows)


def _curve(
    options: LearningConfig, library: str, folder: pathlib.Path
) -> Iterator[tuple[int, int, float, float]]:
    """Yields (step, tokens seen, held-out loss, CPU seconds) at each evaluation."""
    import keras

    from bert_tf import training

    (phase,) = training.open_phases(options)
    if not folder.exists():
        _write_initial_weights(options, folder)
    keras.utils.set_random_seed(options.seed)  # It also seeds the order of records.
    rates = phase.schedule(np.arange(options.steps)).numpy().tolist()
    trainer = measure.Worker(_build, library, folder, options, rates)
    records = phase.records
    both = {"batch_size": options.batch_size, "seed": options.seed}
    rate, held_out = phase.mask_selection_rate, records.dataset("validation", **both)
    train = records.dataset(mask_selection_rate=rate, **both).take(options.steps)

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


def _write_initial_weights(options: LearningConfig, folder: pathlib.Path) -> None:
    """Writes a checkpoint of transformers with random weights."""
    import keras

    from bert_tf import modeling, training

    phases = training.open_phases(options)
    architecture = training.resolve_architecture(options, phases, None)
    keras.utils.set_random_seed(options.seed)
    model = modeling.BertPretrainer(modeling.BertBackbone(architecture))
    records = phases[0].records
    if options.initialization == "corpus":
        training.initialize_from_corpus(model, records.token_ids(), options.seed)
    peers.write_model(folder, model, architecture, records.vocabulary, "pretrainer")


def _build(library: str, *arguments) -> Callable:
    functions = LIBRARIES[library](*arguments)
    return lambda use, batches: functions[use](batches)


# Each returns functions that train on a batch `(x, y, sample_weight)`, and that return
# the mean loss of batches.


def _bert_tf(
    folder: pathlib.Path, options: LearningConfig, rates: Sequence[float]
) -> dict[str, Callable]:
    import keras

    from bert_tf import modeling, training

    keras.utils.set_random_seed(options.seed)
    model = modeling.BertPretrainer.from_checkpoint(folder)
    schedule = training.open_phases(options)[0].schedule
    model.compile(training.create_optimizer(options, schedule))

    def train(batch):
        model.train_on_batch(*batch)

    def evaluate(batches):
        model.reset_metrics()
        for batch in batches:
            metrics = model.test_on_batch(*batch, return_dict=True)
        return float(metrics["loss"])

    return {"train": train, "evaluate": evaluate}


def _transformers(
    folder: pathlib.Path, options: LearningConfig, rates: Sequence[float]
) -> dict[str, Callable]:
    import torch
    import transformers

    torch.manual_seed(options.seed)
    model = transformers.BertForPreTraining.from_pretrained(folder).train()
    is_muon = options.optimizer == "muon"
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
