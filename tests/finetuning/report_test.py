# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import re
import types

import pytest

from bert_tf.finetuning import Evaluation
from bert_tf.finetuning.report import finetuning_report
from tasks.classification import Classification

TRAINING = {
    "metric": "dev accuracy",
    "score": 0.5,
    "best_epoch": 2,
    "epochs": [
        {"loss": 0.7, "dev_accuracy": 0.25},
        {"loss": 0.6, "dev_accuracy": 0.5},
    ],
    "seconds": 90.0,
}


def classes(count):
    """Rows of which every second one is wrong, with ascending confidence."""
    for i in range(4):
        gold, other = f"c{i % count}", f"c{(i + 1) % count}"
        row = {"id": i, "text": f"a | text {i}", "prediction": (gold, other)[i % 2]}
        yield row | {"confidence": 0.5 + i / 10, "gold": gold, "P(c0)": 0.5}


SCORES = [
    {"id": i, "text": f"text {i}", "prediction": i * 1.5, "gold": i} for i in range(3)
]


@pytest.mark.parametrize(
    ("rows", "problem", "errors", "panels"),
    [
        ([*classes(2)], "classification", ["a \\| text 3", "a \\| text 1"], 2),
        (SCORES, "regression", ["text 2", "text 1"], 2),
        ([{"id": 1, "prediction": "x", "confidence": 1}], "classification", [], 1),
        ([], "classification", [], 1),
    ],
)
def test_report_lists_the_largest_errors(tmp_path, rows, problem, errors, panels):
    options = Classification.Config(
        train_file="a b.csv",
        dev_file="d.csv",
        label="x",
        size="tiny",
        output="my model",
    )
    task = types.SimpleNamespace(
        kind="classification",
        settings={"problem": problem},
        evaluation_splits=["dev", "test"],
        options=options,
        rows=lambda name, answers: answers[name],
    )
    found = {
        "dev": Evaluation({"accuracy": 0.5}, {"dev": rows}, report="of classes\n"),
        "test": Evaluation({}, {}),
    }
    finetuning_report(task, tmp_path, TRAINING, found)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    listed = report.partition("## Largest errors")[2].partition("## Next")[0]
    assert re.findall(r"^\| (.*text \d) \|", listed, re.MULTILINE) == errors
    assert "| dev | accuracy | 0.5000 |" in report
    assert "```\ndev:\nof classes\n```" in report
    assert "--train_file='a b.csv'" in report or "'--train_file=a b.csv'" in report
    assert "--predict --model='my model' --input" in report
    assert "It took 1.5 minutes" in report
    assert (tmp_path / "report.svg").read_text().count('id="axes_') == panels
