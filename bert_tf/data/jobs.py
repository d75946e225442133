# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs resumable jobs on all cores of this machine, or on a cluster with Apache Beam.

A job is a picklable object with a `path`. The result of a job, a JSON value, is written
to `path` + ".json". Jobs with such a file are not run again, so the same command
resumes after an interruption. Apache Beam runs the same jobs with the same results::

    pip install '.[beam]'  # In an environment of its own.
    python -m bert_tf.corpus ... --runner=FlinkRunner --beam_options=--flink_master=...

All machines must see the same paths: `gs://` or a shared mount. bert_tf must be
installed on them, for example in the container image of
`--beam_options=--sdk_container_image=...`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tqdm

from bert_tf import startup, storage

BEAM_RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")


def run_jobs(
    function: Callable[[Any], Any],
    jobs: Sequence[Any],
    sizes: Sequence[int],
    num_workers: int = 0,
) -> list[Any]:
    """Returns `function(job)` for every job, in order. Shows a progress bar.

    Args:
        function: A module-level function that maps a job to a JSON value.
        jobs: Picklable objects with a `path`.
        sizes: Bytes of each job, for the progress bar.
        num_workers: Number of processes; 0 for one per core. A single one is this
            process.

    Raises:
        OSError: A worker process ended early.
    """
    num_workers = min(num_workers or _num_cores(), len(jobs))
    run = functools.partial(run_once, function)
    with contextlib.ExitStack() as stack:
        results: Iterator[Any] = map(run, jobs)
        if num_workers > 1:
            # Not fork: a forked TensorFlow can wait forever for threads that exist only
            # in the parent.
            pool = concurrent.futures.ProcessPoolExecutor(
                num_workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
            )
            stack.callback(pool.shutdown, cancel_futures=True)
            results = pool.map(run, jobs)
        bar = stack.enter_context(
            tqdm.tqdm(
                total=sum(sizes),
                desc="Preparing",
                unit="B",
                unit_scale=True,
                disable=None,  # Only on terminals.
            )
        )
        try:
            return [(result, bar.update(n))[0] for result, n in zip(results, sizes)]
        except BrokenProcessPool:
            raise OSError(
                "A worker process ended early. If the machine ran out of memory, use a "
                "smaller --num_workers. In a script, call this below "
                '`if __name__ == "__main__":`, or with num_workers=1. Rerun the same '
                "command to resume."
            ) from None


def run_jobs_with_beam(
    function: Callable[[Any], Any], jobs: Sequence[Any], runner: str, options: str
) -> list[Any]:
    """Returns `function(job)` for every job, in order.

    Args:
        function: A module-level function that maps a job to a JSON value.
        jobs: Picklable objects with a `path`.
        runner: One of `BEAM_RUNNERS`. Its web interface shows the progress.
        options: Command-line flags of Beam and the runner.

    Raises:
        ValueError: Apache Beam is not installed.
    """
    try:  # An optional dependency.
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--runner={runner} requires Apache Beam: "
            "pip install '.[beam]' (in an environment of its own)."
        ) from error
    flags = PipelineOptions([f"--runner={runner}", *shlex.split(options)])
    run = functools.partial(run_once, function)
    with apache_beam.Pipeline(options=flags) as pipeline:
        created = pipeline | apache_beam.Create(list(jobs), reshuffle=True)
        _ = created | apache_beam.Map(run)
    return list(map(run, jobs))  # Reads the results.


def run_once(function: Callable[[Any], Any], job: Any) -> Any:
    """Returns `function(job)`, read from the result file if it exists."""
    result_path = job.path + ".json"
    if storage.exists(result_path):
        return storage.read_json(result_path)
    result = function(job)
    storage.write_json(result_path, result)
    return result


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Not available on macOS.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Leave accelerators to training.
    startup.hide_tensorflow_logs()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The parent handles Ctrl-C.
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exits this process when its parent was killed, which pools do not notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
