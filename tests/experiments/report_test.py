# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import math
import pathlib
import xml.etree.ElementTree

import numpy as np
import pytest
import scipy.stats

from bert_tf import data
from experiments import report
from experiments.runs import Run

SCORES = [80.1, 82.0, 79.4, 81.7, 80.8]


def make_table(**changes):
    table = report.Table("masking", "Masking (table 8)", "A claim.", **changes)
    table.add("80/10/10", "MNLI", SCORES, 84.2)
    table.add("80/10/10", "NER", [math.nan, 20.0, 22.0])
    table.add("100/0/0", "MNLI", [81.0], 84.3)
    return table


def test_interval_is_that_of_a_t_test():
    mean, half = report.mean_and_interval([*SCORES, math.nan])
    wanted = scipy.stats.ttest_1samp(SCORES, 0).confidence_interval(0.95)
    np.testing.assert_allclose([mean - half, mean + half], wanted)
    assert report.mean_and_interval([3.0])[0] == 3
    assert math.isnan(report.mean_and_interval([3.0])[1])
    assert math.isnan(report.mean_and_interval([math.nan])[0])


def test_markdown_has_the_numbers_of_the_paper_beside_ours():
    lines = report.markdown(make_table()).splitlines()
    assert lines[0] == "## Masking (table 8)"
    assert "|  | MNLI | paper | NER |" in lines
    assert "| 80/10/10 | 80.8 ± 1.3 | 84.2 | 21.0 ± 12.7, 1 failed |" in lines
    assert "| 100/0/0 | 81.0 | 84.3 |  |" in lines
    assert lines[-1].endswith("Restarts per cell: 1 to 5.")


@pytest.mark.parametrize(
    "changes", [{}, {"lower_is_better": frozenset({"MNLI"})}, {"x_label": "% of steps"}]
)
def test_plot_is_an_svg_with_the_names(changes):
    table = make_table(**changes)
    if "x_label" in changes:
        table.cells = {
            (share, line): report.Cell([share / 2, share / 2 + 1])
            for share in (20, 40)
            for line in ("masked LM", "left-to-right")
        }
    text = report.draw(table)
    root = xml.etree.ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert all(f"<!-- {name}" in text for name in table.columns)


def test_write_has_a_row_per_run(tmp_path):
    metrics = {"training": {"score": 0.808, "metric": "dev f1"}}
    runs = [
        Run(tmp_path / "tagging" / name, "tasks.tagging", {"seed": seed}, "", x, 60.4)
        for seed, (name, x) in enumerate({"a": metrics, "b": {}}.items())
    ]
    text = report.write(make_table(), tmp_path, runs)
    assert (tmp_path / "masking.md").read_text().startswith(text)
    rows = list(data.read_table(tmp_path / "masking.csv"))
    assert [row["score"] for row in rows] == ["80.8", "nan"]
    assert rows[1]["options"] == '{"seed": 1}'
    assert pathlib.Path(tmp_path, "masking.svg").exists()
