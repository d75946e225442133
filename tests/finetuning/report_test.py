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
    "epochs": [{"loss": 0.7, "dev_accuracy": x} for x in (0.25, 0.5)],
    "seconds": 90.0,
}


CLASSES = [
    {"id": i, "text": f"a | text {i}", "prediction": ("$10%-$20%", "y")[i % 2]}
    | {"confidence": 0.5 + i / 10, "gold": "$10%-$20%", "P(x)": 0.5, "length": i}
    for i in range(4)
]
SEVERAL = [{**row, "confidence": f"0.9 {row['confidence']}"} for row in CLASSES]
SCORES = [
    {"id": i, "text": f"text {i}", "prediction": i * 1.5, "gold": i} for i in range(3)
]


@pytest.mark.parametrize(
    ("rows", "problem", "errors", "panels"),
    [
        (CLASSES, "classification", ["a \\| text 3", "a \\| text 1"], 2),
        (SEVERAL, "classification", ["a \\| text 3", "a \\| text 1"], 2),
        (SCORES, "regression", ["text 2", "text 1"], 2),
        ([{"id": 1, "prediction": "x", "confidence": 1}], "classification", [], 1),
        (SCORES, "similarity", [], 2),
        ([], "classification", [], 1),
    ],
    ids=[
        "classes",
        "several confidences",
        "scores",
        "without gold",
        "pairs",
        "no rows",
    ],
)
def test_report_lists_the_largest_errors(tmp_path, rows, problem, errors, panels):
    files = {"train_file": "a b.csv", "dev_file": "d.csv", "output": "my model"}
    task = types.SimpleNamespace(
        kind="classification",
        settings={} if problem == "similarity" else {"problem": problem},
        problem="classification" if problem == "classification" else "regression",
        evaluation_splits=["dev", "test"],
        options=Classification.Config(label="x", size="tiny", **files),
        rows=lambda name, answers: answers,
        is_correct=Classification.is_correct,
    )
    dev = Evaluation({"accuracy": 0.5}, rows, report="of classes\n")
    found = {"dev": dev, "test": Evaluation({}, {})}
    finetuning_report(task, tmp_path, TRAINING, found)
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    headings = ["Scores", "Training", *["Largest errors"] * bool(errors), "Next steps"]
    assert re.findall("^## (.*)", report, re.MULTILINE) == headings
    listed = report.partition("## Largest errors")[2].partition("## Next")[0]
    found = re.findall(r"^\| \d \| (.*text \d) \|.*\| (.*?) ?\|$", listed, re.MULTILINE)
    assert [text for text, _ in found] == errors
    assert all(re.fullmatch(r"(0\.\d\d ?)*", confidence) for _, confidence in found)
    assert "| dev | accuracy | 0.5000 |" in report
    assert "```\ndev:\nof classes\n```" in report
    assert "--train_file='a b.csv'" in report or "'--train_file=a b.csv'" in report
    assert "--predict --model='my model' --input" in report
    assert "It took 1.5 minutes" in report
    assert (tmp_path / "report.svg").read_text().count('id="axes_') == panels
