# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Long work in small jobs: on all cores, each job done once, nothing half written.

A job is a picklable object with a `path`. `Workers.run` calls a function on every job
and stores its result, a JSON value, in `path` + ".json". That file says that the job is
done: the same command, run again after an interruption, goes on with the others.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import tqdm

from bert_tf import storage


class Job(Protocol):
    """A unit of work: any picklable object with the path of what it makes."""

    path: str


class Workers(contextlib.AbstractContextManager):
    """A pool of processes; use it as a context manager.

    Args:
        num_workers: Number of processes, 0 for one per core. 1 works in the calling
            process.
    """

    def __init__(self, num_workers: int = 0):
        self._pool = None
        if num_workers != 1:
            # Not forked: a forked TensorFlow can wait forever for the threads that it
            # had in its parent.
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
        jobs: Sequence[Job],
        sizes: Sequence[int],
        *,
        description: str,
        unit: str,
    ) -> list[Any]:
        """Returns `function(job)` for every job, in order, with a progress bar.

        Args:
            function: A function of a module, from a job to a JSON value.
            jobs: The jobs; those that were done before are not done again.
            sizes: How much work each job is, in `unit`.
            description: What the progress bar says is going on.
            unit: For example "B" for bytes.

        Raises:
            OSError: A worker was killed.
        """
        with tqdm.tqdm(
            total=sum(sizes), desc=description, unit=unit, unit_scale=True
        ) as bar:
            if not self._pool:
                results = []
                for job, size in zip(jobs, sizes, strict=True):
                    results.append(once(function, job))
                    bar.update(size)
                return results
            futures = {
                self._pool.submit(once, function, job): size
                for job, size in zip(jobs, sizes, strict=True)
            }
            try:
                for future in concurrent.futures.as_completed(futures):
                    future.result()
                    bar.update(futures[future])
            except BrokenProcessPool:
                raise OSError(
                    f"{description}: a worker process was killed, probably because "
                    "memory ran out. The same command goes on where this one stopped; "
                    "a smaller --num_workers needs less memory."
                ) from None
            return [future.result() for future in futures]


def once(function: Callable[[Any], Any], job: Job) -> Any:
    """Returns `function(job)`, from the file of its result where that exists."""
    done = job.path + ".json"
    if storage.exists(done):
        return storage.read_json(done)
    result = function(job)
    storage.write_json(done, result)
    return result


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # Not on macOS.
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Accelerators are for training.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle.
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends this process when its parent was killed, which pools do not notice."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def claim(
    directory: str,
    flag: str,
    settings: dict[str, Any],
    *,
    results: Sequence[str],
) -> None:
    """Creates a directory for the work that `settings` describe, or goes on in it.

    Args:
        directory: The directory; `settings.json` in it remembers what it is for.
        flag: Name of the option that gives the directory, for the message.
        settings: What the result depends on.
        results: Globs of what this work makes. A directory without any is free.

    Raises:
        ValueError: The directory holds results of other settings, or unknown ones.
    """
    remembered = os.path.join(directory, "settings.json")
    found = [path for p in results for path in storage.glob(os.path.join(directory, p))]
    remedy = f"Give another --{flag}, or remove the directory."
    if found and not storage.exists(remembered):
        name = os.path.basename(found[0])
        raise ValueError(f"{directory} holds a {name} of unknown origin. {remedy}")
    if found:
        before = storage.read_json(remembered)
        for name, value in settings.items():
            if before.get(name) != value:
                raise ValueError(
                    f"{directory} holds work with other settings: {name} was "
                    f"{before.get(name)!r}, and is {value!r} now. {remedy}"
                )
    storage.make_directory(directory)
    storage.write_json(remembered, settings)
