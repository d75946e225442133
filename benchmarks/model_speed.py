# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Throughput of models of one task, which take turns on the same examples.

    python -m benchmarks.model_speed --models=models/teacher,models/student \\
        --columns=sentence1,sentence2 --input=glue/STS-B/dev.tsv

Input: model directories or checkpoints with a task head, and a table whose columns are
their inputs. Output: examples per second of processor time, and the ratio to the first
model, as medians over the rounds. Processor time includes tokenization and all threads,
and does not depend on other programs as much as time does.
"""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np

from bert_tf import cli, data, serving


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSpeedConfig(cli.Options):
    """Options of `python -m benchmarks.model_speed`."""

    models: str = cli.option(help="Models, separated by commas.")
    columns: str = cli.option(help="Columns of their inputs, separated by commas.")
    input: str = cli.option(help="TSV, CSV or JSONL file.")
    examples: int = cli.option(512, help="Examples of a round.", minimum=1)
    rounds: int = cli.option(
        5, help="Rounds after the first, unmeasured one.", minimum=1
    )
    batch_size: int = cli.option(32, help="Examples per batch.", minimum=1)


def main(options: ModelSpeedConfig) -> None:
    """Prints the table."""
    paths, table = options.models.split(","), data.Table(options.input)
    rows = itertools.islice(table.rows(options.columns.split(",")), options.examples)
    columns = list(zip(*(values for _, values in rows)))
    models = [serving.load(path) for path in paths]
    seconds = np.zeros([options.rounds + 1, len(models)])
    for turn in seconds:
        for index, model in enumerate(models):
            start = time.process_time()
            model.predict(*columns, batch_size=options.batch_size)
            turn[index] = time.process_time() - start
    seconds = seconds[1:]
    print("| model | examples per CPU second | ratio |")
    print("|---|---|---|")
    for path, own in zip(paths, seconds.T, strict=True):
        speed, ratio = len(columns[0]) / np.median(own), np.median(seconds[:, 0] / own)
        print(f"| {path} | {speed:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    cli.run(main, ModelSpeedConfig)
