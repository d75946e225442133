# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning runs of benchmarks, on tasks from a JSON file.

The file has, by name, the options of a task's command and the kind of the task::

    {
      "SST-2": {"kind": "classification", "task": "sst2", "data_dir": "glue/SST-2"},
      "STS-B, unsupervised": {"kind": "embedding", "task": "stsb",
                              "data_dir": "glue/STS-B", "loss": "simcse"},
      "WNUT-17": {"kind": "tagging", "train_file": "train.conll",
                  "dev_file": "dev.conll"}
    }
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Mapping
from typing import Any

from bert_tf import cli, finetuning
from bert_tf.finetuning import Task
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging


@dataclasses.dataclass(frozen=True)
class TaskRuns:
    """An entry of the task file.

    Attributes:
        name: Name of the data set.
        task_class: The task.
        options: Options of the task's command, for all runs.
    """

    name: str
    task_class: type[Task]
    options: Mapping[str, Any]

    def configure(self, **settings: Any) -> finetuning.FinetuneConfig:
        """Returns the options of a run; `settings` take precedence."""
        return self.task_class.Config(**{**self.options, "output": "", **settings})

    def run(
        self,
        options: finetuning.FinetuneConfig,
        path: pathlib.Path,
        **arguments: Any,
    ) -> tuple[float, float]:
        """Fine-tunes, unless `path` has the metrics of the run. Keeps no weights.

        Args:
            options: The options of the run, see `configure`.
            path: Folder of the run.
            **arguments: More arguments of `fine_tune`.

        Returns:
            The score on dev and that of the majority baseline, in percent. The score
            is NaN if the training diverged.
        """
        metrics = path / "metrics.json"
        if not metrics.exists():
            try:
                finetuning.fine_tune(
                    self.task_class,
                    dataclasses.replace(options, output=str(path)),
                    **arguments,
                )
            except finetuning.DivergedError as error:
                print(error)
                return math.nan, math.nan
            finally:
                clear_session()
            (path / "model.weights.h5").unlink(missing_ok=True)
        training = json.loads(metrics.read_text(encoding="utf-8"))["training"]
        to_percent = 1 if self.task_class is QuestionAnswering else 100
        return tuple(to_percent * training[k] for k in ("score", "majority_baseline"))


_TASKS = {
    task.kind: task for task in (Classification, Embedding, QuestionAnswering, Tagging)
}


def read_tasks(path: str) -> dict[str, TaskRuns]:
    """Reads a task file. An entry may have a `name` that differs from its key.

    Raises:
        ValueError: The file is invalid.
    """
    try:
        entries = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from error
    tasks = {}
    for data_set, options in entries.items():
        kind = options.pop("kind", None)
        if kind not in _TASKS:
            raise ValueError(
                f"{path}, {data_set}: the kind must be one of {', '.join(_TASKS)}. "
                f"Received: kind={kind!r}"
            )
        task = TaskRuns(options.pop("name", data_set), _TASKS[kind], options)
        known = {field.name for field in dataclasses.fields(task.task_class.Config)}
        if unknown := options.keys() - known:
            raise ValueError(
                f"{path}, {data_set}: python -m tasks.{kind} has no option "
                f"{', '.join(sorted(unknown))}."
            )
        tasks[data_set] = task
    return tasks


def label(settings: Mapping[str, Any]) -> str:
    """Returns the human-readable part of a folder name."""
    return ",".join(f"{k}={v}".replace("/", "x") for k, v in settings.items())


def fingerprint(options: cli.Options) -> str:
    """Returns a hash of the options that differ from their defaults.

    Options that are added to a command later do not change it.
    """
    changed = {
        field.name: value
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) != field.default
    }
    text = json.dumps(changed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def clear_session() -> None:
    """Frees what Keras remembers of the models of a run."""
    import keras

    keras.backend.clear_session()
