# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures how pre-training scales with model size, length, batch size and workers.

    python -m benchmarks.scaling --output=docs/scaling.png
    python -m benchmarks.scaling --records=wiki128 --output=weak_scaling

The first command times training steps on random tokens and fits the cost model

    seconds = overhead + weights / w + flops / f + attention / a

`weights` is the number of trained weights, `flops` the floating point operations of a
step, and `attention` the number of attention probabilities: layers x heads x rows x
length^2. It prints and plots measured and predicted times.

The second command, with --records, measures weak scaling. It runs `bert_tf.pretrain` on
one core, and then `--strategy=multi_worker` with two workers on this machine. Each
worker has its own core and as many rows as the single process. Perfect scaling doubles
the tokens per second. The model directories are written to --output.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import random_step
from bert_tf import cli

_TERMS = ("overhead", "weights", "flops", "attention")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScalingConfig(cli.Options):
    """Options of `python -m benchmarks.scaling`."""

    output: str = cli.option(help="File of the plot; with --records, a folder.")
    records: str = cli.option("", help="Measure two workers on these records.")
    sizes: str = cli.option("tiny,mini,small,medium", help="Architectures to time.")
    lengths: str = cli.option("32,64,128,256,512", help="Row lengths in tokens.")
    batch_sizes: str = cli.option("2,4,8,16,32,64", help="Batch sizes in rows.")
    size: str = cli.option("mini", help="Architecture when another varies.")
    length: int = cli.option(128, help="Length when another varies.", minimum=8)
    batch_size: int = cli.option(16, help="Batch size when another varies.", minimum=1)
    steps: int = cli.option(5, help="Timed steps per configuration.", minimum=1)


class Point(NamedTuple):
    """A configuration of the training step."""

    size: str
    length: int
    batch_size: int


def main(options: ScalingConfig) -> None:
    """Runs one of the two measurements."""
    if options.records:
        _two_workers(options)
    else:
        _fit_cost_model(options)


# --- Cost model ------------------------------------------------------------------


def _fit_cost_model(options: ScalingConfig) -> None:
    import scipy.optimize
    import tqdm

    usual = Point(options.size, options.length, options.batch_size)
    lines = {
        "size": [usual._replace(size=s) for s in options.sizes.split(",")],
        "length": [usual._replace(length=int(n)) for n in options.lengths.split(",")],
        "batch_size": [
            usual._replace(batch_size=int(n)) for n in options.batch_sizes.split(",")
        ],
    }
    points = list(dict.fromkeys(point for line in lines.values() for point in line))
    costs, steps = zip(*map(_prepare, tqdm.tqdm(points, "Building")))
    times = [[] for _ in points]
    for _ in tqdm.trange(options.steps, desc="Timing"):
        # Interleaved, so that drifts of the machine's speed affect all points.
        for found, step in zip(times, steps, strict=True):
            start = time.process_time()
            step()
            found.append(time.process_time() - start)
    seconds = list(map(statistics.median, times))
    # Minimizes relative errors, so that short steps count as much as long ones.
    matrix = np.array(costs) / np.array(seconds)[:, None]
    factors, _ = scipy.optimize.nnls(matrix, np.ones(len(points)))
    fitted = dict(zip(points, np.array(costs) @ factors, strict=True))
    measured = dict(zip(points, seconds, strict=True))
    print("| size | length | rows | seconds | predicted |\n|---|---|---|---|---|")
    for point in points:
        row = " | ".join(map(str, point))
        print(f"| {row} | {measured[point]:.3f} | {fitted[point]:.3f} |")
    error = statistics.median(abs(fitted[p] / measured[p] - 1) for p in points)
    print("\nProcessor seconds per step: " + _format_model(factors))
    _draw(lines, measured, fitted, options.output)
    print(
        f"Median relative error of the prediction: {error:.0%}. Plot: {options.output}"
    )


def _format_model(factors: np.ndarray) -> str:
    start, *rates = factors
    units = {"weights": "million/s", "flops": "GFLOP/s"}
    units["attention"] = "million probabilities/s"
    scales = {"flops": 1e9}
    terms = [f"{start:.3f}"]
    for name, seconds_each in zip(_TERMS[1:], rates, strict=True):
        if seconds_each:
            rate = 1 / seconds_each / scales.get(name, 1e6)
            terms.append(f"{name} at {rate:,.0f} {units[name]}")
    return " + ".join(terms) + "."


def _prepare(point: Point) -> tuple[list[float], Callable[[], Any]]:
    """Returns the values of `_TERMS` for a step, and the step function."""
    from bert_tf.training import estimates

    step = random_step.RandomStep(point.size, point.length, point.batch_size)
    architecture, rows, length = step.architecture, point.batch_size, point.length
    predictions = random_step.predictions(length)
    arithmetic = estimates.step_flops(
        architecture, rows=rows, length=length, predictions=predictions
    )
    probabilities = architecture.num_layers * architecture.num_heads * rows * length**2
    terms = [1.0, step.model.count_params(), arithmetic, probabilities]
    return terms, step


def _draw(lines, measured, fitted, path: str) -> None:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(10, 3.4), layout="constrained")
    labels = {"size": "architecture", "length": "tokens per row", "batch_size": "rows"}
    for axes, (name, points) in zip(figure.subplots(1, 3), lines.items(), strict=True):
        values = [getattr(point, name) for point in points]
        axes.plot(values, [measured[p] for p in points], "o", label="measured")
        axes.plot(values, [fitted[p] for p in points], "-", label="predicted")
        axes.set(xlabel=labels[name], ylabel="processor seconds per step", yscale="log")
        if name != "size":
            axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


# --- Two workers -----------------------------------------------------------------


def _two_workers(options: ScalingConfig) -> None:
    rates = {count: _tokens_per_second(options, count) for count in (1, 2)}
    print("| workers | rows per step | tokens/s |\n|---|---|---|")
    for count, rate in rates.items():
        print(f"| {count} | {count * options.batch_size} | {rate:,.0f} |")
    share = rates[2] / rates[1] / 2
    print(f"Efficiency of two workers: {share:.0%}")


def _tokens_per_second(options: ScalingConfig, count: int) -> float:
    """Trains with `count` workers; returns the final tokens/s of the first."""
    from bert_tf import training

    folder = pathlib.Path(options.output) / f"{count}"
    every = options.steps
    command = [sys.executable, "-m", "bert_tf.pretrain", f"--records={options.records}"]
    command += [f"--size={options.size}", f"--batch_size={count * options.batch_size}"]
    # The second row of the history excludes the tracing of functions.
    command += [f"--steps={2 * every}", f"--validate_every={every}"]
    command += ["--warmup_steps=1", "--learning_rate=1e-4", f"--output={folder}"]
    if count > 1:
        command.append("--strategy=multi_worker")
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    for index, environment in enumerate(_environments(count)):
        taskset = ["taskset", "--cpu-list", str(cores[index])]
        processes.append(subprocess.Popen(taskset + command, env=environment))
    if any(process.wait() for process in processes):
        raise ValueError(f"Pre-training with {count} workers failed. See above.")
    return training.read_history(folder)[-1]["tokens_per_second"]


def _environments(count: int) -> Sequence[dict[str, str]]:
    if count == 1:
        return [dict(os.environ)]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    workers = [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    for free in sockets:
        free.close()
    return [
        os.environ
        | {
            "TF_CONFIG": json.dumps(
                {
                    "cluster": {"worker": workers},
                    "task": {"type": "worker", "index": index},
                }
            )
        }
        for index in range(count)
    ]


if __name__ == "__main__":
    cli.run(main, ScalingConfig)
