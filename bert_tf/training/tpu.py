# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles the training step for TPUs on a machine without one.

The compiler is libtpu's, the step is that of the JAX backend of Keras, lowered for all
chips of a slice, with the all-reduce of the gradients in it. Memory, FLOP and bytes are
the compiler's; times are lower bounds from the published figures of the chips.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import re
from typing import Any

import keras

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone
from bert_tf.training import estimates
from bert_tf.training.jax_step import JaxPretrainer
from bert_tf.training.pretrain_config import Phase, PlanConfig
from bert_tf.training.pretraining import (
    create_optimizer,
    masked_batches,
    resolve_architecture,
)
from bert_tf.training.strategy import create_training_variables

jax = lazy_import("jax")


_GIB = 2**30
_PACKAGE = pathlib.Path(__file__).parents[1]
_LARGEST = 8  # Number of tensors in the message.


@dataclasses.dataclass(frozen=True)
class Chip:
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


def parse_slice(text: str) -> tuple[str, int]:
    """Returns chip and number of chips of e.g. "v5e-8".

    Raises:
        ValueError: The chip is unknown, or the number is not a power of two.
    """
    name, _, count = text.rpartition("-")
    number = int(count) if count.isdigit() else 0
    if name not in CHIPS or number < 1 or number & (number - 1):
        raise ValueError(
            f"--strategy must be one of {', '.join(CHIPS)} and a number of chips, a "
            f"power of two, e.g. v5e-8. Received: strategy={text!r}"
        )
    return name, number


