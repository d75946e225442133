# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of an experiment, and the data sets that they are fine-tuned on.

`Runs` trains in one process, one run after the other. A run is identified by its
options, and by the contents of the files that they name: the folder of a run is their
hash. Finished runs are found and not repeated, interrupted ones resume, and tables
share the runs that they have in common.

    runs = Runs("experiments_output")
    model = runs.pretrain(records="records", size="4/256/4", steps=1000)
    for seed in range(5):
        run = runs.fine_tune(Classification, init_from=str(model.path), seed=seed, ...)
        print(run.score)

A JSON file maps the data sets of the paper to the options of the task's command. `kind`
is the task, `name` that of a substitute. Paths are relative to `data_dir`;
`train.tsv[:4000]` has the header and the first 4,000 further lines of a file, and
`train-v2.0.json[:10]` the first ten articles of SQuAD's, and
`train-v2.0.json[:, answered]` all of them, without the questions that have no answer.

    {"MNLI": {"name": "SICK", "kind": "classification", "train_file": "SICK_train.txt",
              "dev_file": "SICK_trial.txt", "text_a": "sentence_A",
              "text_b": "sentence_B", "label": "entailment_judgment"},
     "NER": {"name": "WNUT-17", "kind": "tagging", ...}}
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import io
import json
import math
import pathlib
import re
import shutil
import time
import zlib
from collections.abc import Mapping
from typing import Any

from bert_tf import checkpoints, data, finetuning, training
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")

# Options that do not change the result of a run.
_NOT_COMPARED = {"output", "export", "strategy", "save_every", "keep_checkpoints"}
# Those that name files or folders.
_MODELS = {"init_from", "teacher"}
_DATA = {"train_file", "dev_file", "test_file", "data_dir"}
_RUN = "run.json"
# Of the modules of tasks, also in an installed package.
TASKS = f"{__package__.removesuffix('experiments')}tasks"


