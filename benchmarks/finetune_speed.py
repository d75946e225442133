# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times fine-tuning steps of bert_tf, KerasHub and transformers on a GLUE data set.

    python -m benchmarks.finetune_speed --task=sst2 --data_dir=glue/SST-2 \\
        --vocabulary=vocab.txt
    python -m benchmarks.finetune_speed --task=sst2 --data_dir=glue/SST-2 \\
        --vocabulary=vocab.txt --lengths=16,64,256

All variants train encoders of the same size on the same examples, sampled from the
training set, with the same batch size. They differ in their padding:

    bert_tf        examples of similar length in a batch
    KerasHub       `BertBackbone`, every example padded to 128 tokens
    transformers   `BertForSequenceClassification` in torch, each batch padded to its
                   longest example, as its data collator does

Each variant runs in its own process; each round runs all variants. Prints tokens
without padding per second of processor time and of wall time, medians over the rounds.
With --lengths, all examples have the same length (their tokens are repeated), and the
benchmark prints minutes for 1,000 examples. Needs torch and transformers.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import peers
from bert_tf import cli

_PADDED_LENGTH = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(cli.Options):
    """Options of `python -m benchmarks.finetune_speed`."""

    task: str = cli.option("sst2", help="GLUE data set.")
    data_dir: str = cli.option(help="Folder of the data set.")
    vocabulary: str = cli.option(help="Lowercase WordPiece vocabulary.")
    size: str = cli.option("mini", help="Architecture, as in bert_tf.pretrain.")
    batch_size: int = cli.option(32, help="Examples per step.", minimum=1)
    lengths: str = cli.option("", help="Lengths of examples in tokens.")
    batches: int = cli.option(16, help="Timed steps per round.", minimum=1)
    rounds: int = cli.option(3, help="Number of rounds.", minimum=1)
    variant: str = cli.option(
        "", help="Time only this variant and print JSON. Used internally."
    )


def main(options: BenchmarkConfig) -> None:
    if options.variant:
        print(json.dumps(_time(options, VARIANTS[options.variant])))
    elif options.lengths:
        _print_minutes(options)
    else:
        _print_rates(options)


def _run(options: BenchmarkConfig) -> dict[str, list[dict]]:
    """Returns the results of `_time` of all variants and rounds."""
    results: dict[str, list[dict]] = {name: [] for name in VARIANTS}
    flags = [f"--{k}={v}" for k, v in options.to_dict().items() if k != "variant"]
    for _ in range(options.rounds):
        for name, found in results.items():
            command = [sys.executable, "-m", "benchmarks.finetune_speed", *flags]
            output = subprocess.run(
                [*command, f"--variant={name}"], capture_output=True, check=True
            ).stdout
            found.append(json.loads(output.splitlines()[-1]))
    return results


def _print_minutes(options: BenchmarkConfig) -> None:
    clocks = {"cpu_seconds": "processor time", "seconds": "clock"}
    titles = [f"{name}, {clock}" for name in VARIANTS for clock in clocks.values()]
    print(
        f"Minutes per 1,000 examples, {options.size}, batches of {options.batch_size}"
    )
    print(f"\n| tokens | {' | '.join(titles)} |\n{'|---' * (len(titles) + 1)}|")
    for length in options.lengths.split(","):
        results = _run(dataclasses.replace(options, lengths=length))
        minutes = [
            statistics.median(r[clock] / r["examples"] / 60 * 1000 for r in found)
            for found in results.values()
            for clock in clocks
        ]
        print(f"| {length} | {' | '.join(f'{m:.2f}' for m in minutes)} |", flush=True)


def _print_rates(options: BenchmarkConfig) -> None:
    results = _run(options)
    first = results["bert_tf"][0]
    print(
        f"{options.task}, {options.size}, batches of {options.batch_size}, "
        f"{first['tokens'] / first['examples']:.0f} tokens per example, no padding; "
        f"medians of {options.rounds} rounds\n\n"
        "| | tokens per second of processor time | of wall time | speedup of bert_tf "
        "(processor time) |\n|---|---|---|---|"
    )
    for name, found in results.items():
        rates = [
            statistics.median(r["tokens"] / r[clock] for r in found)
            for clock in ("cpu_seconds", "seconds")
        ]
        ratio = statistics.median(
            ours["tokens"] / ours["cpu_seconds"] * r["cpu_seconds"] / r["tokens"]
            for ours, r in zip(results["bert_tf"], found, strict=True)
        )
        print(f"| {name} | {rates[0]:,.0f} | {rates[1]:,.0f} | {ratio:.2f} |")


