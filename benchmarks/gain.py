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
Prints a table and writes it to --output, with the scores and the folder of each run.
Finished runs are not repeated.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import measure
from bert_tf import cli, data
from bert_tf.finetuning import Task
from experiments import runs


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
    names, lines, rows = ("data set", "weights", "seed", "score"), [], []
    finished = runs.Runs(folder)
    for name, examples, task_class, entry in _rows(options.tasks, folder):
        scores = {start: [] for start in weights}
        for start, seed in itertools.product(weights, range(options.seeds)):
            own = {**entry, **weights[start], "precision": options.precision}
            run = finished.fine_tune(task_class, **own, seed=seed)
            scores[start].append(run.score)
            label = f"{name}, {examples:,}" if examples else name
            rows.append((label, start, seed, run.score))
        lines.append((name, examples or "all", *_gain(**scores)))
        data.write_table(folder / "gain.csv", [dict(zip(names, x)) for x in rows])
    header = "data set|examples|pre-trained|random weights|gain|gain / deviation"
    with (folder / "gain.md").open("w", encoding="utf-8") as file:
        measure.print_table(header, lines, file)
    measure.print_table(header, lines)


def _gain(pretrained: Sequence[float], random: Sequence[float]) -> tuple[str, ...]:
    """Returns means and standard deviations, and the gain in points and deviations.

    They are NaN if a run diverged.
    """
    both = [(np.mean(x), np.std(x, ddof=1)) for x in (pretrained, random)]
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
        task_class = runs.find_task(f"{runs.TASKS}.{entry.pop('kind', None)}")
        for size in (*entry.pop("examples", ()), None):
            sample = {"train_file": _sample(entry, size, folder)} if size else {}
            yield name, size, task_class, entry | sample


def _sample(entry: Mapping[str, Any], size: int, folder: pathlib.Path) -> str:
    """Writes `size` random rows of the training file, once; returns the path."""
    source = pathlib.Path(entry["train_file"])
    content = zlib.crc32(source.read_bytes())
    path = folder / "data" / f"{source.stem}-{size}-{content:08x}{source.suffix}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        rows = data.read_table(source)
        data.write_table(path, random.Random(0).sample(rows, size))
    return str(path)


if __name__ == "__main__":
    cli.run(main, GainConfig)
