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

Prints tokens without padding per second of wall time and of processor time, medians
over the rounds. With --lengths, all examples have the same length: their tokens are
repeated. Skips transformers if it is not installed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks import measure, peers
from bert_tf import cli, text
from bert_tf.modeling import BertConfig

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
    batches: int = cli.option(16, help="Steps per round.", minimum=1)
    rounds: int = cli.option(3, help="Number of rounds.", minimum=1)


def main(options: BenchmarkConfig) -> None:
    """Prints a table, with --lengths one for each length."""
    for length in map(int, options.lengths.split(",") if options.lengths else [0]):
        bert, batches = measure.in_process(_read, options, length)
        tokens = sum(x["padding_mask"].sum() for x, _, _ in batches["bert_tf"])
        print(
            f"{options.task}, {options.size}, batches of {options.batch_size}, "
            f"{tokens / options.batch_size / options.batches:.0f} tokens per example"
        )
        variants = {
            name: (package, build, batches[name], bert)
            for name, (package, build) in VARIANTS.items()
        }
        measure.print_rates(variants, options.rounds, "KerasHub")


def _read(
    options: BenchmarkConfig, length: int
) -> tuple[BertConfig, dict[str, list[tuple]]]:
    """Returns the architecture, and the batches of each variant."""
    import tensorflow as tf

    from bert_tf.checkpoints import Checkpoint
    from bert_tf.finetuning import batches
    from tasks.classification import Classification

    encoder = Checkpoint.untrained(options.size, options.vocabulary)
    flags = {"task": options.task, "data_dir": options.data_dir, "output": ""}
    config = Classification.Config(**flags, max_sequence_length=_PADDED_LENGTH)
    split = Classification(config, encoder).dataset("train")
    count = options.batch_size * options.batches
    chosen = np.random.default_rng(0).choice(len(split), count, replace=False)
    rows, targets = split.rows[chosen], tf.gather(split.targets, chosen)
    if length:
        rows = _repeated(rows, length - 2)
    split = dataclasses.replace(split, rows=rows, targets=targets)
    padded_length = length or _PADDED_LENGTH
    similar = batches(split, options.batch_size, max_length=padded_length)
    weights = np.full(options.batch_size, 1 / options.batch_size, "float32")

    def in_order(length: int | None) -> list[tuple]:
        """Returns batches padded to `length`, or to their longest example."""
        found = []
        for index in np.split(np.arange(count), options.batches):
            inputs = rows[index].inputs(length)
            inputs = {name: x.numpy() for name, x in inputs.items()}
            found.append((inputs, targets.numpy()[index], weights))
        return found

    return encoder.architecture, {
        "bert_tf": list(similar.as_numpy_iterator()),
        "KerasHub": in_order(padded_length),
        "transformers": in_order(None),
    }


def _repeated(rows: text.Rows, size: int) -> text.Rows:
    """Returns rows of one text each, with `size` of its word pieces, repeated."""
    import tensorflow as tf

    ids, lengths = rows.inputs()["token_ids"].numpy(), rows.lengths.numpy()
    pieces = [np.resize(row[1 : n - 1], size) for row, n in zip(ids, lengths)]
    starts, sizes = size * tf.range(len(ids)), tf.fill([len(ids)], size)
    return text.Rows.create(rows.tokenizer, np.concatenate(pieces), [starts], [sizes])


def _keras_step(model, batches: Sequence[tuple]) -> Callable:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    return peers.keras_step(model, batches, loss=loss, jit_compile=False)


def _num_classes(batches: Sequence[tuple]) -> int:
    return 1 + max(int(targets.max()) for _, targets, _ in batches)


def _bert_tf(batches: Sequence[tuple], bert: BertConfig) -> Callable:
    from bert_tf import BertBackbone, SequenceClassifier

    model = SequenceClassifier(BertBackbone(bert), _num_classes(batches))
    return _keras_step(model, batches)


def _keras_hub(batches: Sequence[tuple], bert: BertConfig) -> Callable:
    import keras_hub

    model = keras_hub.models.BertTextClassifier(
        peers.keras_hub_backbone(bert), _num_classes(batches), preprocessor=None
    )
    return _keras_step(model, batches)


def _transformers(batches: Sequence[tuple], bert: BertConfig) -> Callable:
    import torch
    import transformers

    config = peers.transformers_config(bert, num_labels=_num_classes(batches))
    model = transformers.BertForSequenceClassification(config)
    batches = [
        peers.transformers_inputs(x) | {"labels": torch.tensor(targets).long()}
        for x, targets, _ in batches
    ]
    return peers.torch_step(model, batches)


# Name -> package that it needs, function.
VARIANTS = {
    "bert_tf": ("keras", _bert_tf),
    "KerasHub": ("keras_hub", _keras_hub),
    "transformers": ("transformers", _transformers),
}


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
