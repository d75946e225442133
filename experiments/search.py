# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches hyperparameters of a task (paper, appendix A.3 and section 4.1).

Put it before the module of a task. Numbers of the training may have several values,
separated by commas; each combination is a run:

    python -m experiments.search tasks.classification --task=mrpc \\
        --data_dir=glue/MRPC --init_from=models/base --output=models/mrpc --seed=0,1,2

By default, it tries the paper's grid: batches of 16 and 32, learning rates of 5e-5,
4e-5, 3e-5 and 2e-5, and 2, 3 and 4 epochs. Several seeds are random restarts: large
models on small data sets may fail to learn. A run that predicts the same for all
examples of the dev set after half of its epochs, at least two, is stopped: it failed.

Output: --output is the model directory of the best run on the dev set. `search.csv`
has all runs, also those that failed, `search.md` a summary, and `search.svg` the
scores. The best of many runs is the best on the dev set partly by chance: the score on
a labeled --test_file is not biased. `runs/` has the settings and metrics of each run,
without weights. Rerun the command to resume, also with more values.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import pathlib
import shutil
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import cli, finetuning, training

from . import report, runs

# The paper's grid.
GRID = {
    "batch_size": (16, 32),
    "learning_rate": (5e-5, 4e-5, 3e-5, 2e-5),
    "epochs": (2, 3, 4),
}

# --- Options ---------------------------------------------------------------------


def search_options(config: type[finetuning.FinetuneConfig]) -> type:
    """Returns options in which the numbers of the training are tuples of values."""
    hints, fields = typing.get_type_hints(finetuning.FinetuneConfig), []
    for field in dataclasses.fields(config):
        kind = hints.get(field.name)
        kind = next(iter(typing.get_args(kind)), kind)  # Of `float | None`.
        if kind in (int, float) and field.name != "max_sequence_length":
            default = GRID.get(field.name, field.default)
            new = dataclasses.field(default=default, metadata=field.metadata)
            fields.append((field.name, tuple[kind, ...], new))
    arguments = {"bases": (config,), "frozen": True, "kw_only": True}
    return dataclasses.make_dataclass("SearchConfig", fields, **arguments)


