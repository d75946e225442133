# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory and latency of the development server over many requests.

    python -m benchmarks.serving_soak --model_base_path=saved_models/minilm
    python -m benchmarks.serving_soak --model_base_path=... --requests=20000

Input: an export whose default signature reads `text`, such as a sentence encoder. The
benchmark starts `bert_tf.serve` in a process of its own and sends requests of texts of
1 to 100 words from several clients. Output: a Markdown table with a row per tenth of
the requests: memory of the server, its processor time per request, and latencies.
Memory grows with the shapes that the server has seen, so run all 20,000 for a bound.

With `--mixed`, a quarter of the requests has one text, others have 32, use REST, ask
for metadata or are invalid. The benchmark fails if an answer is not as expected.
"""

from __future__ import annotations

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

import numpy as np

from bert_tf import cli, client

_WORDS = ["the", "of", "a", "was", "in", "city", "state", "first", "war", "new", "year"]

# Kinds of mixed requests, and their weights.
_KINDS = {"texts": 60, "text": 25, "many": 3, "rest": 6, "status": 3, "invalid": 3}
_ROWS = {"texts": 8, "text": 1, "many": 32}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SoakConfig(cli.Options):
    """Options of `python -m benchmarks.serving_soak`."""

    model_base_path: str = cli.option(help="Folder of the exported model.")
    requests: int = cli.option(1000, help="Number of requests.", minimum=10)
    clients: int = cli.option(8, help="Clients, each with one request.", minimum=1)
    mixed: bool = cli.option(False, help="Whether to mix kinds of requests.")
    checkout: str = cli.option(".", help="Checkout whose server to measure.")


def main(options: SoakConfig) -> None:
    """Prints the table.

    Raises:
        ValueError: The server does not start, or gives a wrong answer.
    """
    command = [sys.executable, "-m", "bert_tf.serve", "--port=0", "--rest_api_port=0"]
    path = os.path.abspath(options.model_base_path)
    server = subprocess.Popen(
        [*command, f"--model_base_path={path}", "--model_name=soak"],
        cwd=options.checkout,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        printed = "".join(iter(server.stdout.readline, "Ready.\n"))
        addresses = re.search(r"REST: (\S+)(?s:.*)gRPC: (\S+)", printed)
        if not addresses:
            raise ValueError(f"The server has not started. It has printed: {printed}")
        _run(options, server.pid, *addresses.groups())
        if server.poll() is not None:
            raise ValueError(f"The server has ended with status {server.returncode}.")
    finally:
        server.kill()


def _run(options: SoakConfig, pid: int, url: str, address: str) -> None:
    kinds = _KINDS if options.mixed else {"texts": 1}
    latencies = {kind: [] for kind in _KINDS}
    print("| requests | memory, MiB | CPU per request, ms | 1 text: p50, p99, ms | 8 |")
    print("|--:|--:|--:|--:|--:|")
    print(f"| 0 | {_memory(pid):.0f} | | | |", flush=True)

    def send(number: int) -> None:
        rng = random.Random(number)
        (kind,) = rng.choices(list(kinds), kinds.values())
        start = time.perf_counter()
        _send(kind, rng, connection, url)
        latencies[kind].append(time.perf_counter() - start)

    tenth = options.requests // 10
    with (
        client.Client(address) as connection,
        concurrent.futures.ThreadPoolExecutor(options.clients) as pool,
    ):
        for start in range(0, 10 * tenth, tenth):
            before = _processor_time(pid)
            list(pool.map(send, range(start, start + tenth)))
            used = 1000 * (_processor_time(pid) - before) / tenth
            columns = [
                "{:.0f}, {:.0f}".format(*np.percentile(times, [50, 99]) * 1000)
                if (times := latencies[kind])
                else ""
                for kind in ("text", "texts")
            ]
            row = f"{start + tenth} | {_memory(pid):.0f} | {used:.1f}"
            print(f"| {row} | {' | '.join(columns)} |", flush=True)
            for times in latencies.values():
                times.clear()


def _send(kind: str, rng: random.Random, connection: client.Client, url: str) -> None:
    count = _ROWS.get(kind, 1)
    texts = [" ".join(rng.choices(_WORDS, k=rng.randint(1, 100))) for _ in range(count)]
    if kind == "invalid":
        try:
            connection.predict({"text": [1]}, "soak")
        except client.PredictError as error:
            if error.code == "INVALID_ARGUMENT":
                return
        raise ValueError("An invalid request did not get INVALID_ARGUMENT.")
    if kind == "status":
        with urllib.request.urlopen(url.removesuffix(":predict")) as response:
            answers = json.load(response)["model_version_status"]
    elif kind == "rest":
        body = json.dumps({"instances": texts}).encode()
        with urllib.request.urlopen(url, body) as response:
            answers = json.load(response)["predictions"]
    else:
        outputs = connection.predict({"text": texts}, "soak", timeout=60)
        answers = next(iter(outputs.values()))
    if len(answers) != count:
        raise ValueError(f"{count} answers were expected. Received: {len(answers)}")


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
