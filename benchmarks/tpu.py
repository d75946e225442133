# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the pre-training step for TPUs, without a TPU, and bounds its time.

    pip install jax==0.10.2 libtpu==0.0.42.1
    python -m benchmarks.tpu --strategy=v5e-8 --size=base --output=benchmarks/tpu.csv

The compiler is libtpu's, the step is that of the JAX backend of Keras, lowered for all
chips of a slice, with the all-reduce of the gradients in it. Memory and FLOP are the
compiler's; bytes are counted in the compiled program; times are lower bounds from the
published figures of the chips. --output appends a row to a CSV file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import re
import time
from typing import Any, NamedTuple

import numpy as np

from bert_tf import cli, data, modeling

_GIB = 2**30


@dataclasses.dataclass(frozen=True, kw_only=True)
class TpuConfig(cli.Options):
    """Options of `python -m benchmarks.tpu`."""

    strategy: str = cli.option("v5e-8", help="Chip and number of chips.")
    size: str = cli.option("base", help="Architecture.")
    vocabulary_size: int = cli.option(30_522, help="Size of the vocabulary.")
    length: int = cli.option(128, help="Tokens per row.", minimum=8)
    batch_size: int = cli.option(256, help="Rows per step, all chips.", minimum=1)
    micro_batch_size: int = cli.option(0, help="As in bert_tf.pretrain.", minimum=0)
    recompute: bool = cli.option(False, help="As in bert_tf.pretrain.")
    optimizer: str = cli.option(
        "adamw", help="As in bert_tf.pretrain.", choices=("adamw", "lamb", "muon")
    )
    precision: str = cli.option("mixed_bfloat16", help="As in bert_tf.pretrain.")
    evaluation: bool = cli.option(False, help="Compile the forward pass and metrics.")
    output: str = cli.option("", help="CSV file.")


class Chip(NamedTuple):
    """Figures of cloud.google.com/tpu/docs, per chip.

    Attributes:
        flops: bfloat16 FLOP/s.
        memory: Bytes of HBM.
        bandwidth: Bytes/s of the HBM.
        interconnect: Bytes/s that all links send.
        dimensions: Of the torus of chips.
    """

    flops: float
    memory: float
    bandwidth: float
    interconnect: float
    dimensions: int


CHIPS = {
    "v4": Chip(275e12, 32 * _GIB, 1228e9, 300e9, 3),
    "v5e": Chip(197e12, 16 * _GIB, 819e9, 200e9, 2),
    "v5p": Chip(459e12, 95 * _GIB, 2765e9, 600e9, 3),
    "v6e": Chip(918e12, 32 * _GIB, 1640e9, 400e9, 2),
    "tpu7x": Chip(2307e12, 192 * _GIB, 7380e9, 600e9, 3),
}


def main(options: TpuConfig) -> None:
    """Compiles one step and prints its figures."""
    # Before Keras and JAX are imported. The variables are on the CPU.
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    start = time.process_time()
    row = measure(options) | {"compilation_s": round(time.process_time() - start)}
    for name, value in row.items():
        print(f"{name:<22} {value}")
    if options.output:
        path = pathlib.Path(options.output)
        rows = list(data.read_table(path)) if path.exists() else []
        data.write_table(path, [*rows, row])


def measure(options: TpuConfig) -> dict[str, Any]:
    """Returns the figures of a step: options, memory per device, bounds of its time.

    `all_reduce_ms` is for a torus whose links are all busy. The total assumes that it
    does not overlap with the computation.
    """
    chip, chips, devices = tpu_slice(options.strategy)
    program, count = compile_step(options), len(devices)
    cores, sent = count // chips, 2 * (chips - 1) / chips * program.all_reduce
    seconds = {
        "compute": cores * program.flops / chip.flops,
        "memory": cores * program.bytes / chip.bandwidth,
        "all_reduce": sent / chip.interconnect,
    }
    computation = max(seconds["compute"], seconds["memory"])
    seconds["total"] = total = computation + seconds["all_reduce"]
    flops = step_flops(_architecture(options), options.batch_size, options.length)
    flops /= 3 if options.evaluation else 1  # Without the backward pass.
    return {k: v for k, v in options.to_dict().items() if k != "output"} | {
        "memory_gib": round(program.memory / _GIB, 2),
        "device_gib": chip.memory * chips / count / _GIB,
        "flop": f"{program.flops:.3g}",
        "hbm_gb": round(program.bytes / 1e9, 1),
        "all_reduce_mb": round(program.all_reduce / 1e6),
        **{f"{part}_ms": round(1e3 * value, 1) for part, value in seconds.items()},
        "tokens_per_s": round(options.batch_size * options.length / total),
        "mfu": round(flops / (chips * chip.flops * total), 2),
    }


