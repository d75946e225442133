# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of `bert_tf.data.jobs` on a cluster with Apache Beam.

    pip install -r requirements-beam.txt
    python -m bert_tf.corpus ... --runner=FlinkRunner --beam_options=--flink_master=...

The jobs are the same as on one machine, so the results are equal, and the same command
resumes after an interruption. All machines must see the same paths: `gs://` or a shared
mount. bert_tf must be installed on them, for example in the container image of
`--beam_options=--sdk_container_image=...`.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.data.jobs import Job, run_once

BEAM_RUNNERS = ("DirectRunner", "FlinkRunner", "SparkRunner", "DataflowRunner")


class BeamWorkers(contextlib.AbstractContextManager):
    """Replaces `Workers` to run jobs with Apache Beam.

    Args:
        runner: One of `BEAM_RUNNERS`.
        options: Command-line flags of Beam and the runner.

    Raises:
        ValueError: Apache Beam is not installed.
    """

    def __init__(self, runner: str, options: str = ""):
        try:  # An optional dependency.
            import apache_beam
            from apache_beam.options.pipeline_options import PipelineOptions
        except ModuleNotFoundError as error:
            raise ValueError(
                f"--runner={runner} requires Apache Beam: "
                "pip install -r requirements-beam.txt"
            ) from error
        self._beam = apache_beam
        self._options = PipelineOptions([f"--runner={runner}", *shlex.split(options)])

    def __exit__(self, *_: object) -> None:
        pass  # `run` waits for its pipeline.

    def run(
        self,
        function: Callable[[Any], Any],
        jobs: Sequence[Job],
        sizes: Sequence[float],
        *,
        description: str,
        unit: str,
    ) -> list[Any]:
        """See `Workers.run`. The web interface of the runner shows the progress."""
        del sizes, unit
        print(f"{description}: {len(jobs):,} jobs.")
        with self._beam.Pipeline(options=self._options) as pipeline:
            (
                pipeline
                | "Jobs" >> self._beam.Create(list(jobs), reshuffle=True)
                | description >> self._beam.Map(_run, function)
            )
        return [run_once(function, job) for job in jobs]  # Reads the result files.


def _run(job: Job, function: Callable[[Any], Any]) -> None:
    run_once(function, job)