@functools.cache
def devices(name: str, chips: int) -> list[Any]:
    """Returns the devices of a slice; a chip has one or two.

    Raises:
        ValueError: libtpu is missing, or knows no such slice.
    """
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
        raise ValueError(
            f"libtpu cannot describe the slice {topology}: {error}. It is part of "
            "requirements-tpu-plan.txt."
        ) from error
    return list(found)[: len(found) * chips // math.prod(shape)]


@dataclasses.dataclass
class Program:
    """A compiled step, or why it did not compile.

    Attributes:
        memory: Bytes per device that it needs.
        flops: Per device and step, counted by the compiler.
        bytes: Read and written per device and step, counted by the compiler.
        all_reduce: Bytes per device that all-reduces sum.
        error: The compiler's message; empty if it compiled.
    """

    memory: float = math.nan
    flops: float = math.nan
    bytes: float = math.nan
    all_reduce: float = math.nan
    error: str = ""


def compile_step(
    options: PlanConfig, phase: Phase, *, evaluation: bool = False
) -> Program:
    """Compiles a step of a phase of the training, or of its evaluation.

    Args:
        options: See `PlanConfig`.
        phase: Its batch size is that of all chips.
        evaluation: Whether to compile the forward pass with the metrics.
    """
    name, chips = parse_slice(options.strategy)
    keras.distribution.set_distribution(None)  # The variables are on the CPU.
    architecture = resolve_architecture(options, [phase], None)
    backbone = BertBackbone(
        architecture, recompute=options.recompute, dtype=options.precision
    )
    model = JaxPretrainer(backbone)
    optimizer = create_optimizer(options, options.schedule())
    model.compile(optimizer, micro_batch_size=max(options.micro_batch_size, 0))
    create_training_variables(model)
    distribution = keras.distribution.DataParallel(devices=devices(name, chips))

    def describe(value, layout):
        return jax.ShapeDtypeStruct(
            value.shape,
            getattr(value.dtype, "as_numpy_dtype", value.dtype),
            sharding=layout.backend_layout,
        )

    state = [
        [describe(v, distribution.get_variable_layout(v)) for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            *([] if evaluation else [optimizer.variables]),
            model.metrics_variables,
        )
    ]
    batch = keras.tree.map_structure(
        lambda value: describe(value, distribution.get_data_layout(value.shape)),
        masked_batches(options, None, 1, phase).element_spec,
    )
    step = model.test_step if evaluation else model.train_step
    shardings = keras.tree.map_structure(lambda value: value.sharding, tuple(state))
    step = jax.jit(step, donate_argnums=0, out_shardings=(None, shardings))
    with distribution.scope():
        lowered = step.lower(tuple(state), batch)
    iterations = 1
    if options.micro_batch_size > 0 and not evaluation:
        rows = phase.batch_size // len(devices(name, chips))
        iterations = max(rows // options.micro_batch_size, 1)
    try:
        return _program(lowered.compile(), iterations)
    except jax.errors.JaxRuntimeError as error:
        used = re.search(r"(?:Used |required[^(]*\()([\d.]+)([KMG])", str(error))
        scale = {"K": 2**10, "M": 2**20, "G": 2**30}
        memory = float(used[1]) * scale[used[2]] if used else math.nan
        return Program(memory, error=_explain(str(error), lowered))


def _explain(message: str, lowered: Any) -> str:
    """Returns the compiler's message and the lines of our source that it is about.

    If the message names no operation, as when the memory is exhausted, these are the
    largest results in the program.
    """
    program = lowered.as_text(debug_info=True)
    locations = dict(re.findall(r"^(#loc\d*) = loc\((.*)\)$", program, re.MULTILINE))

    def source_line(location: str) -> str:
        """Returns the innermost line of this package, e.g. modeling/fused.py:335."""
        text = locations[location]
        if own := re.search(rf'"{_PACKAGE}/(.*)":(\d+)', text):
            return f"{_PACKAGE.name}/{own[1]}:{own[2]}"
        return next(filter(None, map(source_line, re.findall(r"#loc\d+", text))), "")

    named = set(re.findall(r'op_name="(.*?)"', message))
    lines = {
        f"{name} at {source_line(location)}"
        for location, text in locations.items()
        for name in named
        if text.startswith(f'"{name}"')
    }
    if lines:
        return "\n".join([message.strip(), "In our source:", *sorted(lines)])
    sizes = {}
    for shape, dtype, location in re.findall(
        r"tensor<([\dx]+)x(\w+)> loc\((#loc\d+)\)$", program, re.MULTILINE
    ):
        if line := source_line(location):
            size = math.prod(map(int, shape.split("x"))) * int(dtype.strip("bfui")) / 8
            sizes[f"{size / _GIB:.2f} GiB: {dtype}[{shape}] at {line}"] = size
    largest = sorted(sizes, key=sizes.get, reverse=True)[:_LARGEST]
    return "\n".join([message.strip(), "Largest tensors, of all chips:", *largest])


def _program(compiled: Any, iterations: int) -> Program:
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    used = memory.argument_size_in_bytes + memory.temp_size_in_bytes
    used += memory.output_size_in_bytes - memory.alias_size_in_bytes
    # The compiler counts one iteration of the loop over micro-batches.
    program = Program(used, cost["flops"] * iterations)
    # A jaxlib cannot read all programs of a newer libtpu.
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        traffic = _traffic(compiled.as_text(), iterations)
        program.bytes, program.all_reduce = traffic
    return program


def _traffic(program: str, iterations: int) -> tuple[float, float]:
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
                traffic = walk(called)
                total += times * traffic[0]
                reduced += times * traffic[1]
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


def step_seconds(
    name: str, chips: int, num_devices: int, program: Program
) -> dict[str, float]:
    """Returns lower bounds of the time of a step, and of its parts.

    `all_reduce` is for a torus whose links are all busy. The total assumes that it does
    not overlap with the computation.
    """
    chip, cores = CHIPS[name], num_devices // chips
    sent = 2 * (chips - 1) / chips * program.all_reduce
    seconds = {
        "compute": cores * program.flops / chip.flops,
        "memory": cores * program.bytes / chip.bandwidth,
        "all_reduce": sent / chip.interconnect,
    }
    total = max(seconds["compute"], seconds["memory"]) + seconds["all_reduce"]
    return seconds | {"total": total}


def largest_batch(
    options: PlanConfig, phase: Phase, program: Program, device_memory: float
) -> int:
    """Returns the largest number of rows per chip that compiles.

    It is at most an eighth too small.

    Args:
        options: See `compile_step`.
        phase: Its batch size is where the search begins.
        program: The compiled step of the phase.
        device_memory: Bytes of a device.
    """
    _, chips = parse_slice(options.strategy)
    per_chip = max(phase.batch_size // chips, 1)
    fits, fails = (0, per_chip) if program.error else (per_chip, 0)
    while not fails or fails - fits > max(1, fits // 8):
        if fails:
            rows = (fits + fails) // 2
        else:  # More rows need at most proportionally more memory.
            rows = int(fits * device_memory / program.memory)
            rows = max(rows, fits + max(1, fits // 8))
        changed = dataclasses.replace(phase, batch_size=rows * chips)
        compiled = compile_step(options, changed)
        if compiled.error:
            fails = rows
        else:
            fits, program = rows, compiled
    return fits


def plan(options: PlanConfig, *, evaluation: bool = False) -> list[dict[str, Any]]:
    """Compiles the step of each phase.

    Args:
        options, evaluation: See `compile_step`.

    Returns:
        One dictionary per phase, as JSON: the fields of `Program`, per device, and what
        follows from them, of the whole slice.

    Raises:
        ValueError: The options are invalid, or libtpu is missing.
    """
    name, chips = parse_slice(options.strategy)
    chip, num_devices = CHIPS[name], len(devices(name, chips))
    plans = []
    for phase in options.phases():
        program = compile_step(options, phase, evaluation=evaluation)
        seconds = step_seconds(name, chips, num_devices, program)
        tokens = phase.batch_size * phase.length
        flops = estimates.step_flops(
            resolve_architecture(options, [phase], None),
            rows=phase.batch_size,
            length=phase.length,
            predictions=phase.predictions,
        )
        if evaluation:
            flops /= 3  # Without the backward pass.
        row = {"records": phase.records, "steps": phase.steps, "rows": phase.batch_size}
        row |= dataclasses.asdict(program)
        row["device_memory"] = device_memory = chip.memory * chips / num_devices
        row["seconds"] = seconds
        row["tokens_per_second"] = tokens / seconds["total"]
        row["mfu"] = flops / (chips * chip.flops * seconds["total"])
        row["days"] = phase.steps * seconds["total"] / 86_400
        if options.micro_batch_size == -1:
            for recompute in (False, True):
                changed = dataclasses.replace(options, recompute=recompute)
                first = program
                if recompute != options.recompute:
                    first = compile_step(changed, phase)
                key = "largest_batch_recompute" if recompute else "largest_batch"
                row[key] = largest_batch(changed, phase, first, device_memory)
        plans.append(row)
    return plans
