# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib.image
import numpy as np
import pytest

from bert_tf.finetuning import report as comparison


def test_table_of_names():
    gold, predicted = ["a", "a", "b", "b"], ["a", "b", "b", "b"]
    row = comparison.table(gold, predicted).splitlines()[2].split()
    assert row == ["a", "1.0000", "0.5000", "0.6667", "2"]


def test_table_of_numbers():
    lines = comparison.table([0.0, 1.0, 2.0], [0.5, 1.0, 3.0]).splitlines()
    assert lines[1].split() == ["gold", "0.000", "0.500", "1.000", "1.500", "2.000"]
    assert lines[3].split() == ["|error|", "0.000", "0.250", "0.500", "0.750", "1.000"]


def test_rare_names_are_put_together():
    gold = [f"name {i}" for i in range(40)] + ["often"] * 2
    table = comparison.table(gold, gold)
    assert "often" in table
    assert "(others)     1.0000    1.0000    1.0000        11" in table


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        (["yes", "no", "no"], ["no", "no", "yes"]),
        (["yes", "no", "no"], ["no", "no", "maybe"]),
        (np.array([0.0, 1.0, 2.0]), np.array([0.5, 1.0, 3.0])),
        (np.array([1.0, 1.0]), np.array([1.0, 1.0])),
    ],
)
def test_plot(tmp_path, gold, predicted):
    path = tmp_path / "comparison_dev.png"
    comparison.plot(gold, predicted, title="toy, dev", path=path)
    image = matplotlib.image.imread(path)
    assert image.std() > 0.01
    assert list(tmp_path.iterdir()) == [path]
