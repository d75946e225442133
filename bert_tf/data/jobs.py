# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs independent jobs on the cores of this machine or on a cluster.

The result of a job, a JSON value, is written to a file. Jobs with such a file are not
run again, so the same command resumes after an interruption. A cluster gives the same
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
import glob
import multiprocessing
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tqdm

from bert_tf import cli, lazy, storage, text_files


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
    function: Callable[[Any], Any],
    jobs: Sequence[Any],
    prefix: str,
    options: JobOptions,
) -> Iterator[Any]:
    """Yields `function(job)` for every job, in order.

    Args:
        function: A picklable function that maps a job to a JSON value.
        jobs: Picklable objects.
        prefix: Beginning of the paths of the results. `remove_results` removes them.
        options: Where the jobs run. A single worker is this process.

    Raises:
        ValueError: Apache Beam or its runner is not installed.
        OSError: A worker process ended early, or the jobs failed on a cluster.
        Exception: What `function` raises on this machine. The results of finished jobs
            are kept.
    """
    run = functools.partial(_run_unless_done, function)
    jobs = [(f"{prefix}{index:05d}.json", job) for index, job in enumerate(jobs)]
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


def remove_results(prefix: str) -> None:
    """Removes the results of `run_jobs`."""
    directory, name = os.path.split(prefix)
    for path in storage.glob(f"{glob.escape(name)}*.json", directory):
        storage.remove(path)


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
    try:
        pipeline = apache_beam.Pipeline(
            options=PipelineOptions([f"--runner={name}", *flags])
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--runner={name} is no installed runner of Apache Beam. {error}"
        ) from error
    created = pipeline | apache_beam.Create(list(jobs), reshuffle=True)
    _ = created | apache_beam.Map(run)
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise OSError(
            f"--runner={name} failed. Finished parts are kept. Rerun the same command "
            f"to resume. Beam's error: {error}"
        ) from error


def _run_unless_done(function: Callable[[Any], Any], job: tuple[str, Any]) -> Any:
    """Returns `function(job)`, read from the file of its result if that exists."""
    path, job = job
    if storage.exists(path):
        return text_files.read_json(path)
    result = function(job)
    text_files.write_json(path, result)
    return result


def _terminate_workers(error: type[BaseException] | None, *_: Any) -> None:
    """Ends the worker processes on Ctrl-C. After other errors they finish their job."""
    if error in (KeyboardInterrupt, GeneratorExit):
        for process in multiprocessing.active_children():
            process.terminate()


def _start_worker() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Leave accelerators to training.
    lazy.skip_keras_wrappers()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exits when the parent process is killed, which process pools do not detect."""
    multiprocessing.parent_process().join()
    os._exit(1)
