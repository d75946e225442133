# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.jobs with worker processes.

Worker processes import this module, which does not import TensorFlow.
"""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.data import JobOptions, jobs


def square(folder: pathlib.Path, value: int) -> int:
    """A job that appends to a file each time it runs."""
    if value < 0:
        raise ValueError(f"{value} is negative.")
    with open(folder / str(value), "a") as file:
        file.write("done ")
    return value**2


def kill_worker(value: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(function, values, folder, num_workers=1, **options):
    options = JobOptions(num_workers=num_workers, **options)
    return list(jobs.run_jobs(function, values, f"{folder}/result-", options))


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_are_in_order_and_jobs_run_once(tmp_path, num_workers):
    function = functools.partial(square, tmp_path)
    with pytest.raises(ValueError, match="-1 is negative"):
        run(function, [3, -1, 2], tmp_path, num_workers=num_workers)
    assert (tmp_path / "result-00000.json").exists()
    assert not (tmp_path / "result-00001.json").exists()
    assert run(function, [3, 1, 2], tmp_path) == [9, 1, 4]
    assert {(tmp_path / str(i)).read_text() for i in (1, 2, 3)} == {"done "}
    jobs.remove_results(str(tmp_path / "result-"))
    assert sorted(os.listdir(tmp_path)) == ["1", "2", "3"]


def test_beam_keeps_the_results_of_finished_jobs(tmp_path):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    function = functools.partial(square, tmp_path)
    with pytest.raises(OSError, match=r"Finished parts are kept.*-1 is negative"):
        run(function, [3, -1], tmp_path, runner="DirectRunner")
    assert run(function, [3, 1], tmp_path, runner="DirectRunner") == [9, 1]
    with pytest.raises(ValueError, match="--runner=NoRunner is no installed runner"):
        run(function, [3], tmp_path, runner="NoRunner")


def test_missing_beam_raises_value_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ValueError, match="--runner=FlinkRunner requires Apache Beam"):
        run(kill_worker, [1], tmp_path, runner="FlinkRunner")


def test_killed_worker_raises_os_error(tmp_path):
    with pytest.raises(OSError, match="A worker process ended early"):
        run(kill_worker, [1, 2], tmp_path, num_workers=2)


def sleep(value: int) -> None:
    sys.stdout.write("started\n")  # Both workers write; `print` writes twice.
    sys.stdout.flush()
    time.sleep(300)
    print("not killed", flush=True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_exit_with_their_parent(tmp_path, number):
    script = f"""
import pathlib
from tests.data import jobs_test
if __name__ == "__main__":
    folder = pathlib.Path({str(tmp_path)!r})
    jobs_test.run(jobs_test.sleep, [1, 2], folder, num_workers=2)
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
