# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compares fine-tuning from a pre-trained encoder with training from random weights.

    python -m benchmarks.gain --model=models/mini --tasks=tasks.json --output=gain

For each data set, the same architecture, head and options are trained from the weights
of --model and from random weights, with the same seeds. `--tasks` is a JSON file with
the options of each data set, see `benchmarks.task_runs`. With
`"examples": [500, 4000]`, a data set is also trained on random samples of its
`train_file`, and gain.png shows the scores against the number of examples.

Writes gain.md, gain.png, and metrics and predictions of each run, to --output. Finished
runs are not repeated.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import task_runs
from bert_tf import checkpoints, cli, data
from bert_tf.finetuning import ComputeOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, kw_only=True)
class GainConfig(ComputeOptions):
    """Options of `python -m benchmarks.gain`."""

    model: str = cli.option(help="Model directory of a pre-trained encoder.")
    tasks: str = cli.option(help="JSON file of the tasks, see above.")
    output: str = cli.option("gain", help="Folder for reports and runs.")
    seeds: int = cli.option(3, help="Runs per row, from seed 0.", minimum=2)


class Result(NamedTuple):
    """Dev scores in percent, one per seed.

    Attributes:
        name: Name of the data set.
        examples: Number of sampled training examples; None for all examples.
        pretrained: Scores from the pre-trained encoder.
        random: Scores from random weights.
        baseline: Score of the best constant prediction.
    """

    name: str
    examples: int | None
    pretrained: Sequence[float]
    random: Sequence[float]
    baseline: float

    @property
    def gain(self) -> float:
        return statistics.mean(self.pretrained) - statistics.mean(self.random)

    @property
    def deviation(self) -> float:
        """The larger of the two standard deviations."""
        return max(statistics.stdev(self.pretrained), statistics.stdev(self.random))


def main(options: GainConfig) -> None:
    """Trains the runs that are not finished, then writes the table and the plot.

    Raises:
        ValueError: The task file or an option is invalid.
    """
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    encoder = checkpoints.open_checkpoint(options.model)
    # Imports TensorFlow, which `--help` does not need.
    from bert_tf.modeling import GOOGLE_KEYS

    architecture, vocabulary = folder / "bert_config.json", folder / "vocab.txt"
    values = {
        google: getattr(encoder.architecture, ours)
        for ours, google in GOOGLE_KEYS.items()
    }
    architecture.write_text(json.dumps(values), encoding="utf-8")
    encoder.vocabulary.write(vocabulary)
    weights = {
        "pretrained": {"init_from": options.model},
        "random": {"size": str(architecture), "vocabulary": str(vocabulary)},
    }
    results = []
    for row in _rows(options.tasks, folder):
        scores: dict[str, list[float]] = {}
        for start, settings in weights.items():
            for seed in range(options.seeds):
                run = row.task.configure(
                    **settings,
                    strategy=options.strategy,
                    precision=options.precision,
                    seed=seed,
                )
                path = folder / f"{row.key}-{start}-{seed}-{task_runs.fingerprint(run)}"
                score, baseline = row.task.run(run, path)
                scores.setdefault(start, []).append(score)
        results.append(Result(row.name, row.examples, **scores, baseline=baseline))
        (folder / "gain.md").write_text(markdown(results), encoding="utf-8")
        print(f"\n{markdown(results)}", flush=True)
    draw(results).savefig(folder / "gain.png", dpi=120)


class _Row(NamedTuple):
    name: str
    examples: int | None
    key: str
    task: task_runs.TaskRuns


def _rows(path: str, folder: pathlib.Path) -> list[_Row]:
    """Returns the rows of the table; writes the samples of training examples."""
    rows, expanded = [], {}
    for name, entry in json.loads(pathlib.Path(path).read_text("utf-8")).items():
        for size in (*entry.pop("examples", ()), None):
            key = f"{name}-{size}" if size else name
            sample = {"train_file": _sample(entry, size, folder)} if size else {}
            expanded[key] = entry | sample
            rows.append((name, size, key))
    path = folder / "tasks.json"
    path.write_text(json.dumps(expanded, indent=2), encoding="utf-8")
    tasks = task_runs.read_tasks(str(path))
    return [_Row(*row, tasks[row[-1]]) for row in rows]


def _sample(entry: Mapping[str, Any], size: int, folder: pathlib.Path) -> str:
    """Writes `size` random rows of the training file, once; returns the path."""
    source = pathlib.Path(entry["train_file"])
    path = folder / "data" / f"{source.stem}-{size}{source.suffix}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        rows = data.read_table(source)
        data.write_table(path, random.Random(0).sample(rows, size))
    return str(path)


def markdown(results: Sequence[Result]) -> str:
    """Returns the table, with the gain in points and in standard deviations."""
    lines = [
        "| data set | examples | pre-trained | random weights | constant | gain | "
        "gain / deviation |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        pretrained, from_random = (
            f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}"
            for scores in (result.pretrained, result.random)
        )
        ratio = result.gain / result.deviation if result.deviation else math.inf
        size = f"{result.examples:,}" if result.examples else "all"
        lines.append(
            f"| {result.name} | {size} | {pretrained} | {from_random} | "
            f"{result.baseline:.1f} | {result.gain:+.1f} | {ratio:.1f} |"
        )
    return "\n".join(lines) + "\n"


def draw(results: Sequence[Result]) -> Figure:
    """Returns a figure with the mean and all scores of each row."""
    import matplotlib.figure

    height = 1 + 0.35 * len(results)
    figure = matplotlib.figure.Figure(figsize=(7, height), layout="constrained")
    axes = figure.subplots()
    labels = [
        f"{r.name}, {r.examples:,} examples" if r.examples else r.name for r in results
    ]
    for name, color in (("random", "tab:gray"), ("pretrained", "tab:blue")):
        for y, result in enumerate(results):
            scores = getattr(result, name)
            axes.plot(scores, [y] * len(scores), ".", color=color, alpha=0.5)
            label = {"random": "random weights", "pretrained": "pre-trained"}[name]
            axes.plot(
                statistics.mean(scores),
                y,
                "o",
                color=color,
                label=label if y == 0 else None,
            )
    for y, result in enumerate(results):
        axes.plot(result.baseline, y, "|", color="black", markersize=10)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set(xlabel="score on dev; | is the best constant prediction")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


if __name__ == "__main__":
    cli.run(main, GainConfig)
