# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the ablations of the paper share: pre-trained rows, fine-tuned columns, scales.

An ablation is a table. Its rows are pre-trainings that differ in an option or in the
class of the encoder; its columns are data sets to fine-tune on, with restarts.
`experiments/masking.py` is the shortest one to copy.
"""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from bert_tf import cli, training

from . import report
from .runs import Run, Runs, open_data_set, read_data_sets

SHARES = 5  # Each pre-training is evaluated after 1/5, ..., 5/5 of its steps.

# A third of the paper's layers and width, for two cores and some hours.
_SMALL = {"size": "4/256/4", "batch_size": 128, "steps": 6400}
_BASE = {"size": "12/768/12", "batch_size": 256, "steps": 1_000_000}
SCALES = {
    "small": {**training.PretrainConfig.RECIPES["short"], **_SMALL},
    "base": {**_BASE, "learning_rate": 1e-4},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AblationConfig(cli.Options):
    """Options of the ablations."""

    records: str = cli.option(help="Folder of records that bert_tf.corpus wrote.")
    output: str = cli.option("ablations", help="Folder of the runs and reports.")
    data_sets: str = cli.option(
        "", help="JSON file of data sets; by default experiments/data_sets.json."
    )
    data_dir: str = cli.option(".", help="Folder of the paths in --data_sets.")
    scale: str = cli.option(
        "small",
        help="Sizes and steps: small (4 layers of 256, 52 million tokens in rows of "
        "64), or base (the paper's).",
        choices=tuple(SCALES),
    )
    steps: int = cli.option(
        0, help="Pre-training steps, a multiple of 5; 0: by --scale.", minimum=0
    )
    batch_size: int = cli.option(0, help="Rows per step; 0: by --scale.", minimum=0)
    restarts: int = cli.option(5, help="Fine-tunings per cell.", minimum=1)
    rows: tuple[int, ...] = cli.option((), help="Rows, e.g. 1,3; by default all.")
    columns: str = cli.option("", help="Data sets, e.g. MRPC,NER; by default all.")
    precision: str = cli.option(
        "float32", help="Compute dtype.", choices=("float32", "mixed_bfloat16")
    )


class Ablation:
    """A table in the making.

    Args:
        options: The options.
        name, title, claim: Those of its `report.Table`.
        data_sets: The paper's names of its data sets.

    Attributes:
        table: The table.
        steps: The steps of a pre-training, a multiple of `SHARES`.

    Raises:
        ValueError: The file of data sets is invalid, or has none of `data_sets`.
    """

    def __init__(
        self,
        options: AblationConfig,
        name: str,
        title: str,
        claim: str,
        data_sets: Collection[str],
    ):
        self.options, self.table = options, report.Table(name, title, claim)
        self.runs = Runs(options.output)
        scale = SCALES[options.scale]
        self.steps = max(1, (options.steps or scale["steps"]) // SHARES) * SHARES
        path = options.data_sets or pathlib.Path(__file__).with_name("data_sets.json")
        entries = read_data_sets(path)
        known = [x for x in data_sets if x in entries]
        columns = options.columns.split(",") if options.columns else known
        if (unknown := {*columns} - {*known}) or (entries and not known):
            raise ValueError(
                f"--columns must be data sets of {path} that {name} has: "
                f"{', '.join(data_sets)}. Got {sorted(unknown or entries)}."
            )
        folder = self.runs.folder
        self.data_sets = {
            x: open_data_set(entries[x], f"{path}, {x}", options.data_dir, folder)
            for x in columns
        }

    def rows(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yields the rows of `--rows`; writes and prints the table after each."""
        rows = dict(enumerate(rows, 1))
        wanted = self.options.rows or rows
        if not rows.keys() >= {*wanted}:
            raise ValueError(f"--rows must be from 1 to {len(rows)}. Got {wanted}.")
        for number in wanted:
            yield rows[number]
            text = report.write(self.table, self.runs.folder, self.runs.used.values())
            print(f"\n{text}", flush=True)

    def pretrain(self, encoder_class: type | None = None, **changes: Any) -> Run:
        """Returns the pre-training of a row, with options that differ from the scale's.

        `checkpoints/step-<n>` of its folder are the models of the evaluations.
        """
        options = self.options
        steps = changes.get("steps", self.steps)
        scale = SCALES[options.scale]
        warmup = 0.05 if options.scale == "small" else 0.01
        settings = {
            **scale,
            "records": options.records,
            "precision": options.precision,
            "batch_size": options.batch_size or scale["batch_size"],
            "steps": steps,
            "warmup_steps": round(warmup * steps),
            "validate_every": steps // SHARES,
            "keep_checkpoints": SHARES,
            **changes,
        }
        return self.runs.pretrain(encoder_class=encoder_class, **settings)

    def fine_tune(
        self,
        row: Any,
        data_set: str,
        path: pathlib.Path,
        paper: float | None = None,
        *,
        column: str = "{}",
        **settings: Any,
    ) -> None:
        """Adds a cell: the scores of the restarts on a data set.

        Does nothing if the data set is not in the file, or not in `--columns`. If the
        pre-training failed, so did all restarts.

        Args:
            row: The row of the table.
            data_set: The paper's name of the data set.
            path: The model directory of the encoder.
            paper: The paper's score.
            column: The column, with {} for the name of the data set that is used.
            **settings: Options of the task that differ from those in the file, and
                other arguments of `Runs.fine_tune`. With `features`, the LSTM layers
                are as wide as the encoder and the learning rate is 1e-3 by default.
        """
        if not (found := self.data_sets.get(data_set)):
            return
        column = column.format(found.name)
        if found.name != data_set and paper is not None:
            column += f" (paper: {data_set})"
        if not (path / "config.json").exists():  # It diverged.
            self.table.add(row, column, [math.nan] * self.options.restarts, paper)
            return
        if settings.get("features"):
            units = json.loads((path / "config.json").read_text())["hidden_size"]
            settings = {"lstm_units": units, "learning_rate": 1e-3} | settings
        settings = {**found.options, **settings, "init_from": str(path)}
        settings["precision"] = self.options.precision
        runs = [
            self.runs.fine_tune(found.task_class, **settings, seed=seed)
            for seed in range(self.options.restarts)
        ]
        self.table.add(row, column, [run.score for run in runs], paper)
