# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares fine-tuning from a pre-trained encoder with training from random weights.

    python -m benchmarks.gain --model=models/mini --tasks=tasks.json --output=gain

For each data set, the same architecture, head and options are trained from the weights
of --model and from random weights, with the same seeds. `--tasks` is a JSON file with
the kind of the task and the options of its command by data set::

    {
      "SST-2": {"kind": "classification", "train_file": "glue/SST-2/train.tsv",
                "dev_file": "glue/SST-2/dev.tsv", "text_a": "sentence",
                "label": "label", "examples": [500, 4000]},
      "WNUT-17": {"kind": "tagging", "train_file": "train.conll",
                  "dev_file": "dev.conll"}
    }

With `examples`, a data set is also trained on random samples of its `train_file`.
Prints a table and writes it to --output, with the scores, metrics and predictions of
each run. Finished runs are not repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import measure
from bert_tf import cli, data, finetuning, text_files, training
from bert_tf.finetuning import FinetuneConfig, Task
from bert_tf.lazy import lazy_import
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

keras = lazy_import("keras")

_TASKS = {x.kind: x for x in (Classification, Embedding, QuestionAnswering, Tagging)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GainConfig(cli.Options):
    """Options of `python -m benchmarks.gain`."""

    model: str = cli.option(help="Model directory of a pre-trained encoder.")
    tasks: str = cli.option(help="JSON file of the tasks, see above.")
    output: str = cli.option("gain", help="Folder for reports and runs.")
    precision: str = cli.option("float32", help="As --precision of the tasks.")
    seeds: int = cli.option(3, help="Runs per row, from seed 0.", minimum=2)


def main(options: GainConfig) -> None:
    """Trains the runs that are not finished and writes the table.

    Raises:
        ValueError: The task file or an option is invalid.
    """
    folder, model = pathlib.Path(options.output), options.model
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        "pretrained": {"init_from": model},
        "random": {"size": f"{model}/config.json", "vocabulary": f"{model}/vocab.txt"},
    }
    names, lines, runs = ("data set", "weights", "seed", "score"), [], []
    for name, examples, task_class, entry in _rows(options.tasks, folder):
        scores = {start: [] for start in weights}
        for start, seed in itertools.product(weights, range(options.seeds)):
            run = task_class.Config(
                **entry,
                **weights[start],
                output=str(folder / f"{name}-{examples}-{start}-{seed}"),
                precision=options.precision,
                seed=seed,
            )
            scores[start].append(_run(task_class, run))
            runs.append((name, start, seed, scores[start][-1]))
        lines.append((name, examples or "all", *_gain(**scores)))
        data.write_table(folder / "gain.csv", [dict(zip(names, x)) for x in runs])
    header = "data set|examples|pre-trained|random weights|gain|gain / deviation"
    with (folder / "gain.md").open("w", encoding="utf-8") as file:
        measure.print_table(header, lines, file)
    measure.print_table(header, lines)


def _gain(pretrained: Sequence[float], random: Sequence[float]) -> tuple[str, ...]:
    """Returns means and standard deviations, and the gain in points and deviations."""
    both = [(statistics.mean(x), statistics.stdev(x)) for x in (pretrained, random)]
    gain = both[0][0] - both[1][0]
    deviation = max(both[0][1], both[1][1])
    ratio = gain / deviation if deviation else math.inf
    return *("{:.1f} ± {:.1f}".format(*x) for x in both), f"{gain:+.1f}", f"{ratio:.1f}"


def _rows(
    path: str, folder: pathlib.Path
) -> Iterator[tuple[str, int | None, type[Task], dict[str, Any]]]:
    """Yields the name, number of examples, task and options of each row of the table.

    Writes the samples of training examples.
    """
    for name, entry in json.loads(pathlib.Path(path).read_text("utf-8")).items():
        text_files.check_fields(f"{path}: {name}", entry, kind=tuple(_TASKS))
        task_class = _TASKS[entry.pop("kind")]
        for size in (*entry.pop("examples", ()), None):
            sample = {"train_file": _sample(entry, size, folder)} if size else {}
            yield name, size, task_class, entry | sample


def _run(task_class: type[Task], options: FinetuneConfig) -> float:
    """Fine-tunes, unless `output` has the metrics of the run. Keeps no weights.

    Returns:
        The score on dev in percent. It is NaN if the training diverged.
    """
    metrics = pathlib.Path(options.output, "metrics.json")
    if not metrics.exists():
        try:
            finetuning.fine_tune(task_class, options)
        except training.DivergedError as error:
            print(error)
            return math.nan
        finally:
            keras.backend.clear_session()
        metrics.with_name("model.safetensors").unlink(missing_ok=True)
    scores = json.loads(metrics.read_text(encoding="utf-8"))["training"]
    return scores["score"] * (1 if task_class is QuestionAnswering else 100)


def _sample(entry: Mapping[str, Any], size: int, folder: pathlib.Path) -> str:
    """Writes `size` random rows of the training file, once; returns the path."""
    source = pathlib.Path(entry["train_file"])
    path = folder / "data" / f"{source.stem}-{size}{source.suffix}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        rows = data.read_table(source)
        data.write_table(path, random.Random(0).sample(rows, size))
    return str(path)


if __name__ == "__main__":
    cli.run(main, GainConfig)
