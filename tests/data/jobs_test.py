# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `run_jobs` in bert_tf.data.preparation: processes and Apache Beam.

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

from bert_tf.data import CorpusConfig, preparation, prepare_corpus


@dataclasses.dataclass(frozen=True)
class Number:
    """A job that appends to `path` each time it runs."""

    path: str
    value: int
    size: int = 1


def square(job: Number) -> dict[str, int]:
    if job.value < 0:
        raise ValueError(f"{job.value} is negative.")
    with open(job.path, "a") as file:
        file.write("done ")
    return {"square": job.value**2}


def kill_worker(job: Number) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run(function, numbers, num_workers=1):
    options = CorpusConfig(input="", vocabulary="", output="", num_workers=num_workers)
    return preparation.run_jobs(function, numbers, options)


def numbers(directory: pathlib.Path, *values: int) -> list[Number]:
    return [Number(str(directory / str(i)), value) for i, value in enumerate(values)]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_are_in_order_and_jobs_run_once(tmp_path, num_workers):
    squares = numbers(tmp_path, 3, 1, 2)
    expected = [{"square": 9}, {"square": 1}, {"square": 4}]
    assert run(square, squares, num_workers) == expected
    (tmp_path / "1.json").unlink()
    assert run(square, squares) == expected
    done = [pathlib.Path(job.path).read_text() for job in squares]
    assert done == ["done ", "done done ", "done "]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_failed_job_stops_run_and_other_results_are_kept(tmp_path, num_workers):
    with pytest.raises(ValueError, match="-1 is negative"):
        run(square, numbers(tmp_path, 5, -1), num_workers)
    assert (tmp_path / "0.json").exists()
    assert not (tmp_path / "1.json").exists()
    assert run(square, numbers(tmp_path, 5, 1))[1] == {"square": 1}
    assert (tmp_path / "0").read_text() == "done "


def test_killed_worker_raises_os_error(tmp_path):
    with pytest.raises(OSError, match="A worker process ended early"):
        run(kill_worker, numbers(tmp_path, 1, 2), num_workers=2)


def sleep(job: Number) -> None:
    print("started", flush=True)
    time.sleep(300)
    print("not killed", flush=True)


def test_workers_exit_when_parent_is_killed(tmp_path):
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
        text=True,
    ) as parent:
        # The worker inherits the pipe, so the pipe is at its end when both have exited.
        assert parent.stdout.readline() == "started\n"
        parent.kill()
        assert "killed" not in parent.stdout.read()


# --- Apache Beam -----------------------------------------------------------------


@pytest.fixture
def options(tmp_path, monkeypatch) -> CorpusConfig:
    """Sixty documents in three files, so that there are three jobs."""
    monkeypatch.setattr(preparation, "_PART_BYTES", 8000)
    (tmp_path / "text").mkdir()
    for i in range(3):
        documents = [
            "\n".join(f"The {'cat' * (k % 3 + 1)} {j} sat {k}." for k in range(j + 2))
            for j in range(20 * i, 20 * i + 20)
        ]
        (tmp_path / "text" / str(i)).write_text("\n\n".join(documents))
    tokens = [*"0123456789", "the", "cat", "##cat", "sat", "."]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    digits = [f"##{digit}" for digit in range(10)]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *tokens, *digits]))
    return CorpusConfig(
        input=f"{tmp_path}/text/*",
        vocabulary=f"{tmp_path}/vocab.txt",
        output=f"{tmp_path}/records",
        max_sequence_length=32,
        held_out_share=0.1,
        num_workers=1,
    )


def test_beam_writes_equal_records(options):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    prepare_corpus(options)
    with_beam = dataclasses.replace(
        options, output=options.output + "-beam", runner="DirectRunner"
    )
    prepare_corpus(with_beam)
    found = {}
    for folder in (options.output, with_beam.output):
        files = sorted(pathlib.Path(folder).rglob("*"))
        found[folder] = {
            file.relative_to(folder): file.read_bytes()
            for file in files
            if file.suffix in (".tfrecord", ".txt")
        }
    assert found[with_beam.output] == found[options.output]
    # Shards for training and validation, and the vocabulary.
    assert len(found[options.output]) == 5 + 5 + 1


def test_errors_in_text_are_raised_through_beam(options, tmp_path):
    pytest.importorskip("apache_beam", reason="Apache Beam is not installed")
    (tmp_path / "text" / "latin").write_bytes(b"One.\nTw\xf6.\n")
    with pytest.raises(ValueError, match="latin, line 2: not UTF-8"):
        prepare_corpus(dataclasses.replace(options, runner="DirectRunner"))


def test_missing_beam_raises_value_error(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(
        ValueError, match="--runner=FlinkRunner requires Apache Beam: pip"
    ):
        prepare_corpus(dataclasses.replace(options, runner="FlinkRunner"))
