# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several fine-tunings, of which the best on dev is kept (paper, appendix A.3).

In: options that differ in learning rate, batch size, epochs or seed. Out, in the
output directory: the model of the best run, `runs.tsv` with the score of each, and in
`runs/` their metrics, histories and predictions, without weights. Started again, runs
that are finished are not repeated.

Small data sets make fine-tuning unstable: some restarts learn nothing (paper, section
4.1; arXiv 2006.04884). Such a run, whose score is that of one answer for everything, is
marked as collapsed; one whose loss is not finite as diverged.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
import math
import os
import pathlib
import shutil
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf import storage
from bert_tf.checkpoints import model_directory
from bert_tf.data import write_table
from bert_tf.finetuning.task import FinetuneConfig

_RUNS, _TABLE = "runs", "runs.tsv"


class Diverged(ValueError):
    """The loss of a training is not finite."""


def has_collapsed(score: float, majority_baseline: float) -> bool:
    """Whether a training is no better than one answer for everything."""
    return score <= majority_baseline


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a sweep: what is particular to it, and what came of it.

    Attributes:
        settings: The values of the options in which the runs differ.
        score: On dev, of the best epoch; NaN for a run that diverged.
        majority_baseline: The score of one answer for everything.
        seconds: Wall-clock time of the training.
    """

    settings: Mapping[str, Any]
    score: float = math.nan
    majority_baseline: float = math.nan
    seconds: float = math.nan

    @property
    def state(self) -> str:
        if math.isnan(self.score):
            return "diverged"
        return "collapsed" if has_collapsed(self.score, self.majority_baseline) else ""

    @property
    def row(self) -> dict[str, Any]:
        """What `runs.tsv` says of it."""
        result = {"score": self.score, "state": self.state, "seconds": self.seconds}
        return {**self.settings, **result}


def expand(grid: Sequence[FinetuneConfig]) -> list[FinetuneConfig]:
    """Returns the options of each run: each of `grid` with each of its seeds."""
    return [
        dataclasses.replace(options, seed=options.seed + restart, seeds=1)
        for options in grid
        for restart in range(options.seeds)
    ]


def best(
    runs: Sequence[FinetuneConfig],
    train: Callable[[FinetuneConfig], Mapping[str, Any]],
) -> FinetuneConfig:
    """Trains each run; returns the options of the best, whose model is in `output`.

    Args:
        runs: At least two, all with one `output`.
        train: Trains one model and returns the metrics that are in its directory;
            those alone where the training is finished and its weights are gone.

    Raises:
        ValueError: Every run has diverged, or `output` holds another model.
    """
    output = pathlib.Path(runs[0].output)
    if (output / model_directory.CONFIG).exists() and not (output / _RUNS).exists():
        raise ValueError(
            f"{output} holds the model of a single training, which several would "
            "replace: choose another --output."
        )
    done: list[Run] = []
    winner, metric, best_score = None, "", -math.inf
    for number, (options, settings) in enumerate(zip(runs, _settings(runs)), 1):
        label = ",".join(f"{name}={value}" for name, value in settings.items())
        print(f"\nRun {number} of {len(runs)}: {label}", flush=True)
        folder = output / _RUNS / label
        own = dataclasses.replace(options, output=str(folder), export="")
        gc.collect()  # Keras models hold themselves: the last one would stay a while.
        try:
            training = train(own)["training"]
        except Diverged as error:
            print(error)
            done.append(Run(settings))
        else:
            metric = training["metric"]
            result = (
                training[key] for key in ("score", "majority_baseline", "seconds")
            )
            done.append(Run(settings, *result))
            if training["score"] > best_score:
                winner, best_score = options, training["score"]
                _promote(folder, output)
        # Weights of a model that is not the best are nothing to keep by the dozen.
        (folder / model_directory.WEIGHTS).unlink(missing_ok=True)
        write_table(output / _TABLE, [run.row for run in done])
    if winner is None:
        raise ValueError(
            f"Each of the {len(runs)} runs diverged. A lower --learning_rate may help."
        )
    print(f"\n{summary(done, metric)}\n")
    return winner


def _settings(runs: Sequence[FinetuneConfig]) -> list[dict[str, Any]]:
    """Returns the options of each run in which not all are the same."""
    rows = [options.to_dict() for options in runs]
    different = [n for n in rows[0] if any(row[n] != rows[0][n] for row in rows)]
    return [{name: row[name] for name in different} for row in rows]


def _promote(folder: pathlib.Path, output: pathlib.Path) -> None:
    """Makes a run's model that of the output directory."""
    if (folder / model_directory.WEIGHTS).exists():  # Else they were moved before.
        os.replace(folder / model_directory.WEIGHTS, output / model_directory.WEIGHTS)
    for name in (
        model_directory.VOCABULARY,
        model_directory.METRICS,
        model_directory.CONFIG,
    ):
        with storage.atomic_path(output / name) as unfinished:
            shutil.copyfile(folder / name, unfinished)


# --- Tables ----------------------------------------------------------------------


def summary(runs: Sequence[Run], metric: str) -> str:
    """Returns a table of mean and standard deviation over the seeds.

    Args:
        metric: The name of the score.
    """
    groups: dict[tuple, list[Run]] = {}
    for run in runs:
        settings = {k: v for k, v in run.settings.items() if k != "seed"}
        groups.setdefault(tuple(settings.items()), []).append(run)
    rows = [[*dict(next(iter(groups))), f"{metric}, mean ± sd", "best", "runs"]]
    for settings, group in groups.items():
        scores = [run.score for run in group if run.state != "diverged"]
        states = collections.Counter(run.state for run in group if run.state)
        runs_cell = ", ".join(
            [str(len(group)), *(f"{count} {state}" for state, count in states.items())]
        )
        spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
        mean = f"{statistics.mean(scores):.4f}{spread}" if scores else "-"
        top = f"{max(scores):.4f}" if scores else "-"
        rows.append([*(str(value) for _, value in settings), mean, top, runs_cell])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in rows
    )
