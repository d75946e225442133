# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of calls and commands in processes of their own, rounds, and tables."""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from typing import IO, Any, NamedTuple

import numpy as np

_SPAWN = multiprocessing.get_context("spawn")


class Call(NamedTuple):
    """What a call returned, and its wall and processor time in seconds."""

    value: Any
    seconds: float
    cpu: float


class Worker:
    """A function in a process of its own, which inherits no imports.

    Torch needs one: triton crashes after the import of TensorFlow.

    Args:
        build: Returns the function. It is called in the process, as is the function, so
            both must be importable, and the function's values picklable.
        *arguments: Arguments of `build`.
    """

    def __init__(self, build: Callable[..., Callable], *arguments: Any):
        self._pool = futures.ProcessPoolExecutor(1, _SPAWN)
        self._pool.submit(_build, build, arguments).result()

    def __call__(self, *arguments: Any) -> Call:
        return self._pool.submit(_call, arguments).result()

    def close(self) -> None:
        self._pool.shutdown()


def in_process(function: Callable, *arguments: Any) -> Any:
    """Returns what a function returns in a process of its own."""
    with futures.ProcessPoolExecutor(1, _SPAWN) as pool:
        return pool.submit(function, *arguments).result()


_functions: list[Callable] = []  # Of this process.


def _build(build: Callable[..., Callable], arguments: Sequence[Any]) -> None:
    _functions.append(build(*arguments))


def _call(arguments: Sequence[Any]) -> Call:
    start, cpu_start = time.perf_counter(), time.process_time()
    value = _functions[0](*arguments)
    return Call(value, time.perf_counter() - start, time.process_time() - cpu_start)


class Cost(NamedTuple):
    """Wall and processor seconds of a command, and peak memory in MB.

    Processor time is summed over its processes. Memory is that of the largest one.
    """

    seconds: float
    cpu: float
    memory: float


def run_command(*arguments: str) -> Cost:
    """Runs Python with arguments.

    Raises:
        ValueError: The command failed.
    """
    start = time.perf_counter()
    with tempfile.TemporaryFile() as messages:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, stdout=messages, stderr=messages)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            tail = messages.read().decode(errors="replace")[-2000:]
            raise ValueError(f"{' '.join(arguments)} failed:\n{tail}")
    # Kilobytes on Linux, bytes on macOS.
    memory = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    seconds = time.perf_counter() - start
    return Cost(seconds, usage.ru_utime + usage.ru_stime, memory)


def print_table(
    header: str, rows: Iterable[Sequence[Any]], file: IO[str] | None = None
) -> None:
    """Prints a Markdown table, each row as soon as it is there.

    Args:
        header: The titles, "a|b|c".
        rows: The rows.
        file: Where to, by default to stdout.
    """
    titles = [title.strip() for title in header.split("|")]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|", file=file)
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", file=file, flush=True)


def print_rates(
    variants: Mapping[str, Sequence[Any]], rounds: int, baseline: str
) -> None:
    """Prints the speed of training steps, medians over rounds.

    Each round runs all variants, so that changes of the machine's speed affect all. The
    ratio is of processor time, which other programs affect less.

    Args:
        variants: Name -> the package that it needs, or else it is skipped; `build` of a
            `Worker` that trains on the batch of a number; the batches `(x, y, weights)`
            and other arguments of `build`.
        rounds: Rounds over all batches, after one that traces the graphs.
        baseline: The variant with the ratio 1.
    """
    workers, rates = {}, {}
    for name, (package, *build) in variants.items():
        if importlib.util.find_spec(package):
            workers[name], rates[name] = Worker(*build), []
    for _, (name, worker) in itertools.product(range(rounds + 1), workers.items()):
        batches = variants[name][2]
        total = sum(np.count_nonzero(x["padding_mask"]) for x, _, _ in batches)
        calls = [worker(number) for number in range(len(batches))]
        rates[name].append([total / sum(x) for x in zip(*(call[1:] for call in calls))])
    rows = []
    for name, worker in workers.items():
        worker.close()
        wall, cpu = np.transpose(rates[name][1:])
        ratio = cpu / np.transpose(rates[baseline][1:])[1]
        medians = np.median([wall, cpu, ratio], axis=1)
        rows.append((name, *"{:,.0f} {:,.0f} {:.2f}".format(*medians).split()))
    print_table(f"|tokens/s|per CPU second|speed relative to {baseline}, CPU", rows)
