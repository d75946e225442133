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
import json
import math
import pathlib
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks import measure
from bert_tf import checkpoints, cli, data, finetuning, training
from bert_tf.finetuning import FinetuneConfig, Task
from bert_tf.lazy import lazy_import
from tasks.classification import Classification
from tasks.embedding import Embedding
from tasks.question_answering import QuestionAnswering
from tasks.tagging import Tagging

keras = lazy_import("keras")

_TASKS = {
    task.kind: task for task in (Classification, Embedding, QuestionAnswering, Tagging)
}


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
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = checkpoints.open_checkpoint(options.model)
    architecture, vocabulary = encoder.path / "config.json", folder / "vocab.txt"
    encoder.vocabulary.write(vocabulary)
    weights = {
        "pretrained": {"init_from": options.model},
        "random": {"size": str(architecture), "vocabulary": str(vocabulary)},
    }
    names, lines, runs = ("data set", "weights", "seed", "score"), [], []
    for row in _rows(options.tasks, folder):
        scores: dict[str, list[float]] = {}
        for start, settings in weights.items():
            for seed in range(options.seeds):
                run = row.task_class.Config(
                    **row.options,
                    **settings,
                    output=str(folder / f"{row.name}-{row.examples}-{start}-{seed}"),
                    precision=options.precision,
                    seed=seed,
                )
                scores.setdefault(start, []).append(_run(row, run))
                runs.append((row.name, start, seed, scores[start][-1]))
        lines.append((row.name, row.examples or "all", *_gain(**scores)))
        data.write_table(folder / "gain.csv", [dict(zip(names, x)) for x in runs])
    header = "data set|examples|pre-trained|random weights|gain|gain / deviation"
    text = "\n".join(measure.table(header, lines))
    (folder / "gain.md").write_text(f"{text}\n", encoding="utf-8")
    print(f"\n{text}")


def _gain(pretrained: Sequence[float], random: Sequence[float]) -> tuple[str, ...]:
    """Returns means and standard deviations, and the gain in points and deviations."""
    both = [(statistics.mean(x), statistics.stdev(x)) for x in (pretrained, random)]
    gain = both[0][0] - both[1][0]
    deviation = max(both[0][1], both[1][1])
    ratio = gain / deviation if deviation else math.inf
    return *("{:.1f} ± {:.1f}".format(*x) for x in both), f"{gain:+.1f}", f"{ratio:.1f}"


class _Row(NamedTuple):
    name: str
    examples: int | None
    task_class: type[Task]
    options: Mapping[str, Any]


def _rows(path: str, folder: pathlib.Path) -> Iterator[_Row]:
    """Yields the rows of the table; writes the samples of training examples."""
    for name, entry in json.loads(pathlib.Path(path).read_text("utf-8")).items():
        kind = entry.pop("kind", None)
        if kind not in _TASKS:
            raise ValueError(
                f"{path}, {name}: the kind must be one of {', '.join(_TASKS)}. "
                f"Received: kind={kind!r}"
            )
        for size in (*entry.pop("examples", ()), None):
            sample = {"train_file": _sample(entry, size, folder)} if size else {}
            yield _Row(name, size, _TASKS[kind], entry | sample)


def _run(row: _Row, options: FinetuneConfig) -> float:
    """Fine-tunes, unless `output` has the metrics of the run. Keeps no weights.

    Returns:
        The score on dev in percent. It is NaN if the training diverged.
    """
    metrics = pathlib.Path(options.output, "metrics.json")
    if not metrics.exists():
        try:
            finetuning.fine_tune(row.task_class, options)
        except training.DivergedError as error:
            print(error)
            return math.nan
        finally:
            keras.backend.clear_session()
        metrics.with_name("model.safetensors").unlink(missing_ok=True)
    scores = json.loads(metrics.read_text(encoding="utf-8"))["training"]
    to_percent = 1 if row.task_class is QuestionAnswering else 100
    return to_percent * scores["score"]


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
