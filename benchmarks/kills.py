# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kills a training again and again; compares its weights with an undisturbed training.

    python -m benchmarks.kills --output=kills --kills=10 --command='python -m \\
      bert_tf.pretrain --records=records --size=tiny --steps=200 --save_every=20 ...'

The command must not contain --output. Each process is killed at a random time after
the start of its training. Prints the signal, the steps before and after it, and the
seconds until the process ended. The last line says whether all weights are bit-equal.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import time

import numpy as np

from bert_tf import checkpoints, cli


@dataclasses.dataclass(frozen=True, kw_only=True)
class KillsConfig(cli.Options):
    """Options of `python -m benchmarks.kills`."""

    command: str = cli.option(help="Training command without --output.")
    output: str = cli.option(help="Folder for the two model directories.")
    kills: int = cli.option(10, help="Number of kills.", minimum=0)
    latest: float = cli.option(
        1.0,
        help="Latest time of a kill, as a share of the time of a whole training.",
        minimum=0,
    )
    signals: str = cli.option("KILL,TERM", help="Signals, comma-separated, in turn.")
    seed: int = cli.option(0, help="Seed of the times.")


def main(options: KillsConfig) -> bool:
    """Trains twice; returns whether all weights are bit-equal."""
    output, rng = pathlib.Path(options.output), random.Random(options.seed)
    _, seconds, _ = _train(options.command, output / "whole")
    signals = [signal.Signals[f"SIG{name}"] for name in options.signals.split(",")]
    print("| signal | start | seconds | to the end | exit | state |")
    print("|---|---|---|---|---|---|")
    for kill in range(options.kills):
        number = signals[kill % len(signals)]
        delay = rng.uniform(0, options.latest * seconds)
        start, ended, status = _train(
            options.command, output / "killed", (number, delay)
        )
        states = list((output / "killed/training_state").glob("ckpt-*.index"))
        step = max((int(s.stem.partition("-")[2]) for s in states), default=0)
        print(
            f"| {number.name} | {start} | {delay:.1f} | {ended:.1f} | {status} | "
            f"{step:,} |",
            flush=True,
        )
    _train(options.command, output / "killed")
    whole, killed = (
        checkpoints.ModelDirectory.open(output / name).read_weights()
        for name in ("whole", "killed")
    )
    different = [k for k in whole if not np.array_equal(whole[k], killed[k])]
    print(f"{len(whole) - len(different)} of {len(whole)} weights are bit-equal.")
    return not different


def _train(
    command: str,
    output: pathlib.Path,
    kill: tuple[signal.Signals, float] | None = None,
) -> tuple[str, float, int]:
    """Runs the command.

    Args:
        command: See `KillsConfig`.
        output: The model directory.
        kill: The signal, and when to send it, in seconds after the training started.

    Returns:
        Where the training started; its seconds, or the seconds from the signal to the
        end of the process; the exit status.

    Raises:
        ValueError: The process failed for another reason than the signal.
    """
    with subprocess.Popen(
        [*shlex.split(command), f"--output={output}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        start, lines = "finished", []
        for line in process.stdout:
            lines.append(line)
            if " weights" in line:
                where = re.search(r"resuming at step [\d,]+", line)
                start = where[0] if where else "step 0"
                break
        clock = time.monotonic()
        if kill:
            try:
                process.wait(kill[1])
            except subprocess.TimeoutExpired:
                clock = time.monotonic()
                process.send_signal(kill[0])
        lines += process.stdout
        status = process.wait()
    killed = -kill[0] if kill else 0  # SIGTERM, too, while Python starts.
    if status not in (0, killed):
        raise ValueError(f"{command} failed:\n{''.join(lines)}")
    return start, time.monotonic() - clock, status


if __name__ == "__main__":
    cli.run(main, KillsConfig)
