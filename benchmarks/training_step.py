# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times the pre-training step against KerasHub and transformers + torch.

    python -m benchmarks.training_step --packed=wiki128 --unpacked=wiki128-unpacked

Both folders hold records of the same text: `bert_tf.corpus` made the second one with
`--pack=false`. bert_tf trains on packed rows, the peers on one padded pair per row.
Prints tokens without padding per second of wall time and of processor time, and the
speed relative to KerasHub float32, medians over the rounds. The matmuls of a step alone
show how much faster it could be. Skips transformers and JAX if not installed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import measure, peers
from bert_tf import cli, data
from bert_tf.modeling import BertConfig

_BASELINE, _BFLOAT16 = "KerasHub float32", "mixed_bfloat16"


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(cli.Options):
    """Options of `python -m benchmarks.training_step`."""

    packed: str = cli.option(help="Folder of packed records.")
    unpacked: str = cli.option(help="Records of the same text, one pair per row.")
    size: str = cli.option("small", help="Architecture.")
    batch_size: int = cli.option(16, help="Rows per step.", minimum=1)
    steps: int = cli.option(8, help="Steps per variant and round.", minimum=1)
    rounds: int = cli.option(3, help="Number of rounds.", minimum=1)
    variants: str = cli.option("", help="Run only variants whose names contain this.")


def main(options: BenchmarkConfig) -> None:
    """Prints the table."""
    records = {"packed": options.packed, "unpacked": options.unpacked}
    read = {
        name: measure.in_process(_read, path, options) for name, path in records.items()
    }
    variants = {
        name: (package, build, *read[rows], *arguments)
        for name, (package, build, rows, *arguments) in VARIANTS.items()
        if options.variants in name or name == _BASELINE
    }
    print(f"{options.size}, {options.batch_size} rows a step")
    measure.print_rates(variants, options.rounds, _BASELINE)


def _read(path: str, options: BenchmarkConfig) -> tuple[list[tuple], BertConfig]:
    """Returns batches and the architecture for their vocabulary."""
    records = data.Records(path)
    batches = records.dataset(batch_size=options.batch_size).take(options.steps)
    bert = BertConfig.from_size(options.size, records.vocabulary.size)
    return list(batches.as_numpy_iterator()), bert


def _bert_tf(
    batches: Sequence[tuple], bert: BertConfig, dtype: str, xla: bool = False
) -> Callable:
    from bert_tf import modeling

    model = modeling.BertPretrainer(modeling.BertBackbone(bert, dtype=dtype))
    return peers.keras_step(model, batches, jit_compile=xla)


def _on_jax(batches: Sequence[tuple], bert: BertConfig, dtype: str) -> Callable:
    os.environ["KERAS_BACKEND"] = "jax"  # Before Keras is imported.
    import tensorflow as tf

    from bert_tf import modeling, training

    devices = training.create_devices("default", dtype)
    model = modeling.BertPretrainer(modeling.BertBackbone(bert, dtype=dtype))
    model.compile(training.AdamW(1e-4))
    training.create_training_variables(model)
    steps = devices.steps(model, 0)
    datasets = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return lambda number: bool(steps.run(steps.distribute(datasets[number]), 1).any())


def _keras_hub(batches: Sequence[tuple], bert: BertConfig, dtype: str) -> Callable:
    import keras
    import keras_hub

    backbone = peers.keras_hub_backbone(bert, dtype)
    head = keras_hub.layers.MaskedLMHead(
        vocabulary_size=bert.vocabulary_size,
        token_embedding=backbone.token_embedding,
        intermediate_activation=lambda x: keras.activations.gelu(x, approximate=True),
        dtype=dtype,
    )
    positions = keras.Input((None,), dtype="int32", name="mask_positions")
    encoded = backbone(backbone.input)
    outputs = {
        "mlm": head(encoded["sequence_output"], mask_positions=positions),
        "nsp": keras.layers.Dense(2, dtype="float32")(encoded["pooled_output"]),
    }
    model = keras.Model(backbone.input | {"mask_positions": positions}, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accuracy = [keras.metrics.SparseCategoricalAccuracy() for _ in outputs]
    return peers.keras_step(
        model,
        [_without_row_axis(*batch) for batch in batches],
        loss=dict.fromkeys(outputs, loss),
        weighted_metrics={name: [x] for name, x in zip(outputs, accuracy)},
        jit_compile=False,
    )


def _without_row_axis(x, y, weights) -> tuple:
    """Returns the batch for a model that takes one pair per row."""
    x = {name: value for name, value in x.items() if name != "first_positions"}
    y, weights = (d | {"nsp": d["nsp"][:, 0]} for d in (y, weights))
    return x, y, weights


def _torch(batches: Sequence[tuple], bert: BertConfig) -> Callable:
    import transformers

    model = transformers.BertForPreTraining(peers.transformers_config(bert))
    return peers.torch_step(model, [peers.transformers_batch(*b) for b in batches])


def _matmuls(batches: Sequence[tuple], bert: BertConfig) -> Callable:
    """Returns the matmuls of a step, forward and backward: a limit of its speed."""
    import tensorflow as tf

    x = batches[0][0]
    (rows, length), predictions = x["token_ids"].shape, x["mask_positions"].size
    hidden, heads = bert.hidden_dim, (rows, bert.num_heads)
    inner = bert.intermediate_dim
    of_tokens = (hidden, 3 * hidden), (hidden, hidden), (hidden, inner), (inner, hidden)
    shapes = [((rows * length, m), (m, n)) for m, n in of_tokens]
    scores, size = (*heads, length, length), hidden // bert.num_heads
    keys, values = (*heads, size, length), (*heads, length, size)
    shapes += [(values, keys), (scores, values)]
    shapes = shapes * bert.num_layers
    shapes += [((predictions, hidden), (hidden, bert.vocabulary_size))]
    pairs = [[tf.Variable(tf.random.normal(x)) for x in pair] for pair in shapes]

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            y = [tf.matmul(*pair) for pair in pairs]
        return tape.gradient(y, pairs, output_gradients=y)

    return lambda number: bool(step())


# Name -> package that it needs, function, records, its other arguments.
VARIANTS: dict[str, tuple[Any, ...]] = {
    _BASELINE: ("keras_hub", _keras_hub, "unpacked", "float32"),
    "transformers + torch float32": ("torch", _torch, "unpacked"),
    "bert_tf float32": ("keras", _bert_tf, "packed", "float32"),
    "the matmuls of bert_tf float32": ("keras", _matmuls, "packed"),
    "bert_tf float32, XLA": ("keras", _bert_tf, "packed", "float32", True),
    "bert_tf float32, JAX": ("jax", _on_jax, "packed", "float32"),
    "KerasHub mixed_bfloat16": ("keras_hub", _keras_hub, "unpacked", _BFLOAT16),
    "bert_tf mixed_bfloat16": ("keras", _bert_tf, "packed", _BFLOAT16),
    "bert_tf mixed_bfloat16, JAX": ("jax", _on_jax, "packed", _BFLOAT16),
}


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
