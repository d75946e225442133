# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.jobs with worker processes.

Worker processes import this module, which does not import TensorFlow.
"""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.data import JobOptions, jobs


@dataclasses.dataclass(frozen=True)
class Number:
    """A job that appends to `path` each time it runs."""

    path: str
    value: int


def square(job: Number) -> dict[str, int]:
    if job.value < 0:
        raise ValueError(f"{job.value} is negative.")
    with open(job.path, "a") as file:
        file.write("done ")
    return {"square": job.value**2}


def kill_worker(job: Number) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(function, numbers, num_workers=1):
    return list(jobs.run_jobs(function, numbers, JobOptions(num_workers=num_workers)))


def numbers(directory: pathlib.Path, *values: int) -> list[Number]:
    return [Number(str(directory / str(i)), value) for i, value in enumerate(values)]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_are_in_order_and_jobs_run_once(tmp_path, num_workers):
    with pytest.raises(ValueError, match="-1 is negative"):
        run(square, numbers(tmp_path, 3, -1, 2), num_workers)
    assert (tmp_path / "0.json").exists()
    assert not (tmp_path / "1.json").exists()
    expected = [{"square": 9}, {"square": 1}, {"square": 4}]
    assert run(square, numbers(tmp_path, 3, 1, 2)) == expected
    assert {(tmp_path / str(i)).read_text() for i in range(3)} == {"done "}


def test_a_failed_job_on_a_cluster_is_named_and_the_others_are_kept(tmp_path):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    options = JobOptions(runner="DirectRunner")
    with pytest.raises(ValueError, match=r"1 of 3 parts failed.*-1 is negative"):
        list(jobs.run_jobs(square, numbers(tmp_path, 3, -1, 2), options))
    found = list(jobs.run_jobs(square, numbers(tmp_path, 3, 1, 2), options))
    assert found == [{"square": 9}, {"square": 1}, {"square": 4}]
    assert {(tmp_path / str(i)).read_text() for i in range(3)} == {"done "}


def test_killed_worker_raises_os_error(tmp_path):
    with pytest.raises(OSError, match="A worker process ended early"):
        run(kill_worker, numbers(tmp_path, 1, 2), num_workers=2)


def sleep(job: Number) -> None:
    sys.stdout.write("started\n")  # Both workers write; `print` writes twice.
    sys.stdout.flush()
    time.sleep(300)
    print("not killed", flush=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_exit_with_their_parent(tmp_path, number):
    script = f"""
from tests.data import jobs_test
if __name__ == "__main__":
    number = jobs_test.Number({str(tmp_path)!r}, 1)
    jobs_test.run(jobs_test.sleep, [number, number], num_workers=2)
"""
    (tmp_path / "script.py").write_text(script)
    root = pathlib.Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        # The worker inherits the pipe, so the pipe is at its end when both have exited.
        assert parent.stdout.readline() == "started\n"
        parent.send_signal(number)
        assert "killed" not in parent.stdout.read()