def _time(options: BenchmarkConfig, variant: Callable) -> dict[str, float]:
    """Times steps."""
    import tensorflow as tf

    from bert_tf.checkpoints import Checkpoint
    from tasks.classification import Classification

    encoder = Checkpoint.untrained(options.size, options.vocabulary)
    task = Classification(
        Classification.Config(
            task=options.task,
            data_dir=options.data_dir,
            max_sequence_length=_PADDED_LENGTH,
            output="",
        ),
        encoder,
    )
    split = task.dataset("train")
    count = options.batch_size * options.batches
    chosen = np.random.default_rng(0).choice(len(split), count, replace=False)
    inputs = {name: tf.gather(column, chosen) for name, column in split.inputs.items()}
    if options.lengths:
        length = int(options.lengths)
        inputs = {
            name: tf.ragged.stack([np.resize(row, length) for row in column])
            for name, column in inputs.items()
        }
    split = dataclasses.replace(
        split, inputs=inputs, targets=tf.gather(split.targets, chosen)
    )
    seconds = variant(options, task, split, encoder.architecture)
    return {**seconds, "tokens": int(split.lengths.sum()), "examples": count}


def _time_steps(batches: Sequence, step: Callable) -> dict[str, float]:
    for batch in batches:  # Traces the step for each shape.
        step(batch)
    start, cpu_start = time.perf_counter(), time.process_time()
    for batch in batches:
        step(batch)
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu_start,
    }


def _bert_tf(options, task, split, architecture):
    from bert_tf.finetuning import batches
    from bert_tf.modeling import BertBackbone

    model = task.served_head().build(BertBackbone(architecture))
    dataset = batches(split, options.batch_size, max_length=_padded_length(options))
    return _time_steps(list(dataset), _keras_step(model))


def _keras_hub(options, task, split, architecture):
    import keras

    backbone = peers.keras_hub_backbone(architecture)
    dropout = keras.layers.Dropout(0.1)(backbone.output["pooled_output"])
    logits = keras.layers.Dense(len(task.labels))(dropout)
    model = keras.Model(backbone.input, logits)
    batches = []
    for rows in _rows(options):
        padded = peers.padded_rows(split.inputs, rows, _padded_length(options))
        labels = np.asarray(split.targets)[rows]
        weights = np.full(len(rows), 1 / len(rows), "float32")
        batches.append((padded, labels, weights))
    return _time_steps(batches, _keras_step(model))


def _keras_step(model) -> Callable:
    import keras
    import tensorflow as tf

    from bert_tf.training import AdamW

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    model.compile(AdamW(1e-5), loss=loss, jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    model.make_train_function()

    def step(batch):
        model.train_function(iter(tf.data.Dataset.from_tensors(batch)))

    return step


def _transformers(options, task, split, architecture):
    batches = []
    for rows in _rows(options):
        length = int(split.lengths[rows].max())
        padded = peers.padded_rows(split.inputs, rows, length)
        batches.append((padded, np.asarray(split.targets)[rows]))
    arguments = architecture, len(task.labels), batches
    return peers.in_new_process(_time_transformers, *arguments)


def _time_transformers(architecture, num_labels, arrays):
    import torch
    import transformers

    encoder = transformers.BertForSequenceClassification(
        peers.transformers_config(architecture, num_labels=num_labels)
    ).train()
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-5)
    batches = [
        peers.transformers_inputs(padded) | {"labels": torch.tensor(labels).long()}
        for padded, labels in arrays
    ]

    def step(batch):
        encoder(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return _time_steps(batches, step)


def _rows(options: BenchmarkConfig) -> Sequence[np.ndarray]:
    return np.split(np.arange(options.batch_size * options.batches), options.batches)


def _padded_length(options: BenchmarkConfig) -> int:
    return int(options.lengths or _PADDED_LENGTH)


VARIANTS = {
    "bert_tf": _bert_tf,
    "KerasHub": _keras_hub,
    "transformers": _transformers,
}


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
