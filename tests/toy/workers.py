# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two processes of this machine that train together."""

import json
import os
import socket
import subprocess
import sys

_SECONDS = 300


def run(*command: str) -> list[str]:
    """Runs `python -m <command> --strategy=multi_worker` in two processes.

    Returns:
        What each process printed.
    """
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
    try:
        # The pipes are larger than what a toy training prints.
        texts = [worker.communicate(timeout=_SECONDS) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], texts
    return [output for output, _ in texts]
