# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes on the nine tasks of GLUE (paper, section 4.1 and table 1).

    python -m experiments.glue --glue_dir=glue --init_from=models/base \\
        --output=models/glue

Input: GLUE's folders CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE and WNLI, and
diagnostic/diagnostic.tsv. Tasks without a training and a dev set are skipped. Output: a
model directory for each task, a table of the dev scores beside published ones, and
`submission/` with the test sets' predictions in the form that gluebenchmark.com takes,
also as submission.zip. Rerun the command to resume, or when there are more folders.

--search=paper selects the learning rate on the dev set as in section 4.1, --search=grid
everything as in appendix A.3, see experiments.search. With several --seed, these are
random restarts.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf import checkpoints, cli, data, finetuning

from . import report, runs, search

# The columns of table 1, which are the names of the files to submit, too.
COLUMNS = ["MNLI-m", "MNLI-mm", "QQP", "QNLI", "SST-2"]
COLUMNS += ["CoLA", "STS-B", "MRPC", "RTE", "WNLI"]

# Percent, in the order of COLUMNS; WNLI, the last, may be missing. Sources: examples of
# transformers, run_glue (cased); table 1; README.md of google-research/bert.
PUBLISHED = {
    "BERT base, dev (hf)": "83.9 84.1 87.5 90.7 92.3 56.5 88.5 88.9 65.7 56.3",
    "BERT base, test (paper)": "84.6 83.4 71.2 90.5 93.5 52.1 85.8 88.9 66.4",
    "BERT large, test (paper)": "86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1",
    "BERT medium, test (Google)": "80.0 79.1 69.6 87.7 89.6 38.0 78.4 86.6 62.2 62.3",
    "BERT small, test (Google)": "77.6 77.0 68.1 86.4 89.7 27.8 77.0 83.4 61.8 62.3",
    "BERT mini, test (Google)": "74.8 74.3 66.4 84.1 85.9 0.0 73.3 81.1 57.9 62.3",
    "BERT tiny, test (Google)": "70.2 70.3 62.2 81.5 83.2 0.0 73.6 81.1 57.2 62.3",
}

# What --search does not try; None is the default of tasks.classification.
_FIXED = {
    "none": {"batch_size": (32,), "learning_rate": None, "epochs": (3,)},
    "paper": {"batch_size": (32,), "epochs": (3,)},
    "grid": {},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueConfig(cli.Options):
    """Flags of `python -m experiments.glue`."""

    glue_dir: str = cli.option(help="Folder of GLUE's folders.", local=True)
    init_from: str = cli.option(help="Checkpoint of the encoder.")
    output: str = cli.option(help="Folder of the results.", local=True)
    search: str = cli.option(
        "none",
        help="none: the defaults of tasks.classification. paper: the best of four "
        "learning rates. grid: also of two batch sizes and three numbers of epochs.",
        choices=("none", "paper", "grid"),
    )
    seed: tuple[int, ...] = cli.option((0,), help="Random seeds.", minimum=0)
    precision: str = cli.option(
        "float32", help="Compute dtype.", choices=("float32", "mixed_bfloat16")
    )


def main(options: GlueConfig) -> dict[str, float]:
    """Fine-tunes on the tasks that have data.

    Returns:
        The dev scores of the best runs in percent, by column of the table.

    Raises:
        ValueError: No task has data.
    """
    glue, output = pathlib.Path(options.glue_dir), pathlib.Path(options.output)
    task_class = runs.find_task(f"{runs.TASKS}.classification")
    config, found, problems = search.search_options(task_class.Config), {}, []
    folders = {re.sub("[^a-z0-9]", "", x.name.lower()): x for x in glue.iterdir()}
    for name in finetuning.GLUE:
        own = config(
            task=name,
            data_dir=str(folders.get(name, glue / name)),
            init_from=options.init_from,
            output=str(output / name),
            seed=options.seed,
            precision=options.precision,
            **_FIXED[options.search],
        )
        try:
            found[name] = search.search(task_class, own)
        except ValueError as error:  # Other tasks may have data.
            problems.append(f"{name}: {error}")
    if not found:
        raise ValueError(f"No task of {glue} was trained. {' '.join(problems)}")
    best, submissions = {}, {}
    for column in COLUMNS:
        name, _, end = column.lower().partition("-m")
        name = name.replace("-", "")
        if name in found:
            metrics = checkpoints.open_checkpoint(output / name).read_metrics()
            metric, end = finetuning.GLUE[name].metrics[0], end and "_mismatched"
            if scores := metrics.get(f"dev{end}"):
                best[column] = 100 * scores[metric]
            submissions[column] = output / name / f"predictions_test{end}.tsv"
    for file in glue.glob("[dD]iagnostic*/diagnostic.tsv") if "mnli" in found else ():
        submissions["AX"] = output / "mnli/predictions_diagnostic.tsv"
        paths = {"model": str(output / "mnli"), "input": str(file)}
        paths["output"] = str(submissions["AX"])
        predict = finetuning.PredictConfig(predict=True, **paths)
        finetuning.run_task(task_class, predict)
    (output / "submission").mkdir(exist_ok=True)
    for column, path in submissions.items():
        if path.exists():
            write_submission(path, output / "submission" / f"{column}.tsv")
    shutil.make_archive(str(output / "submission"), "zip", output / "submission")
    table = _table(f"{pathlib.Path(options.init_from).name}, dev", best, problems)
    print(report.write(table, output, [run for part in found.values() for run in part]))
    return best


def write_submission(source: pathlib.Path, target: pathlib.Path) -> None:
    """Writes predictions as GLUE's server takes them: columns index and prediction.

    Args:
        source: A table of predictions of tasks.classification.
        target: The file to write. The scores of STS-B.tsv are limited to 0 to 5.
    """

    def rows() -> Iterator[dict[str, Any]]:
        for index, row in enumerate(data.read_table(source)):
            value = row["prediction"]
            if target.stem == "STS-B":
                value = f"{min(max(float(value), 0), 5):.3f}"
            yield {"index": index, "prediction": value}

    data.write_table(target, rows())


def _table(
    model: str, scores: Mapping[str, float], problems: Sequence[str]
) -> report.Table:
    claim = " ".join(["Dev sets, beside published scores.", *problems])
    table = report.Table("glue", "GLUE (table 1)", claim, x_label="task")
    lines = {model: scores}
    for name, values in PUBLISHED.items():
        lines[name] = dict(zip(COLUMNS, map(float, values.split())))
    for name, values in lines.items():
        for column in filter(values.__contains__, COLUMNS):
            table.add(column, name, [values[column]])
        if len({*values} - {"WNLI"}) == len(COLUMNS) - 1:  # As in the paper.
            mean = statistics.mean(x for k, x in values.items() if k != "WNLI")
            table.add("average without WNLI", name, [mean])
    return table


if __name__ == "__main__":
    cli.run(main, GlueConfig)