@dataclasses.dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: Its model directory; without weights unless they were kept.
        command: The command that does the same, e.g. `tasks.classification`.
        options: The options that differ from their defaults.
        encoder: Name of the class of its encoder; "" for the default.
        metrics: The contents of metrics.json; empty if the training failed.
        seconds: Processor time, of a resumed run that since it was resumed.
        failure: Why it failed, e.g. because it diverged; "" if it did not.
    """

    path: pathlib.Path
    command: str
    options: Mapping[str, Any]
    encoder: str
    metrics: Mapping[str, Any]
    seconds: float
    failure: str = ""

    @property
    def score(self) -> float:
        """The dev score of the best epoch in percent; of a pre-training, the perplexity
        of masked LM on held-out text; NaN if the training failed."""
        perplexity = math.exp(self.metrics.get("val_mlm_loss", math.nan))
        return next(iter(self.scores.values()), perplexity)

    @property
    def scores(self) -> dict[str, float]:
        """Of a fine-tuning: the score on each labeled split, first on the dev set."""
        if not (training := self.metrics.get("training")):
            return {}
        split, metric = training["metric"].split(" ", 1)
        found = {k: x[metric] for k, x in self.metrics.items() if metric in x}
        factor = 1 if self.command == "tasks.question_answering" else 100
        return {k: factor * x for k, x in ({split: training["score"]} | found).items()}


class Runs:
    """The runs in a folder.

    Args:
        folder: Has a folder `pretrain`, and one per kind of task, with the runs.

    Attributes:
        used: The runs that were trained or found since the start, by path.
    """

    def __init__(self, folder: str | pathlib.Path):
        self.folder = pathlib.Path(folder)
        self.used: dict[pathlib.Path, Run] = {}
        self._compiled: dict[str, Any] = {}
        self._content = functools.cache(_content)

    def pretrain(self, *, encoder_class: type | None = None, **options: Any) -> Run:
        """Pre-trains an encoder, as `training.pretrain`."""
        config = training.PretrainConfig(output="", **options)
        return self._run("bert_tf.pretrain", config, training.pretrain, encoder_class)

    def fine_tune(
        self, task_class: type, /, *, encoder_class: type | None = None, **options: Any
    ) -> Run:
        """Fine-tunes an encoder, as `finetuning.fine_tune`.

        Args:
            task_class: The task.
            encoder_class: As in `finetuning.fine_tune`.
            **options: Those of `task_class.Config`, but for `output`; and
                `keep_weights`, whether to keep the weights, also of a run that is
                found. By default False; None keeps those of a new run.
        """
        keep = options.pop("keep_weights", False)
        config = task_class.Config(output="", **options)
        fine_tune = functools.partial(finetuning.fine_tune, cache=self._compiled)
        train = functools.partial(fine_tune, task_class)
        command = f"tasks.{task_class.kind}"
        return self._run(command, config, train, encoder_class, keep)

    def _run(
        self, command: str, config: Any, train: Any, encoder: Any, keep: Any = True
    ) -> Run:
        """Returns the run of some options, after training it if necessary."""
        defaults = {x.name: x.default for x in dataclasses.fields(config)}
        options = {
            name: value
            for name, default in defaults.items()
            if (value := getattr(config, name)) != default and name not in _NOT_COMPARED
        }
        name = encoder.__name__ if encoder else ""
        described = {k: self._describe(k, x) for k, x in options.items()}
        identity = {"command": command, "options": described, "encoder": name}
        text = json.dumps(identity, sort_keys=True)
        path = self.folder / command.rpartition(".")[2]
        path /= hashlib.sha256(text.encode()).hexdigest()[:12]
        file = path / _RUN
        found = json.loads(file.read_text("utf-8")) if file.exists() else {}
        if keep and found.get("metrics") and not any(path.glob("*.safetensors")):
            shutil.rmtree(path)  # Trains again: the weights were not kept.
            found = {}
        if not found:
            print(f"\n--- {path}: {command} {name} {options}", flush=True)
            found = {**identity, "metrics": {}, "seconds": -time.process_time()}
            output = dataclasses.replace(config, output=str(path))
            try:
                found["metrics"] = train(output, encoder_class=encoder)
            except training.DivergedError as error:
                print(f"Failed: {error}")
                found["failure"] = str(error)
                shutil.rmtree(path, ignore_errors=True)  # It has a training state.
                path.mkdir(parents=True)
            found["seconds"] += time.process_time()
            keras.backend.clear_session()  # Else the graphs of all runs stay.
            (written := path / f"{_RUN}.new").write_text(json.dumps(found, indent=1))
            written.replace(file)
            if keep is False:
                drop_weights(path)
        run = Run(**{**found, "path": path, "options": options})
        self.used[path] = run
        return run

    def _describe(self, option: str, value: Any) -> Any:
        """Returns what identifies the value of an option.

        Of a model in this folder, its name here, which has the hash of its options. Of
        other files, their name and contents: they may be moved, but not changed.
        """
        if option not in {*_MODELS, *_DATA, "records", "vocabulary"}:
            return value
        if option in _MODELS and value.startswith(f"{self.folder}/"):
            return value.removeprefix(str(self.folder))
        path = pathlib.Path(value)
        if not path.exists():  # An address, or the training refuses it.
            return value
        return f"{path.name}, {self._content(option, path)}"


def _content(option: str, path: pathlib.Path) -> str:
    if option in _MODELS:
        return checkpoints.open_checkpoint(path).fingerprint()
    if option == "records":
        return data.Records(path).fingerprint
    files, checksum = sorted(path.iterdir()) if path.is_dir() else [path], 0
    for file in filter(pathlib.Path.is_file, files):
        checksum = zlib.crc32(file.name.encode(), checksum)
        checksum = zlib.crc32(file.read_bytes(), checksum)
    return f"{checksum:08x}"


def drop_weights(path: pathlib.Path) -> None:
    """Deletes the weights of a model directory."""
    for weights in path.glob("*.safetensors"):
        weights.unlink()


# --- Data sets -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class DataSet:
    """A data set to fine-tune on.

    Attributes:
        name: Its name, which may be that of a substitute for the paper's.
        task_class: Its task.
        options: Options of the task's command.
    """

    name: str
    task_class: type[finetuning.Task]
    options: Mapping[str, Any]


def find_task(module: str) -> type[finetuning.Task]:
    """Returns the task that a module defines.

    Raises:
        ValueError: There is no such module, or it does not define one task.
    """
    try:
        members = vars(importlib.import_module(module)).values()
    except ModuleNotFoundError as error:
        raise ValueError(f"{module} must be a module with a task: {error}") from error
    classes = [x for x in members if isinstance(x, type) and x.__module__ == module]
    found = [x for x in classes if issubclass(x, finetuning.Task)]
    if len(found) != 1:
        raise ValueError(f"{module} must define one task. It has {len(found)}.")
    return found[0]


def read_data_sets(path: str | pathlib.Path) -> dict[str, dict[str, Any]]:
    """Reads a file of data sets, by the paper's names; see the top of this module.

    Raises:
        ValueError: The file is not a JSON object of objects.
    """
    try:
        entries = json.loads(pathlib.Path(path).read_text("utf-8"))
        return {key: {"name": key, **entry} for key, entry in entries.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} must be a JSON file with an object of options for each data set. "
            f"Got: {error}"
        ) from error


def open_data_set(
    entry: Mapping[str, Any], source: str, data_dir: str, folder: pathlib.Path
) -> DataSet:
    """Opens a data set; writes the parts of files that it names.

    Args:
        entry: What the file of data sets says of it.
        source: The name of the file and the data set, for errors.
        data_dir: The folder that its paths are relative to.
        folder: Where to write parts of files.

    Raises:
        ValueError: The entry has a wrong kind or option, or a file that is missing or
            has no such part.
    """
    options = dict(entry)
    kind, name = options.pop("kind", None), options.pop("name")
    try:
        task_class = find_task(f"{TASKS}.{kind}")
        fixed = {"output": "", "init_from": "", "seed": 0, "precision": "float32"}
        task_class.Config(**fixed, **options)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{source}: kind must be a module of tasks, such as tagging, and the other "
            f"keys options of its command. Got {entry}: {error}"
        ) from error
    for key in options.keys() & _DATA:
        file = str(pathlib.Path(data_dir, options[key]))
        try:
            options[key] = _part(file, folder)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{source}: {key} must be in --data_dir. Without it, pass other "
                f"--columns. Got {file}: {error}"
            ) from error
    return DataSet(name, task_class, options)


def _is_answered(question: Mapping[str, Any]) -> bool:
    # `is_impossible` decides, as in the task, and `answers` may be missing.
    return bool(question.get("answers")) and not question.get("is_impossible")


def _part(path: str, folder: pathlib.Path) -> str:
    """Returns `path`; for `path[a:b]` and `path[a:b, answered]`, a part as a file."""
    if not (parts := re.fullmatch(r"(.*)\[(\d*):(\d*)(, answered)?\]", path)):
        pathlib.Path(path).stat()  # Raises OSError if it is missing.
        return path
    source, *bounds, answered = parts.groups()
    chosen = slice(*(int(bound) if bound else None for bound in bounds))
    source, text = pathlib.Path(source), pathlib.Path(source).read_text("utf-8")
    if source.suffix == ".json":
        articles = json.loads(text).get("data", [])[chosen]
        for article in articles if answered else ():
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = [*filter(_is_answered, paragraph["qas"])]
        text = json.dumps({"data": articles})
    elif answered:
        raise ValueError("only JSON files have questions with answers")
    else:
        lines = [*io.StringIO(text)]
        text = "".join([*lines[:1], *lines[1:][chosen]])
    name = f"{source.parent.name}-{'-'.join(bounds)}{'-answered' if answered else ''}"
    name += f"-{zlib.crc32(text.encode()):08x}-{source.name}"
    part = folder / "data" / name
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(text, "utf-8")
    return str(part)
