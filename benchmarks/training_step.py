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
import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import measure, peers
from bert_tf import cli
from bert_tf.modeling import BertConfig

_BASELINE = "KerasHub float32"


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
    batches = {
        name: measure.in_process(_read, path, options.batch_size, options.steps)
        for name, path in records.items()
    }
    workers, tokens = {}, {}
    for name, (build, library, rows, *arguments) in VARIANTS.items():
        is_chosen = options.variants in name or name == _BASELINE
        if is_chosen and importlib.util.find_spec(library):
            vocabulary_size, found = batches[rows]
            bert = BertConfig.from_size(options.size, vocabulary_size)
            backend = "jax" if library == "jax" else "tensorflow"
            environment = {"KERAS_BACKEND": backend}
            workers[name] = measure.Worker(
                build, bert, found, *arguments, **environment
            )
            tokens[name] = [int((x["padding_mask"] > 0).sum()) for x, _, _ in found]
    print(f"{options.size}, {options.batch_size} rows a step")
    measure.print_rates(workers, tokens, options.rounds, _BASELINE)


def _read(records: str, batch_size: int, count: int) -> tuple[int, list[tuple]]:
    """Returns the size of the vocabulary and `count` batches."""
    from bert_tf import data

    opened = data.Records(records)
    batches = opened.dataset(batch_size=batch_size).take(count)
    return opened.vocabulary.size, list(batches.as_numpy_iterator())


def _bert_tf(
    bert: BertConfig, batches: Sequence[tuple], dtype: str, xla: bool = False
) -> Callable:
    from bert_tf import modeling

    model = modeling.BertPretrainer(modeling.BertBackbone(bert, dtype=dtype))
    return peers.keras_step(model, batches, jit_compile=xla)


def _on_jax(bert: BertConfig, batches: Sequence[tuple], dtype: str) -> Callable:
    import tensorflow as tf

    from bert_tf import modeling, training

    devices = training.create_devices("default", dtype)
    model = modeling.BertPretrainer(modeling.BertBackbone(bert, dtype=dtype))
    model.compile(training.AdamW(1e-4))
    training.create_training_variables(model)
    steps = devices.steps(model, 0)
    datasets = [tf.data.Dataset.from_tensors(batch) for batch in batches]
    return lambda number: bool(steps.run(steps.distribute(datasets[number]), 1).any())


def _keras_hub(bert: BertConfig, batches: Sequence[tuple], dtype: str) -> Callable:
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


def _torch(bert: BertConfig, batches: Sequence[tuple]) -> Callable:
    import transformers

    model = transformers.BertForPreTraining(peers.transformers_config(bert))
    return peers.torch_step(model, [peers.transformers_batch(*b) for b in batches])


def _matmuls(bert: BertConfig, batches: Sequence[tuple]) -> Callable:
    """Returns the matmuls of a step, forward and backward: a limit of its speed."""
    import tensorflow as tf

    x = batches[0][0]
    (rows, length), predictions = x["token_ids"].shape, x["mask_positions"].size
    hidden, heads = bert.hidden_dim, (rows, bert.num_heads)
    of_tokens = [(hidden, 3 * hidden), (hidden, hidden)]  # The attention.
    of_tokens += [(hidden, bert.intermediate_dim), (bert.intermediate_dim, hidden)]
    shapes = [((rows * length, m), (m, n)) for m, n in of_tokens]
    scores, size = (*heads, length, length), hidden // bert.num_heads
    shapes += [((*heads, length, size), (*heads, size, length))]
    shapes += [(scores, (*heads, length, size))]
    shapes = shapes * bert.num_layers
    shapes += [((predictions, hidden), (hidden, bert.vocabulary_size))]
    pairs = [[tf.Variable(tf.random.normal(x)) for x in pair] for pair in shapes]

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            y = [tf.matmul(*pair) for pair in pairs]
        return tape.gradient(y, pairs, output_gradients=y)

    return lambda number: bool(step())


# Name -> function, package that it needs, records, arguments of the function.
VARIANTS: dict[str, tuple[Any, ...]] = {
    _BASELINE: (_keras_hub, "keras_hub", "unpacked", "float32"),
    "transformers + torch float32": (_torch, "torch", "unpacked"),
    "bert_tf float32": (_bert_tf, "keras", "packed", "float32"),
    "the matmuls of bert_tf float32": (_matmuls, "keras", "packed"),
    "bert_tf float32, XLA": (_bert_tf, "keras", "packed", "float32", True),
    "bert_tf float32, JAX": (_on_jax, "jax", "packed", "float32"),
    "KerasHub mixed_bfloat16": (
        *(_keras_hub, "keras_hub", "unpacked", "mixed_bfloat16"),
    ),
    "bert_tf mixed_bfloat16": (_bert_tf, "keras", "packed", "mixed_bfloat16"),
    "bert_tf mixed_bfloat16, JAX": (_on_jax, "jax", "packed", "mixed_bfloat16"),
}


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