def _architecture(options: TpuConfig) -> modeling.BertConfig:
    return modeling.BertConfig.from_size(options.size, options.vocabulary_size)


@functools.cache
def tpu_slice(text: str) -> tuple[Chip, int, list[Any]]:
    """Returns chip, number of chips, and devices of e.g. "v5e-8".

    A chip has one or two devices.

    Raises:
        ValueError: The chip is unknown, the number is not a power of two, or libtpu is
            missing or knows no such slice.
    """
    name, _, count = text.rpartition("-")
    chips = int(count) if count.isdigit() else 0
    if name not in CHIPS or chips < 1 or chips & (chips - 1):
        raise ValueError(
            f"--strategy must be one of {', '.join(CHIPS)} and a number of chips, a "
            f"power of two, e.g. v5e-8. Received: strategy={text!r}"
        )
    shape = [1] * CHIPS[name].dimensions
    while math.prod(shape) < max(chips, 4):  # libtpu describes hosts of four chips.
        shape[shape.index(min(shape))] *= 2
    shape.sort(key=lambda size: (size == 1, size))
    # Any type of TPU: without one, libtpu asks a metadata server.
    os.environ |= {"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-4"}
    os.environ |= {"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "localhost"}
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "true"  # No process uses a TPU.
    from jax.experimental import topologies

    topology = f"{name}:{'x'.join(map(str, shape))}"
    try:
        found = topologies.get_topology_desc(topology, "tpu").devices
    except (RuntimeError, FileNotFoundError) as error:
        fix = "Run: pip install libtpu==0.0.42.1"
        message = f"libtpu cannot describe the slice {topology}: {error}. {fix}"
        raise ValueError(message) from error
    return CHIPS[name], chips, list(found)[: len(found) * chips // math.prod(shape)]


class Program(NamedTuple):
    """A compiled step.

    Attributes:
        memory: Bytes per device that it needs.
        flops: Per device and step, counted by the compiler.
        bytes: Read and written per device and step.
        all_reduce: Bytes per device that all-reduces sum.
    """

    memory: float
    flops: float
    bytes: float
    all_reduce: float


def compile_step(options: TpuConfig) -> Program:
    """Compiles a step of training or evaluation.

    Raises:
        ValueError: It does not compile, e.g. because it needs too much memory.
    """
    import jax
    import keras

    from bert_tf import training

    _, _, devices = tpu_slice(options.strategy)
    keras.distribution.set_distribution(None)  # The variables are on the CPU.
    settings = {"recompute": options.recompute, "dtype": options.precision}
    backbone = modeling.BertBackbone(_architecture(options), **settings)
    model = modeling.BertPretrainer(backbone)
    optimizer = training.create_optimizer(options, training.WarmupDecay(1e-4, 1, 10))
    model.compile(optimizer)
    training.create_training_variables(model)
    distribution = keras.distribution.DataParallel(devices=devices)

    def describe(value, layout):
        sharding = layout.backend_layout
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)

    state = [
        [describe(v, distribution.get_variable_layout(v)) for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            *([] if options.evaluation else [optimizer.variables]),
            model.metrics_variables,
        )
    ]
    batch = keras.tree.map_structure(
        lambda value: describe(value, distribution.get_data_layout(value.shape)),
        empty_batch(options.batch_size, options.length),
    )
    step = training.jax_step(model, options.micro_batch_size)
    step = model.test_step if options.evaluation else step
    shardings = keras.tree.map_structure(lambda value: value.sharding, tuple(state))
    step = jax.jit(step, donate_argnums=0, out_shardings=(None, shardings))
    with distribution.scope():
        lowered = step.lower(tuple(state), batch)
    iterations = 1
    if options.micro_batch_size and not options.evaluation:
        rows = options.batch_size // len(devices)
        iterations = max(rows // options.micro_batch_size, 1)
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        message = f"The step does not compile: {str(error)[:3000]}"
        raise ValueError(message) from error
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    used = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    used += memory.output_size_in_bytes - memory.alias_size_in_bytes
    moved = math.nan, math.nan
    # A jaxlib cannot read all programs of a newer libtpu.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        moved = traffic(compiled.as_text(), iterations)
    # The compiler counts one iteration of the loop over micro-batches.
    return Program(used, cost["flops"] * iterations, *moved)


def traffic(program: str, iterations: int) -> tuple[float, float]:
    """Returns the bytes that a program moves from and to HBM, and that it all-reduces.

    Counts operands and results outside of the on-chip memory, once per use. The
    compiler's own "bytes accessed" include on-chip memory.

    Args:
        program: A scheduled HLO module.
        iterations: Of each loop.
    """
    computations = dict(
        re.findall(r"^(ENTRY|%[\w.-]+) .*?\{\n(.*?)^\}", program, re.M | re.S)
    )

    def walk(name: str) -> tuple[float, float]:
        in_hbm, total, reduced = {}, 0.0, 0.0
        for result, shape, operation, operands, attributes in re.findall(
            r"^ +(?:ROOT )?(%\S+) = (.*?) ([a-z-]+)\((.*?)\)(.*)$",
            computations[name],
            re.M,
        ):
            in_hbm[result] = _size(shape, on_chip=False)
            if operation in ("while", "call-start"):  # A call: to a SparseCore.
                times = iterations if operation == "while" else 1
                called = re.search(r"(?:body|to_apply)=(%[\w.-]+)", attributes)[1]
                inner = walk(called)
                total += times * inner[0]
                reduced += times * inner[1]
            elif operation.endswith("-done"):  # Of an asynchronous copy.
                total += _size(shape)
            elif operation not in _FREE and not operation.endswith("-start"):
                names = re.findall(r"%[\w.-]+", operands)
                total += in_hbm[result] + sum(in_hbm.get(name, 0) for name in names)
            if operation in ("all-reduce", "all-reduce-start"):
                reduced += _size(shape)
        return total, reduced

    return walk("ENTRY")


_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape")


def _size(shapes: str, *, on_chip: bool = True) -> float:
    """Returns the bytes of tensors such as "f32[8,128]{1,0:S(1)}", S(1) is on-chip."""
    total = 0.0
    for bits, dimensions, layout in re.findall(
        r"[a-z]+(\d*)\w*\[([\d,]*)\](?:\{(.*?)\})?", shapes
    ):
        if on_chip or "S(" not in layout:
            numbers = map(int, filter(None, dimensions.split(",")))
            total += int(bits or 8) / 8 * math.prod(numbers)
    return total


# --- Arithmetic of a step --------------------------------------------------------


def predictions(length: int) -> int:
    """Returns the number of predicted tokens of a row, 15 %."""
    return math.ceil(length * 15 / 100)


def empty_batch(rows: int, length: int) -> tuple[dict[str, np.ndarray], ...]:
    """Returns `(x, y, sample_weight)` of rows with one pair each."""
    masked, pairs = (rows, predictions(length)), (rows, 1)
    x = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), (rows, length))
    x |= {"mask_positions": masked, "first_positions": pairs}
    y = {"mlm": masked, "nsp": pairs}
    return tuple(
        {name: np.zeros(shape, dtype) for name, shape in shapes.items()}
        for shapes, dtype in ((x, "int32"), (y, "int32"), (y, "float32"))
    )


def step_flops(bert: modeling.BertConfig, rows: int, length: int) -> float:
    """Returns the floating-point operations of one pre-training step.

    Counts the multiplications and additions of all matmuls; the backward pass takes
    twice as many as the forward pass. Padding counts, recomputation does not.

    Args:
        bert: The architecture of the encoder.
        rows: Sequences, or packed rows, per step.
        length: Tokens per row, 15 % of them masked.
    """
    hidden = bert.hidden_dim
    dense = (4 * hidden + 2 * bert.intermediate_dim) * hidden
    attention = 2 * length * hidden
    encoder = length * bert.num_layers * (dense + attention)
    head = predictions(length) * hidden * (hidden + bert.vocabulary_size)
    return 3.0 * 2 * rows * (encoder + head)


if __name__ == "__main__":
    cli.run(main, TpuConfig)
