# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times of calls and commands in processes of their own, rounds, and tables."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple
from unittest import mock


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
        **environment: Variables of the process, such as `KERAS_BACKEND="jax"`.
    """

    def __init__(self, build: Callable[..., Callable], *arguments: Any, **environment):
        spawn = multiprocessing.get_context("spawn")
        self._pool = futures.ProcessPoolExecutor(1, spawn)
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **environment}
        with mock.patch.dict(os.environ, environment):  # The process inherits it.
            self._pool.submit(_build, build, arguments).result()

    def __call__(self, *arguments: Any) -> Call:
        return self._pool.submit(_call, arguments).result()

    def close(self) -> None:
        self._pool.shutdown()


def in_process(function: Callable, *arguments: Any) -> Any:
    """Returns what a function returns in a process of its own."""
    worker = Worker(_same, function)
    try:
        return worker(*arguments).value
    finally:
        worker.close()


_functions: list[Callable] = []  # Of this process.


def _build(build: Callable[..., Callable], arguments: Sequence[Any]) -> None:
    _functions.append(build(*arguments))


def _call(arguments: Sequence[Any]) -> Call:
    start, cpu_start = time.perf_counter(), time.process_time()
    value = _functions[0](*arguments)
    return Call(value, time.perf_counter() - start, time.process_time() - cpu_start)


def _same(function: Callable) -> Callable:
    return function


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
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=messages,
            stderr=messages,
        )
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


def print_table(header: str, rows: Iterable[Sequence[Any]]) -> None:
    """Prints a Markdown table, each row as soon as it is there."""
    for line in table(header, rows):
        print(line, flush=True)


def table(header: str, rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yields the lines of a Markdown table. The titles in `header` are "a|b|c"."""
    titles = [title.strip() for title in header.split("|")]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


def print_rates(
    workers: Mapping[str, Worker],
    tokens: Mapping[str, Sequence[int]],
    rounds: int,
    baseline: str,
) -> None:
    """Prints the speed of training steps, medians over rounds.

    Each round runs all workers, so that changes of the machine's speed affect all. The
    ratio is of processor time, which other programs affect less.

    Args:
        workers: `worker(i)` trains on batch `i`.
        tokens: Tokens without padding of each batch.
        rounds: Rounds over all batches, after one that traces the graphs.
        baseline: The worker with the ratio 1.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in workers}
    for _ in range(rounds + 1):
        for name, worker in workers.items():
            calls = [worker(i) for i in range(len(tokens[name]))]
            total = sum(tokens[name])
            seconds, cpu = (sum(x) for x in zip(*(call[1:] for call in calls)))
            found[name].append((total / seconds, total / cpu))
    base = [cpu for _, cpu in found[baseline][1:]]
    rows = []
    for name, rates in found.items():
        seconds, cpu = zip(*rates[1:])
        ratios = [a / b for a, b in zip(cpu, base)]
        medians = map(statistics.median, (seconds, cpu, ratios))
        rows.append((name, *"{:,.0f} {:,.0f} {:.2f}".format(*medians).split()))
    print_table(f"|tokens/s|per CPU second|speed relative to {baseline}, CPU", rows)
