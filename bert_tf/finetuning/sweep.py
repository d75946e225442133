# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs several fine-tunings and keeps the best on the dev set (paper, appendix A.3).

Input: configurations that differ in learning rate, batch size, epochs or seed. Output,
in the output directory: the model of the best run, `runs.tsv` with the score of each
run, and `runs/` with their metrics and predictions, without weights. Finished runs are
not repeated when a sweep is resumed.

Fine-tuning on small data sets is unstable: some restarts fail to learn (paper, section
4.1; arXiv 2006.04884). `runs.tsv` marks a run that scores no better than a constant
prediction as collapsed, and a run with a NaN or infinite loss as diverged.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_tf import storage
from bert_tf.checkpoints import model_directory
from bert_tf.data import write_table
from bert_tf.finetuning import report
from bert_tf.finetuning.task import FinetuneConfig

_RUNS, _TABLE = "runs", "runs.tsv"


class DivergedError(ValueError):
    """The training loss became NaN or infinite."""


def has_collapsed(training: Mapping[str, Any]) -> bool:
    """Whether a run scored no better than a constant prediction.

    Args:
        training: The metrics of the training; see `train.train`.
    """
    return training["score"] <= training["majority_baseline"]


def best_run(
    runs: Sequence[FinetuneConfig],
    train: Callable[[FinetuneConfig], Mapping[str, Any]],
    *,
    write: bool = True,
) -> FinetuneConfig:
    """Trains each run; returns the configuration of the best, whose model is kept.

    Args:
        runs: At least two configurations with the same `output`.
        train: Trains one model, or returns the metrics of a finished run.
        write: Whether to write files. With several workers, only one writes.

    Raises:
        ValueError: `output` has a model that is not from a sweep.
        DivergedError: All runs diverged.
    """
    output = pathlib.Path(storage.local_copy(runs[0].output))
    if (output / model_directory.CONFIG).exists() and not (output / _RUNS).exists():
        raise ValueError(
            f"{output} has the model of a single run, which a sweep would replace. "
            "Choose another --output."
        )
    rows, best, best_score = [], None, -math.inf
    for number, (options, settings) in enumerate(zip(runs, _differences(runs)), 1):
        name = ",".join(f"{key}={value}" for key, value in settings.items())
        print(f"\nRun {number} of {len(runs)}: {name}", flush=True)
        folder = output / _RUNS / name
        gc.collect()  # Keras models are in reference cycles.
        try:
            own = dataclasses.replace(options, output=str(folder), export="")
            training = train(own)["training"]
        except DivergedError as error:
            print(error)
            result = {"score": math.nan, "state": "diverged", "seconds": math.nan}
        else:
            score, seconds = training["score"], training["seconds"]
            state = "collapsed" if has_collapsed(training) else ""
            result = {"score": score, "state": state, "seconds": seconds}
            if score > best_score:
                best, best_score, metric = options, score, training["metric"]
                if write:
                    _promote(folder, output)
        rows.append(settings | result)
        if write:
            for name in model_directory.model_files(folder):
                if name.endswith(model_directory.WEIGHTS):
                    (folder / name).unlink()
            write_table(output / _TABLE, rows)
    if best is None:
        raise DivergedError(
            f"All {len(runs)} runs diverged. Try a lower --learning_rate."
        )
    print(f"\n{report.sweep_table(rows, metric)}\n")
    return best


def _differences(runs: Sequence[FinetuneConfig]) -> list[dict[str, Any]]:
    """Returns the options of each run that are not the same in all runs."""
    rows = [options.to_dict() for options in runs]
    names = [
        name for name in rows[0] if any(row[name] != rows[0][name] for row in rows)
    ]
    return [{name: row[name] for name in names} for row in rows]


def _promote(folder: pathlib.Path, output: pathlib.Path) -> None:
    """Moves a run's weights to the output directory and copies its other files."""
    for name in model_directory.model_files(folder):
        (output / name).parent.mkdir(exist_ok=True)
        if name.endswith(model_directory.WEIGHTS):  # Absent if the sweep is resumed.
            os.replace(folder / name, output / name)
            continue
        with storage.atomic_path(output / name) as temporary:
            shutil.copyfile(folder / name, temporary)
