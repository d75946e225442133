# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The jobs of `bert_tf.jobs`, on the machines of an engine that Apache Beam drives.

    pip install -r requirements-beam.txt
    python -m bert_tf.corpus ... --runner=FlinkRunner --beam_options=--flink_master=...

They are the very jobs that processes of one machine do, so that the results are the
same, and so is the rule for going on after an interruption. What they read and write
must be in reach of every machine: `gs://`, or a folder that all have mounted. There
bert_tf must be installed, for example in the container that
`--beam_options=--sdk_container_image=...` names.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.data.jobs import Job, once

RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")


class Workers(contextlib.AbstractContextManager):
    """What `jobs.Workers` is, with an engine in the place of processes.

    Args:
        runner: One of `RUNNERS`.
        options: Flags for Beam and the engine, as typed.

    Raises:
        ValueError: Apache Beam is not installed.
    """

    def __init__(self, runner: str, options: str = ""):
        try:
            import apache_beam
            from apache_beam.options.pipeline_options import PipelineOptions
        except ModuleNotFoundError as error:
            raise ValueError(
                f"--runner={runner} needs Apache Beam: "
                "pip install -r requirements-beam.txt"
            ) from error
        self._beam = apache_beam
        self._options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])

    def __exit__(self, *_: object) -> None:
        pass  # A pipeline ends in `run`.

    def run(
        self,
        function: Callable[[Any], Any],
        jobs: Sequence[Job],
        sizes: Sequence[float],
        *,
        description: str,
        unit: str,
    ) -> list[Any]:
        """As `jobs.Workers.run`; progress is on the pages of the engine."""
        del sizes
        print(f"{description}: {len(jobs):,} jobs.")
        with self._beam.Pipeline(options=self._options) as pipeline:
            (
                pipeline
                | "Jobs" >> self._beam.Create(list(jobs), reshuffle=True)
                | description >> self._beam.Map(_do, function)
            )
        return [once(function, job) for job in jobs]  # From files now.


def _do(job: Job, function: Callable[[Any], Any]) -> None:
    once(function, job)
