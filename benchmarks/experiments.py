# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reruns the experiments of the BERT paper, each with one command.

    python -m benchmarks.experiments --experiment=masking --records=records \\
        --tasks=tasks.json --output=experiments

`--records` is a folder that `python -m bert_tf.corpus` wrote. `--tasks` is a JSON file.
For each data set of the paper it has the options of the task's command, the kind of the
task and, for a substitute, its name::

    {
      "MNLI": {"name": "SICK", "kind": "classification", "train_file": "SICK_train.txt",
               "dev_file": "SICK_trial.txt", "text_a": "sentence_A",
               "text_b": "sentence_B", "label": "entailment_judgment"},
      "SST-2": {"kind": "classification", "task": "sst2", "data_dir": "glue/SST-2"},
      "SQuAD": {"kind": "question_answering", "train_file": "train-v1.1.json",
                "dev_file": "dev-v1.1.json"},
      "NER": {"kind": "tagging", "train_file": "eng.train", "dev_file": "eng.testa"}
    }

Columns without a data set are skipped. `--output` receives a Markdown report and a PNG
per experiment, the pre-trained models in `pretrain/`, and metrics and predictions of
each fine-tuning run in `finetune/`. Folder names contain a hash of a run's options, so
that finished runs are not repeated and experiments share runs. Rerun the command to
resume. `--scale=paper` uses the model sizes of the paper.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import time
from collections.abc import Iterator

from benchmarks import task_runs
from benchmarks.paper import EVALUATIONS, SCALES, Column, Experiment, Row, experiments
from bert_tf import cli
from bert_tf.finetuning import ComputeOptions

