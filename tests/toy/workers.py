# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine that train together."""

import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Mapping

_SECONDS = 1800  # Of a machine with other load.


def on_jax(devices: int) -> dict[str, str]:
    """Returns the environment of a process with CPU devices of JAX."""
    return os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "PYTHONPATH": str(pathlib.Path(__file__).parents[2]),
    }


def run(
    *command: str,
    environment: Mapping[str, str] = os.environ,
    statuses: tuple[int, ...] = (0, 0),
) -> list[str]:
    """Runs `python <command>` in a process per status, with the TF_CONFIG of a worker.

    Args:
        command: The arguments of Python.
        environment: Other variables.
        statuses: The expected exit statuses.

    Returns:
        What each process printed, and wrote to stderr.
    """
    ports = []
    for _ in statuses:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    workers = []
    for index in range(len(statuses)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**environment, "TF_CONFIG": config},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        workers.append(process)
    try:
        # The pipes are larger than what a toy training prints.
        texts = [worker.communicate(timeout=_SECONDS)[0] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert tuple(worker.returncode for worker in workers) == statuses, texts
    return texts
