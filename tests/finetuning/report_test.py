# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib.image
import numpy as np
import pytest

from bert_tf.finetuning import report

TAGS = [["B-PER", "I-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "O", "B-PER"]]
LABELS = [("PER",), ("LOC", "x")], [("PER",), ("PER", "x")]


@pytest.mark.parametrize(
    ("kind", "pair", "row"),
    [
        ("class", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("other", (["a", "a", "b", "b"], ["a", "b", "b", "b"]), "a 1. 0.5 0.6667 2"),
        ("tags", TAGS, "PER 0.5 1. 0.6667 1"),
        ("labels", LABELS, "PER 0.5 1. 0.6667 1"),
        ("score", ([0.0, 1, 2], [0.5, 1, 3]), "gold 0. 0.5 1. 1.5 2."),
        ("score", ([0.0, 1, 2], [0.5, 1, 3]), "|error| 0. 0.25 0.5 0.75 1."),
    ],
)
def test_table(kind, pair, row):
    lines = map(str.split, report.prediction_table(kind, *pair).splitlines())
    name, *numbers = row.split()
    (found,) = (numbers for first, *numbers in filter(None, lines) if first == name)
    assert list(map(float, found)) == list(map(float, numbers))


def test_rare_classes_are_merged():
    gold = [f"name {i}" for i in range(40)] + ["often"] * 2
    table = report.prediction_table("class", gold, gold)
    assert "often" in table
    assert "(others)     1.0000    1.0000    1.0000        11" in table


def test_plots():
    gold, predicted = ["yes", "no", "no", "no"], ["no", "no", "maybe", "no"]
    axes = report.prediction_plot("class", gold, predicted).axes[0]
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["maybe", "no", "yes"]
    shares = [[0, 0, 0], [1 / 3, 2 / 3, 0], [0, 1, 0]]
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    axes = report.prediction_plot("score", [0.0, 1, 2], [0.5, 1, 3]).axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(points, [[0.5, 0], [1, 1], [3, 2]])
    assert report.prediction_plot("tags", *TAGS) is None


def test_learning_plot():
    history = [{"loss": 2.0, "dev_f1": 0.5}, {"loss": 1.0, "dev_f1": 0.4}]
    training = {"metric": "dev f1", "epochs": history, "best_epoch": 1}
    loss, score = report.learning_plot(training).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [[1, 2], [2, 1]])
    np.testing.assert_array_equal(score.lines[0].get_ydata(), [0.5, 0.4])
    assert list(score.lines[1].get_xdata()) == [1, 1]


def test_write_plot(tmp_path):
    figure = report.prediction_plot("class", ["yes", "no"], ["no", "no"])
    report.write_plot(figure, tmp_path / "plot.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]
    width, height = figure.get_size_inches()
    image = matplotlib.image.imread(tmp_path / "plot.png")
    assert image.shape[:2] == (round(120 * height), round(120 * width))