_EXPERIMENTS = tuple(experiments(SCALES["small"]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentConfig(ComputeOptions):
    """Options of `python -m benchmarks.experiments`."""

    experiment: str = cli.option(
        "all", help="Name of the experiment.", choices=("all", *_EXPERIMENTS)
    )
    records: str = cli.option(help="Folder of records that bert_tf.corpus wrote.")
    tasks: str = cli.option(help="JSON file of the tasks, see above.")
    output: str = cli.option("experiments", help="Folder for models and reports.")
    scale: str = cli.option(
        "small", help="Sizes of models and training.", choices=tuple(SCALES)
    )
    steps: int = cli.option(
        0,
        help="Pre-training steps of every model, rounded down to a multiple of "
        f"{EVALUATIONS}; 0: the steps of --scale.",
        minimum=0,
    )
    seeds: int = cli.option(2, help="Fine-tuning runs per model and task.", minimum=1)
    rows: str = cli.option(
        "", help="Rows of the table to run, for example 1,3; empty: all."
    )


def main(options: ExperimentConfig) -> None:
    """Runs the experiments that are not finished and writes the reports.

    Raises:
        ValueError: `options.rows` or the file `options.tasks` is invalid.
    """
    from benchmarks import experiment_report as report

    runner = Runner(options)
    chosen = experiments(SCALES[options.scale])
    if options.experiment != "all":
        chosen = {options.experiment: chosen[options.experiment]}
    elif options.rows:
        raise ValueError(
            "--rows needs one --experiment, because rows are numbered per experiment."
        )
    for name, experiment in chosen.items():
        columns = [c for c in experiment.columns if runner.has(c)]
        if not columns:
            print(f"Skipping {name}: {options.tasks} has none of its data sets.")
            continue
        experiment = dataclasses.replace(experiment, columns=columns)
        if options.rows:
            experiment = _with_rows(experiment, options.rows)
        scores = runner.scores(experiment)
        text = report.markdown(experiment, scores, runner.data_sets, runner.baselines)
        path = runner.folder / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        plot = path.with_suffix(".png")
        report.plot(experiment, scores, runner.data_sets, plot)
        print(f"\n{text}\nReport: {path}. Plot: {plot}.", flush=True)


def _with_rows(experiment: Experiment, numbers: str) -> Experiment:
    """Returns the experiment with the rows of `numbers`, such as "1,3"."""
    places = {str(place + 1): place for place in range(len(experiment.rows))}
    if not places.keys() >= set(numbers.split(",")):
        raise ValueError(
            f"--rows must be comma-separated numbers from 1 to {len(places)}. "
            f"Received: {numbers!r}"
        )
    chosen = [places[number] for number in numbers.split(",")]
    return dataclasses.replace(
        experiment,
        rows=[experiment.rows[i] for i in chosen],
        columns=[
            dataclasses.replace(c, paper=[c.paper[i] for i in chosen if c.paper])
            for c in experiment.columns
        ],
    )


class Runner:
    """Trains the models of experiments, unless they exist.

    Args:
        options: See `ExperimentConfig`.

    Attributes:
        baselines: Scores of the majority baseline by the paper's data sets.

    Raises:
        ValueError: The file `options.tasks` is invalid.
    """

    def __init__(self, options: ExperimentConfig):
        self.folder = pathlib.Path(options.output)
        self._options = options
        self._scale = SCALES[options.scale]
        self._tasks = task_runs.read_tasks(options.tasks)
        self.baselines: dict[str, float] = {}

    @property
    def data_sets(self) -> dict[str, str]:
        """Names of our data sets by those of the paper."""
        return {name: task.name for name, task in self._tasks.items()}

    def has(self, column: Column) -> bool:
        return not column.data_set or column.data_set in self._tasks

    def scores(self, experiment: Experiment) -> dict[tuple[int, int], list[float]]:
        """Returns the scores of all cells, after training the missing models."""
        cells = [
            (r, c)
            for r in range(len(experiment.rows))
            for c in range(len(experiment.columns))
        ]
        scores = {}
        for number, (r, c) in enumerate(cells, 1):
            row, column = experiment.rows[r], experiment.columns[c]
            print(
                f"\n{experiment.title}, cell {number} of {len(cells)}: {row.name}, "
                f"{column.name}",
                flush=True,
            )
            start = time.process_time()
            scores[r, c] = list(self._cell(row, column))
            values = ", ".join(f"{score:.2f}" for score in scores[r, c])
            seconds = time.process_time() - start
            print(f"{values} ({seconds:.0f} s of processor time)", flush=True)
        return scores

    def _cell(self, row: Row, column: Column) -> Iterator[float]:
        from bert_tf import training

        model = self._pretrained(row)
        step = round(row.share * EVALUATIONS) * (self._steps // EVALUATIONS)
        if not column.data_set:
            for evaluation in training.read_history(model):
                if evaluation["step"] == step:
                    yield math.exp(evaluation["val_mlm_loss"])
            return
        if row.share < 1:
            model = model / "steps" / str(step)
        for seed in range(self._options.seeds):
            yield self._fine_tuned(model, row, column, seed)

    @property
    def _steps(self) -> int:
        steps = self._options.steps or self._scale.pretrain["steps"]
        return steps // EVALUATIONS * EVALUATIONS

    def _pretrained(self, row: Row) -> pathlib.Path:
        """Returns the model directory of a row, after training it if necessary."""
        from benchmarks import ablations
        from bert_tf import training

        steps = {
            "steps": self._steps,
            "warmup_steps": int(self._scale.warmup_share * self._steps),
            "validate_every": self._steps // EVALUATIONS,
        }
        settings = {**self._scale.pretrain, **steps, **row.pretrain}
        options = training.PretrainConfig(
            records=self._options.records,
            output="",
            strategy=self._options.strategy,
            precision=self._options.precision,
            **settings,
        )
        hooks = {}
        label = task_runs.label(row.pretrain) or "base"
        if row.encoder != "bert":
            label = f"left_to_right,{label}"
            hooks["backbone_class"] = ablations.LeftToRightBackbone
            hooks["transform"] = ablations.predict_next_token
        path = self.folder / "pretrain" / f"{label}-{task_runs.fingerprint(options)}"
        if not (path / "metrics.json").exists():  # Pre-training writes it last.
            options = dataclasses.replace(options, output=str(path))
            training.pretrain(options, keep_all=True, **hooks)
            task_runs.clear_session()
        return path

    def _fine_tuned(
        self, model: pathlib.Path, row: Row, column: Column, seed: int
    ) -> float:
        """Returns a score in percent; NaN if the training diverged."""
        from benchmarks import ablations

        task = self._tasks[column.data_set]
        settings = {**column.finetune, **row.finetune}
        options = task.configure(
            **settings,
            init_from=str(model),
            strategy=self._options.strategy,
            precision=self._options.precision,
            seed=seed,
        )
        label = task_runs.label({"on": column.data_set, **settings, "seed": seed})
        if row.encoder == "left_to_right_bilstm":
            label = f"bilstm,{label}"
        folder = self.folder / "finetune" / model.relative_to(self.folder / "pretrain")
        path = folder / f"{label}-{task_runs.fingerprint(options)}"
        score, self.baselines[column.data_set] = task.run(
            options, path, backbone_class=ablations.ENCODERS[row.encoder]
        )
        return score


if __name__ == "__main__":
    cli.run(main, ExperimentConfig)
