# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two processes of this machine that train together."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable

_SECONDS = 300


def start(*command: str) -> list[subprocess.Popen]:
    """Starts `python -m <command> --strategy=multi_worker` twice."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    workers = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        process = subprocess.Popen(
            [sys.executable, "-m", *command, "--strategy=multi_worker"],
            env={**os.environ, "TF_CONFIG": config},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        workers.append(process)
    return workers


def run(*command: str) -> list[str]:
    """Runs `start` to the end and returns what each process printed."""
    results = finish(start(*command))
    assert [status for status, *_ in results] == [0, 0], results
    return [output for _, output, _ in results]


def interrupt(
    *command: str,
    after: pathlib.Path,
    act: Callable[[list[subprocess.Popen]], None],
) -> list[tuple[int, str, str]]:
    """Runs `start`, calls `act` with the processes once the file `after` exists.

    Returns:
        Exit status, output and errors of each process.
    """
    workers = start(*command)
    while not after.exists() and all(worker.poll() is None for worker in workers):
        time.sleep(0.2)
    act(workers)
    return finish(workers)


def finish(workers: list[subprocess.Popen]) -> list[tuple[int, str, str]]:
    """Waits; returns exit status, output and errors of each process."""
    try:
        # The pipes are larger than what a toy training prints.
        texts = [worker.communicate(timeout=_SECONDS) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return [(worker.returncode, *text) for worker, text in zip(workers, texts)]
