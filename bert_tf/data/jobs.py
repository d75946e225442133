# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs resumable jobs on all cores of this machine, or on a cluster with Apache Beam.

A job is a picklable object with a `path`. `Workers.run` calls a function on every job
and writes its result, a JSON value, to `path` + ".json". Jobs with such a file are not
run again, so the same command resumes after an interruption.

`BeamWorkers` runs the same jobs with the same results::

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
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tqdm

from bert_tf import startup, storage

BEAM_RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")


class Workers(contextlib.AbstractContextManager):
    """A pool of worker processes, used as a context manager.

    Args:
        num_workers: Number of processes; 0 for one per core. With 1, jobs run in the
            calling process.
    """

    def __init__(self, num_workers: int = 0):
        self._pool = None
        if num_workers != 1:
            # Not fork: a forked TensorFlow can wait forever for threads that exist only
            # in the parent.
            self._pool = concurrent.futures.ProcessPoolExecutor(
                num_workers or _num_cores(),
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
            )

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.shutdown(cancel_futures=True)

    def run(
        self,
        function: Callable[[Any], Any],
        jobs: Sequence[Any],
        sizes: Sequence[float],
        *,
        description: str,
        unit: str,
    ) -> list[Any]:
        """Returns `function(job)` for every job, in order. Shows a progress bar.

        Args:
            function: A module-level function that maps a job to a JSON value.
            jobs: Picklable objects with a `path`. Jobs that have a result are skipped.
            sizes: The amount of work in each job, in `unit`.
            description: Label of the progress bar.
            unit: Unit of the progress bar, for example "B" for bytes.

        Raises:
            OSError: A worker process ended early.
        """
        run_all = self._pool.map if self._pool else map
        results = []
        with tqdm.tqdm(
            total=sum(sizes), desc=description, unit=unit, unit_scale=True
        ) as bar:
            try:
                for result in run_all(functools.partial(run_once, function), jobs):
                    bar.update(sizes[len(results)])
                    results.append(result)
            except BrokenProcessPool:
                raise OSError(
                    f"{description}: a worker process ended early. If the machine ran "
                    "out of memory, use a smaller --num_workers. In a script, call "
                    'this below `if __name__ == "__main__":`, or with num_workers=1. '
                    "Rerun the same command to resume."
                ) from None
        return results


class BeamWorkers(Workers):
    """Runs jobs with Apache Beam.

    Args:
        runner: One of `BEAM_RUNNERS`.
        options: Command-line flags of Beam and the runner.

    Raises:
        ValueError: Apache Beam is not installed.
    """

    def __init__(self, runner: str, options: str = ""):
        super().__init__(num_workers=1)  # For reading the results.
        try:  # An optional dependency.
            import apache_beam
            from apache_beam.options.pipeline_options import PipelineOptions
        except ModuleNotFoundError as error:
            raise ValueError(
                f"--runner={runner} requires Apache Beam: "
                "pip install '.[beam]' (in an environment of its own)."
            ) from error
        self._beam = apache_beam
        self._options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])

    def run(self, function, jobs, sizes, *, description, **kwargs) -> list[Any]:
        """See `Workers.run`. The web interface of the runner shows the progress."""
        with self._beam.Pipeline(options=self._options) as pipeline:
            (
                pipeline
                | "Jobs" >> self._beam.Create(list(jobs), reshuffle=True)
                | description >> self._beam.Map(functools.partial(run_once, function))
            )
        # Reads the results.
        return super().run(function, jobs, sizes, description=description, **kwargs)


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


def claim_directory(
    directory: str, flag: str, settings: dict[str, Any], results: Sequence[str]
) -> None:
    """Creates a directory for results of `settings`, or checks an existing one.

    Args:
        directory: The directory. The settings are written to its `settings.json`.
        flag: Name of the flag that sets the directory, for error messages.
        settings: Everything that determines the results.
        results: Glob patterns of result files. Without results, other settings in the
            directory are overwritten.

    Raises:
        ValueError: The directory holds results of different or unknown settings.
    """
    path = os.path.join(directory, "settings.json")
    found = [path for p in results for path in storage.glob(os.path.join(directory, p))]
    remedy = f"Use another --{flag} or remove the directory."
    if found and not storage.exists(path):
        raise ValueError(f"{found[0]} exists, but no settings.json. {remedy}")
    previous = storage.read_json(path) if found else settings
    for name, value in settings.items():
        if previous.get(name) != value:
            raise ValueError(
                f"{directory} holds results of other settings: {name} was "
                f"{previous.get(name)!r}, now {value!r}. {remedy}"
            )
    storage.make_directory(directory)
    storage.write_json(path, settings)
