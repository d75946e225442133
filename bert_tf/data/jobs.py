# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs independent jobs on the cores of this machine or on a cluster.

A job writes its result, a JSON value, to a file. Jobs with such a file are not run
again, so the same command resumes after an interruption. A cluster gives the same
results with Apache Beam, by any of its runners::

    pip install '.[beam]'  # In a separate environment.
    python -m bert_tf.corpus ... --runner=FlinkRunner --beam_options=--flink_master=...
    python -m bert_tf.vocab ... --runner=DaskRunner \\
        --beam_options=--dask_client_address=host:8786

All machines must see the same paths: `gs://` or a shared mount. bert_tf must be
installed on them, for example in the container image of
`--beam_options=--sdk_container_image=...`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
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

from bert_tf import cli, lazy, storage

_ERROR = ".error.json"  # Suffix of a file with the error of a job.


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions(cli.Options):
    """Options of commands that run jobs."""

    num_workers: int = cli.option(
        0, help="Processes of 1 GB each; 0 for one per core.", minimum=0, common=True
    )
    runner: str = cli.option(
        "local",
        help="local runs processes on this machine. Else the name or class of a runner "
        "of Apache Beam, such as FlinkRunner or DaskRunner, whose machines must see "
        "all paths.",
    )
    beam_options: str = cli.option(
        "", help="Flags of Apache Beam, for example '--flink_master=host:8081'."
    )


def run_jobs(
    function: Callable[[Any], Any], jobs: Sequence[Any], options: JobOptions
) -> Iterator[Any]:
    """Yields `function(job)` for every job, in order.

    Args:
        function: A module-level function that maps a job to a JSON value.
        jobs: Picklable objects with the `path` of the result.
        options: Where the jobs run. A single worker is this process.

    Raises:
        ValueError: Apache Beam or its runner is not installed, or a job failed on a
            cluster. The results of other jobs are kept.
        OSError: A worker process ended early, or a cluster failed.
    """
    run = functools.partial(_run_unless_done, function)
    if options.runner != "local":
        _run_with_beam(run, jobs, options)
        yield from map(run, jobs)  # Reads the results.
        return
    num_workers = min(options.num_workers or cli.num_cores(), len(jobs))
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
            stack.push(_terminate_workers)
            # The workers inherit the mask: only this process handles Ctrl-C.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                results = pool.map(run, jobs)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            # On terminals with a progress bar.
            yield from tqdm.tqdm(
                results, "Preparing", len(jobs), unit=" parts", disable=None
            )
        except BrokenProcessPool:
            raise OSError(
                "A worker process ended early. If the machine ran out of memory, use a "
                "smaller --num_workers. In a script, call this below "
                '`if __name__ == "__main__":`, or with num_workers=1. Rerun the same '
                "command to resume."
            ) from None


def _run_with_beam(
    run: Callable[[Any], Any], jobs: Sequence[Any], options: JobOptions
) -> None:
    """Calls `run(job)` for every job on a cluster, whose web interface has progress."""
    name = options.runner
    try:  # An optional dependency.
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--runner={name} requires Apache Beam: "
            "pip install '.[beam]' (in a separate environment)."
        ) from error
    flags = shlex.split(options.beam_options)
    if name.lower() in ("dask", "daskrunner"):  # Beam knows it by its class only.
        name = "apache_beam.runners.dask.dask_runner.DaskRunner"
    partitions = "--dask_npartitions", "--dask_partition_size"
    if "dask" in name and not any(flag.startswith(partitions) for flag in flags):
        # By default, Beam puts 128 jobs into a partition, for one worker.
        flags.append(f"--dask_npartitions={len(jobs)}")
    for job in jobs:
        if storage.exists(job.path + _ERROR):
            storage.remove(job.path + _ERROR)
    try:
        pipeline = apache_beam.Pipeline(
            options=PipelineOptions([f"--runner={name}", *flags])
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--runner={name} is no installed runner of Apache Beam. {error}"
        ) from error
    created = pipeline | apache_beam.Create(list(jobs), reshuffle=True)
    _ = created | apache_beam.Map(functools.partial(_keep_error, run))
    advice = "Finished parts are kept. Rerun the same command to resume."
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise OSError(
            f"--runner={name} failed. {advice} Beam's error: {error}"
        ) from error
    errors = [path for job in jobs if storage.exists(path := job.path + _ERROR)]
    if errors:
        raise ValueError(
            f"{len(errors)} of {len(jobs)} parts failed. {advice} The error of the "
            f"first: {storage.read_json(errors[0])['error']}"
        )


def _keep_error(run: Callable[[Any], Any], job: Any) -> None:
    """Calls `run(job)`. Writes its error to a file, so that the other jobs continue."""
    try:
        run(job)
    except (OSError, ValueError) as error:
        storage.write_json(job.path + _ERROR, {"error": str(error)})


def _run_unless_done(function: Callable[[Any], Any], job: Any) -> Any:
    """Returns `function(job)`, read from the result file if it exists."""
    result_path = job.path + ".json"
    if storage.exists(result_path):
        return storage.read_json(result_path)
    result = function(job)
    storage.write_json(result_path, result)
    return result


def _terminate_workers(error: type[BaseException] | None, *_: Any) -> None:
    """Ends the worker processes on Ctrl-C. After other errors they finish their job."""
    if error in (KeyboardInterrupt, GeneratorExit):
        for process in multiprocessing.active_children():
            process.terminate()


def _start_worker() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Leave accelerators to training.
    lazy.hide_tensorflow_logs()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exits when the parent process is killed, which process pools do not detect."""
    multiprocessing.parent_process().join()
    os._exit(1)
