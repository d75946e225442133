# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory and latency of the development server over many requests.

    python -m benchmarks.serving_soak --model_base_path=saved_models/minilm
    python -m benchmarks.serving_soak --model_base_path=... --requests=20000

Input: an export whose default signature reads `text`, such as a sentence encoder. The
benchmark starts `bert_tf.serve` in a process of its own. Several clients send requests
of 1, 8 or 32 texts of 1 to 100 words over gRPC and REST, and invalid ones, and check
that each is answered as expected. Output: a Markdown table with a row per tenth of the
requests: memory of the server, its processor time per request, and latencies. Memory
grows with the shapes that the server has seen, so run all 20,000 for a bound. Needs
Linux's /proc.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import numpy as np

from benchmarks import measure
from bert_tf import cli, client

_WORDS = ["the", "of", "a", "was", "in", "city", "state", "first", "war", "new", "year"]

# Kinds of requests -> their share, and their number of texts.
_KINDS = {"8": (65, 8), "1": (25, 1), "32": (3, 32), "rest": (4, 1), "invalid": (3, 1)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoakConfig(cli.Options):
    """Options of `python -m benchmarks.serving_soak`."""

    model_base_path: str = cli.option(help="Folder of the exported model.")
    requests: int = cli.option(1000, help="Number of requests.", minimum=10)
    clients: int = cli.option(8, help="Clients, each with one request.", minimum=1)


def main(options: SoakConfig) -> None:
    """Prints the table.

    Raises:
        ValueError: The server does not start, or gives a wrong answer.
    """
    command = [sys.executable, "-m", "bert_tf.serve", "--port=0", "--rest_api_port=0"]
    command += [f"--model_base_path={options.model_base_path}", "--model_name=soak"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        printed = "".join(itertools.takewhile("Ready.\n".__ne__, server.stdout))
        addresses = re.search(r"REST: (\S+)(?s:.*)gRPC: (\S+)", printed)
        if not addresses:
            raise ValueError(f"The server has not started. It has printed: {printed}")
        measure.print_table(
            "requests|memory, MiB|CPU per request, ms|1 text: p50, p99, ms|8",
            _rows(options, server.pid, *addresses.groups()),
        )
    finally:
        server.kill()


def _rows(
    options: SoakConfig, pid: int, url: str, address: str
) -> Iterator[tuple[str, ...]]:
    shares = [share for share, _ in _KINDS.values()]
    tenth = options.requests // 10

    def send(number: int) -> tuple[str, float]:
        rng = random.Random(number)
        (kind,) = rng.choices(list(_KINDS), shares)
        start = time.perf_counter()
        _send(kind, rng, connection, url)
        return kind, 1000 * (time.perf_counter() - start)

    with (
        client.Client(address) as connection,
        concurrent.futures.ThreadPoolExecutor(options.clients) as pool,
    ):
        yield "0", f"{_memory(pid):.0f}", "", "", ""
        for start in range(0, 10 * tenth, tenth):
            before = _processor_time(pid)
            latencies = collections.defaultdict(list)
            for kind, latency in pool.map(send, range(start, start + tenth)):
                latencies[kind].append(latency)
            used = 1000 * (_processor_time(pid) - before) / tenth
            columns = map(_percentiles, (latencies["1"], latencies["8"]))
            yield f"{start + tenth}", f"{_memory(pid):.0f}", f"{used:.1f}", *columns


def _percentiles(times: list[float]) -> str:
    return "{:.0f}, {:.0f}".format(*np.percentile(times, [50, 99])) if times else ""


def _send(kind: str, rng: random.Random, connection: client.Client, url: str) -> None:
    _, count = _KINDS[kind]
    texts = [" ".join(rng.choices(_WORDS, k=rng.randint(1, 100))) for _ in range(count)]
    if kind == "rest":
        body = json.dumps({"instances": texts}).encode()
        with urllib.request.urlopen(url, body) as response:
            answers = json.load(response)["predictions"]
    else:
        inputs = {"text": [1] if kind == "invalid" else texts}
        try:
            outputs = connection.predict(inputs, "soak", timeout=60)
        except client.PredictError as error:
            if (kind, error.code) == ("invalid", "INVALID_ARGUMENT"):
                return
            raise
        answers = next(iter(outputs.values()))
    if kind == "invalid" or len(answers) != count:
        raise ValueError(f"A request of kind {kind} got {len(answers)} answers.")


def _memory(pid: int) -> float:
    """Returns the resident memory of a process in MiB."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def _processor_time(pid: int) -> float:
    """Returns the processor time of a process in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, itertools.islice(fields, 11, 13)))
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    cli.run(main, SoakConfig)
