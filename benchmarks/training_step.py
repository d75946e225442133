# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times the pre-training step against KerasHub's and against the matmul peak.

    python -m benchmarks.training_step

Each variant runs in a process of its own; the rounds go through all variants in turn,
so that a change of the machine's speed falls on all. What is printed: the median of
the steps' seconds, tokens per second, the ratio to KerasHub in float32, and the share
of the peak: that of a matmul of the model's shapes, timed in the same process.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import subprocess
import sys
import time

from bert_tf import config, flops

_PREDICTIONS = 20  # Masked tokens in a sequence of 128, as in google-research/bert.


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(config.Options):
    """Options of `python -m benchmarks.training_step`."""

    size: str = config.option("small", help="Architecture.")
    vocabulary_size: int = config.option(30_522, help="Rows of the token embedding.")
    batch_size: int = config.option(16, help="Sequences in a step.", minimum=1)
    length: int = config.option(128, help="Tokens in a sequence.", minimum=8)
    steps: int = config.option(8, help="Timed steps of a variant in a round.")
    rounds: int = config.option(3, help="Rounds through all variants.", minimum=1)
    variant: str = config.option(
        "", help="Time this variant only and print JSON; the benchmark uses it."
    )


VARIANTS = {
    "KerasHub float32": ("keras_hub", "float32", False),
    "bert_tf float32": ("bert_tf", "float32", False),
    "bert_tf float32, XLA": ("bert_tf", "float32", True),
    "KerasHub mixed_bfloat16": ("keras_hub", "mixed_bfloat16", False),
    "bert_tf mixed_bfloat16": ("bert_tf", "mixed_bfloat16", False),
}


def main(options: BenchmarkConfig) -> None:
    if options.variant:
        print(json.dumps(_time(options, *VARIANTS[options.variant])))
        return
    results: dict[str, list[dict]] = {name: [] for name in VARIANTS}
    flags = [
        f"--{name}={value}"
        for name, value in options.to_dict().items()
        if name != "variant"
    ]
    for _ in range(options.rounds):
        for name, found in results.items():
            command = [sys.executable, "-m", "benchmarks.training_step", *flags]
            output = subprocess.run(
                [*command, f"--variant={name}"], capture_output=True, check=True
            ).stdout
            found.append(json.loads(output.splitlines()[-1]))
    print(
        f"{options.size}, {options.batch_size} sequences of {options.length} tokens, "
        f"{_gflop(options):.0f} GFLOP a step; medians of {options.rounds} rounds\n\n"
        "| | s/step | tokens/s | speed against KerasHub float32 | matmul GFLOP/s | "
        "share of it |\n|---|---|---|---|---|---|"
    )
    baseline = [r["seconds"] for r in results["KerasHub float32"]]
    for name, found in results.items():
        seconds = statistics.median(r["seconds"] for r in found)
        peak = statistics.median(r["peak"] for r in found)
        ratio = statistics.median(b / r["seconds"] for b, r in zip(baseline, found))
        tokens = options.batch_size * options.length / seconds
        share = _gflop(options) / seconds / peak
        print(
            f"| {name} | {seconds:.2f} | {tokens:,.0f} | {ratio:.2f} | {peak:.0f} | "
            f"{share:.0%} |"
        )


def _gflop(options: BenchmarkConfig) -> float:
    bert = config.BertConfig.from_size(options.size, options.vocabulary_size)
    return 1e-9 * flops.training_step(
        bert,
        rows=options.batch_size,
        length=options.length,
        predictions=_PREDICTIONS,
    )


def _time(options: BenchmarkConfig, library: str, dtype: str, xla: bool) -> dict:
    import numpy as np
    import tensorflow as tf

    from bert_tf.optimization import AdamW

    build = {"bert_tf": _bert_tf, "keras_hub": _keras_hub}[library]
    model = build(options, dtype)
    model.compile(AdamW(1e-4), jit_compile=xla, **_losses())
    rng = np.random.default_rng(0)
    shape = (options.batch_size, options.length)
    predictions = (options.batch_size, _PREDICTIONS)
    ids = rng.integers(5, options.vocabulary_size, shape, dtype="int32")
    x = {
        "token_ids": ids,
        "segment_ids": np.broadcast_to(np.arange(shape[1]) > shape[1] // 2, shape) + 0,
        "padding_mask": np.ones_like(ids),
        "mask_positions": rng.integers(1, shape[1], predictions, dtype="int32"),
    }
    y = {
        "mlm": rng.integers(5, options.vocabulary_size, predictions, dtype="int32"),
        "nsp": rng.integers(0, 2, shape[:1], dtype="int32"),
    }
    weights = {name: np.full(y[name].shape, 1 / y[name].size, "float32") for name in y}
    dataset = tf.data.Dataset.from_tensors((x, y, weights)).repeat()
    model.make_train_function()
    iterator = iter(dataset)
    for _ in range(2):
        model.train_function(iterator)
    seconds = []
    for _ in range(options.steps):
        start = time.perf_counter()
        model.train_function(iterator)
        seconds.append(time.perf_counter() - start)
    bert = config.BertConfig.from_size(options.size, options.vocabulary_size)
    dtype = "bfloat16" if "bfloat16" in dtype else "float32"
    peak = flops.peak(bert, options.batch_size * options.length, dtype) / 1e9
    return {"seconds": statistics.median(seconds), "peak": peak}


def _losses() -> dict:
    """For both libraries the losses and metrics of `BertPretrainer.compile`."""
    import keras

    heads = ("mlm", "nsp")
    loss = keras.losses.SparseCategoricalCrossentropy
    accuracy = keras.metrics.SparseCategoricalAccuracy
    return {
        "loss": {head: loss(from_logits=True, reduction="sum") for head in heads},
        "weighted_metrics": {head: [accuracy(name="accuracy")] for head in heads},
    }


def _bert_tf(options: BenchmarkConfig, dtype: str):
    from bert_tf.model import BertBackbone, BertPretrainer

    bert = config.BertConfig.from_size(options.size, options.vocabulary_size)
    return BertPretrainer(BertBackbone(bert, dtype=dtype))


def _keras_hub(options: BenchmarkConfig, dtype: str):
    import keras
    import keras_hub

    bert = config.BertConfig.from_size(options.size, options.vocabulary_size)
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=bert.vocabulary_size,
        num_layers=bert.num_layers,
        num_heads=bert.num_heads,
        hidden_dim=bert.hidden_dim,
        intermediate_dim=bert.intermediate_dim,
        dtype=dtype,
    )
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


if __name__ == "__main__":
    config.run(main, BenchmarkConfig)
