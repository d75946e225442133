# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times the pre-training step against KerasHub and transformers + torch.

    python -m benchmarks.training_step --packed=wiki128 --unpacked=wiki128-unpacked

Both folders hold records of the same text: `bert_tf.corpus` made the second one with
`--pack=false`. bert_tf trains on packed rows, the peers on one padded pair per row.
Each variant runs in its own process. Each round runs all variants, so that changes of
the machine's speed affect all of them. Prints the medians of wall time and processor
time per step, the real tokens per second, and the speed relative to KerasHub float32
(by processor time, which is less affected by other programs). Skips transformers and
JAX if not installed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import peers
from bert_tf import cli
from bert_tf.modeling import BertConfig

_BATCHES = 4  # The steps cycle through them.


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(cli.Options):
    """Options of `python -m benchmarks.training_step`."""

    packed: str = cli.option(help="Folder of packed records.")
    unpacked: str = cli.option(help="Records of the same text, one pair per row.")
    size: str = cli.option("small", help="Architecture.")
    batch_size: int = cli.option(16, help="Rows per step.", minimum=1)
    steps: int = cli.option(8, help="Timed steps per variant and round.")
    rounds: int = cli.option(3, help="Number of rounds.", minimum=1)
    variants: str = cli.option("", help="Run only variants whose names contain this.")
    variant: str = cli.option(
        "", help="Time one variant and print JSON; for internal use."
    )


VARIANTS = {
    "KerasHub float32": ("keras_hub", "float32", False),
    "transformers + torch float32": ("torch", "float32", False),
    "bert_tf float32": ("bert_tf", "float32", False),
    "bert_tf float32, XLA": ("bert_tf", "float32", True),
    "bert_tf float32, JAX": ("jax", "float32", True),
    "KerasHub mixed_bfloat16": ("keras_hub", "mixed_bfloat16", False),
    "bert_tf mixed_bfloat16": ("bert_tf", "mixed_bfloat16", False),
    "bert_tf mixed_bfloat16, JAX": ("jax", "mixed_bfloat16", True),
}


def main(options: BenchmarkConfig) -> None:
    if options.variant:
        print(json.dumps(_time(options, *VARIANTS[options.variant])))
        return
    results: dict[str, list[dict]] = {
        name: []
        for name, (library, *_) in VARIANTS.items()
        if (options.variants in name or name == "KerasHub float32")
        and (library not in ("torch", "jax") or importlib.util.find_spec(library))
    }
    flags = [
        f"--{name}={value}"
        for name, value in options.to_dict().items()
        if name not in ("variant", "variants")
    ]
    for _ in range(options.rounds):
        for name, found in results.items():
            command = [sys.executable, "-m", "benchmarks.training_step", *flags]
            backend = "jax" if VARIANTS[name][0] == "jax" else "tensorflow"
            output = subprocess.run(
                [*command, f"--variant={name}"],
                env=os.environ | {"KERAS_BACKEND": backend},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
            found.append(json.loads(output.splitlines()[-1]))
    print(
        f"{options.size}, {options.batch_size} rows a step; medians of "
        f"{options.rounds} rounds\n\n"
        "| | s/step | processor, s | tokens/s | speed relative to KerasHub float32 |\n"
        "|---|---|---|---|---|"
    )

    def median(found: list[dict], of: Callable[[dict], float]) -> float:
        return statistics.median(of(result) for result in found)

    def cost(result: dict) -> float:
        return result["processor"] / result["tokens"]

    baseline = results["KerasHub float32"]
    for name, found in results.items():
        ratios = (cost(b) / cost(r) for b, r in zip(baseline, found, strict=True))
        print(
            f"| {name} | {median(found, lambda r: r['seconds']):.2f} "
            f"| {median(found, lambda r: r['processor']):.2f} "
            f"| {median(found, lambda r: r['tokens'] / r['seconds']):,.0f} "
            f"| {statistics.median(ratios):.2f} |"
        )


def _time(options: BenchmarkConfig, library: str, dtype: str, xla: bool) -> dict:
    from bert_tf import data

    packed = library in ("bert_tf", "jax")
    records = options.packed if packed else options.unpacked
    records = data.Records(records)
    dataset = records.dataset(batch_size=options.batch_size)
    batches = list(dataset.take(_BATCHES))
    bert = BertConfig.from_size(options.size, records.vocabulary.size)
    if library == "torch":
        arrays = list(dataset.take(_BATCHES).as_numpy_iterator())
        result = peers.in_new_process(_time_torch, bert, arrays, options.steps)
    else:
        step = keras_step(bert, batches, library, dtype, xla)
        result = _time_steps(step, options.steps)
    tokens = sum(int((x["padding_mask"].numpy() > 0).sum()) for x, _, _ in batches)
    return {**result, "tokens": tokens / len(batches)}


def _time_steps(step: Callable, count: int) -> dict[str, float]:
    """Returns the medians of the wall time and the processor time of a step."""
    for _ in range(2):
        step()
    seconds, processor = [], []
    for _ in range(count):
        start = time.perf_counter(), time.process_time()
        step()
        seconds.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return {
        "seconds": statistics.median(seconds),
        "processor": statistics.median(processor),
    }


def keras_step(bert, batches, library: str, dtype: str, xla: bool = False) -> Callable:
    import keras
    import tensorflow as tf

    from bert_tf import modeling
    from bert_tf.training import AdamW

    if library in ("bert_tf", "jax"):
        model = modeling.BertPretrainer(modeling.BertBackbone(bert, dtype=dtype))
        model.compile(AdamW(1e-4), jit_compile=xla)
    else:
        model = _keras_hub(bert, dtype)
        batches = [_without_row_axis(*batch) for batch in batches]
        model.compile(
            AdamW(1e-4),
            jit_compile=xla,
            loss={
                name: keras.losses.SparseCategoricalCrossentropy(from_logits=True)
                for name in model.output
            },
            weighted_metrics={
                name: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
                for name in model.output
            },
        )
    model.optimizer.build(model.trainable_variables)
    if library == "jax":  # Creates the metrics, which are part of the state.
        model.train_on_batch(*tf.nest.map_structure(lambda t: t.numpy(), batches[0]))
    stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
    iterator = iter(tf.data.Dataset.from_tensor_slices(stacked).repeat())
    model.make_train_function()
    if library == "jax":
        return _jax_step(model, stacked)
    return lambda: model.train_function(iterator)


def _jax_step(model, stacked) -> Callable:
    import jax
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(stacked).repeat()
    iterator = dataset.as_numpy_iterator()
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([variable.value for variable in group] for group in groups)

    def step():
        nonlocal state
        _, state = model.train_function(state, iterator)
        jax.block_until_ready(state)

    return step


def _without_row_axis(x, y, weights):
    """The batch for a model that takes one pair per row."""
    x = {name: value for name, value in x.items() if name != "first_positions"}
    y, weights = (d | {"nsp": d["nsp"][:, 0]} for d in (y, weights))
    return x, y, weights


def _keras_hub(bert: BertConfig, dtype: str):
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
    return keras.Model(backbone.input | {"mask_positions": positions}, outputs)


def _time_torch(bert: BertConfig, batches, steps: int) -> dict[str, float]:
    import itertools

    import torch
    import transformers

    model = transformers.BertForPreTraining(peers.transformers_config(bert)).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    cycle = itertools.cycle([peers.transformers_batch(*batch) for batch in batches])

    def step():
        optimizer.zero_grad()
        model(**next(cycle)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return _time_steps(step, steps)


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
