# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.jobs."""

import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from bert_tf.data import jobs


@dataclasses.dataclass(frozen=True)
class Number:
    """A job that notes in `path` each time it is done."""

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


def run(workers, function, numbers):
    return workers.run(
        function, numbers, [1] * len(numbers), description="Test", unit="n"
    )


def numbers(directory: pathlib.Path, *values: int) -> list[Number]:
    return [Number(str(directory / str(i)), value) for i, value in enumerate(values)]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_come_in_order_and_jobs_are_done_once(tmp_path, num_workers):
    to_do = numbers(tmp_path, 3, 1, 2)
    expected = [{"square": 9}, {"square": 1}, {"square": 4}]
    with jobs.Workers(num_workers) as workers:
        assert run(workers, square, to_do) == expected
        (tmp_path / "1.json").unlink()
        assert run(workers, square, to_do) == expected
    done = [pathlib.Path(job.path).read_text() for job in to_do]
    assert done == ["done ", "done done ", "done "]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_failed_job_ends_the_run_and_the_others_stay_done(tmp_path, num_workers):
    failing = numbers(tmp_path, 5, -1)
    with (
        pytest.raises(ValueError, match="-1 is negative"),
        jobs.Workers(num_workers) as workers,
    ):
        run(workers, square, failing)
    assert (tmp_path / "0.json").exists()
    assert not (tmp_path / "1.json").exists()
    with jobs.Workers(1) as workers:
        assert run(workers, square, numbers(tmp_path, 5, 1))[1] == {"square": 1}
    assert (tmp_path / "0").read_text() == "done "


def test_a_killed_worker_is_reported(tmp_path):
    with (
        jobs.Workers(2) as workers,
        pytest.raises(OSError, match="Test: a worker process was killed"),
    ):
        run(workers, kill_worker, numbers(tmp_path, 1))


def sleep(job: Number) -> None:
    pathlib.Path(job.path).write_text(str(os.getpid()))
    time.sleep(60)


def test_workers_end_with_a_killed_parent(tmp_path):
    script = (
        "from tests.data import jobs_test as jobs_test\n"
        "from bert_tf import jobs\n"
        "if __name__ == '__main__':\n"
        "    with jobs.Workers(2) as workers:\n"
        f"        number = jobs_test.Number({str(tmp_path / 'pid')!r}, 1)\n"
        "        jobs_test.run(workers, jobs_test.sleep, [number])\n"
    )
    (tmp_path / "script.py").write_text(script)
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    worker = int((tmp_path / "pid").read_text())
    os.kill(worker, 0)
    parent.kill()
    parent.wait()
    wait_for(lambda: not is_running(worker))


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = pathlib.Path(f"/proc/{pid}/stat")  # A dead child of a killed parent may
    return not (state.exists() and " Z " in state.read_text())  # wait to be reaped.


def test_claim_protects_the_results_of_other_settings(tmp_path):
    place = tmp_path / "new" / "place"
    settings = {"length": 128, "input": "some files"}

    def claim(**changes):
        jobs.claim(
            str(place), "output", {**settings, **changes}, results=["a/*.x", "*.x"]
        )

    claim(length=64)
    claim()  # Nothing was made with the other settings.
    (place / "made.x").touch()
    claim()
    with pytest.raises(
        ValueError, match=r"length was 128, and is 512 now.*another --output"
    ):
        claim(length=512)
    (place / "settings.json").unlink()
    with pytest.raises(ValueError, match=r"holds a made\.x of unknown origin"):
        claim()
    assert not (place / "settings.json").exists()