def combinations(
    config: type[finetuning.FinetuneConfig], options: Any
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields the settings of each run: those to report, and the options of `config`.

    Those to report have several values, or another one than the default.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    values = {name: getattr(options, name) for name in defaults}
    several = {k: x for k, x in values.items() if isinstance(x, tuple)}
    several.pop("layers", None)
    # The seed changes first: such runs share their graphs.
    several["seed"] = several.pop("seed", (defaults["seed"],))
    shown = {k for k, x in several.items() if x != (defaults[k],)}
    for combination in itertools.product(*several.values()):
        chosen = dict(zip(several, combination))
        yield {k: x for k, x in chosen.items() if k in shown}, values | chosen


# --- Runs ------------------------------------------------------------------------


def search(task_class: type[finetuning.Task], options: Any) -> list[runs.Run]:
    """Trains all combinations; writes the model of the best run, and the tables.

    The runs are in one process and share the tokenized data.

    Args:
        task_class: The task.
        options: Those of `search_options(task_class.Config)`.

    Raises:
        ValueError: All runs diverged, or `output` has a model that is not of a search.
    """
    output = pathlib.Path(options.output)
    if (output / "config.json").exists() and not (output / "runs").exists():
        raise ValueError(
            f"--output={output} has the model of another command, which the search "
            "would replace. Choose another folder."
        )
    planned = [*combinations(task_class.Config, options)]
    shared = _share_data(task_class, stop_failed=len(planned) > 1)
    all_runs, found = runs.Runs(output / "runs"), []
    for number, (settings, own) in enumerate(planned, 1):
        print(f"\nRun {number} of {len(planned)}: {_label(settings)}", flush=True)
        del own["output"]
        own["export"] = ""  # Only that of the best one.
        found.append(all_runs.fine_tune(shared, keep_weights=None, **own))
        learned = (run for run in found if not run.failure)
        best = max(learned, key=lambda run: run.score, default=None)
        for run in found:
            if run is not best:
                runs.drop_weights(run.path)
    if best is None and len(planned) > 1:  # The larger class may be the best answer.
        print("All runs failed to learn. The first one is trained to the end.")
        shutil.rmtree(found[0].path)
        shared = _share_data(task_class, stop_failed=False)
        best = found[0] = all_runs.fine_tune(shared, keep_weights=None, **planned[0][1])
    if best is None or best.failure:
        raise ValueError(f"All runs in {output} failed: {found[0].failure}")
    own, marker = planned[found.index(best)][1], output / "search.json"
    before = json.loads(marker.read_text()) if marker.exists() else {}
    done = {"best": best.path.name, "options": options.to_dict()}
    if before.get("best") != done["best"]:
        # Trains again if its weights were dropped by a search with a better run.
        all_runs.fine_tune(shared, keep_weights=True, **own)
        ignored = shutil.ignore_patterns("run.json")
        shutil.copytree(best.path, output, ignore=ignored, dirs_exist_ok=True)
    if before != done:  # Evaluates, predicts and exports.
        own |= {"output": options.output, "export": options.export}
        finetuning.fine_tune(task_class, task_class.Config(**own))
        marker.write_text(json.dumps(done))
        runs.drop_weights(best.path)
    table = _table([settings for settings, _ in planned], found, best)
    print(f"\n{report.write(table, output, found)}\nThe best model is in {output}.")
    return found


def _label(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items())


def _table(
    settings: Sequence[Mapping[str, Any]], found: Sequence[runs.Run], best: runs.Run
) -> report.Table:
    """Returns the scores by settings, whose seeds are restarts."""
    chosen = _label(settings[found.index(best)])
    claim = f"Best of {len(found)} runs on the dev set: {chosen}."
    table = report.Table("search", "Search", claim)
    for split, score in best.scores.items():
        scores = [run.scores.get(split, math.nan) for run in found]
        mean, _ = report.mean_and_interval(scores)
        table.claim += f" On {split}, it has {score:.1f}; the mean is {mean:.1f}."
        for each, score in zip(settings, scores):
            label = _label({k: x for k, x in each.items() if k != "seed"})
            table.add(label or "defaults", split, [score])
    return table


def _share_data(
    task_class: type[finetuning.Task], *, stop_failed: bool
) -> type[finetuning.Task]:
    """Returns a subclass whose instances share the data of the first one.

    Its instances evaluate test sets without labels only once, to find out.

    Args:
        task_class: The task.
        stop_failed: Whether to stop runs that fail to learn.
    """
    first, unlabeled = [], set()
    names = [field.name for field in dataclasses.fields(finetuning.FinetuneConfig)]

    class SharedTask(task_class):
        num_evaluations = 0

        def __init__(self, options, encoder):
            if not first:
                super().__init__(options, encoder)
                self.dataset = functools.cache(self.dataset)
                first.append(dict(vars(self)))
            vars(self).update(first[0])
            self.encoder = encoder  # Its dropout may differ.
            changes = {name: getattr(options, name) for name in names}
            self.options = dataclasses.replace(self.options, **changes)

        @property
        def evaluation_splits(self):
            return [x for x in super().evaluation_splits if x not in unlabeled]

        def evaluate(self, split, outputs, decision=None):
            result = super().evaluate(split, outputs, decision)
            if not result.metrics:
                unlabeled.add(split.name)
            if stop_failed and split.name == self.evaluation_splits[0]:
                self.num_evaluations += 1
                if self.num_evaluations >= max(2, self.options.epochs / 2):
                    _check_predictions(self.rows(split.name, result.answers))
            return result

    return SharedTask


def _check_predictions(rows: Iterator[Mapping[str, Any]]) -> None:
    """Raises DivergedError if predictions are the same, unlike gold labels.

    Scores are the same if their range is below 1 % of that of the labels.
    """
    pairs = [(row["prediction"], row["gold"]) for row in rows if "gold" in row]
    if not pairs:
        return
    predictions, gold = map(np.array, zip(*pairs))
    if predictions.dtype.kind == "f":
        same = np.ptp(predictions) < 0.01 * np.ptp(gold.astype(float))
    else:
        same = len({*predictions}) == 1 < len({*gold})
    if same:
        raise training.DivergedError(f"all predictions are {pairs[0][0]!r}")


def main() -> None:
    """Runs the search for the task that the first argument names."""
    module = f"{runs.TASKS}.classification"  # For --help.
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        module = sys.argv.pop(1)
    elif not any(argument.startswith("--help") for argument in sys.argv):
        sys.exit("error: the first argument must be a module, e.g. tasks.tagging")
    try:
        task_class = runs.find_task(module)
    except ValueError as error:
        sys.exit(f"error: {error}")
    options = search_options(task_class.Config)
    cli.run(lambda values: search(task_class, values), options)


if __name__ == "__main__":
    main()
