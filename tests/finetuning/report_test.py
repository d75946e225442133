# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import matplotlib.image
import numpy as np
import pytest

from bert_tf.finetuning import report


def test_table_of_classes():
    gold, predicted = ["a", "a", "b", "b"], ["a", "b", "b", "b"]
    row = report.prediction_table(gold, predicted).splitlines()[2].split()
    assert row == ["a", "1.0000", "0.5000", "0.6667", "2"]


def test_table_of_scores():
    lines = report.prediction_table([0.0, 1.0, 2.0], [0.5, 1.0, 3.0]).splitlines()
    assert lines[1].split() == ["gold", "0.000", "0.500", "1.000", "1.500", "2.000"]
    assert lines[3].split() == ["|error|", "0.000", "0.250", "0.500", "0.750", "1.000"]


def test_rare_classes_are_merged():
    gold = [f"name {i}" for i in range(40)] + ["often"] * 2
    table = report.prediction_table(gold, gold)
    assert "often" in table
    assert "(others)     1.0000    1.0000    1.0000        11" in table


def test_confusion_matrix_has_a_column_for_names_that_gold_lacks():
    gold, predicted = ["yes", "no", "no", "no"], ["no", "no", "maybe", "no"]
    axes = report.prediction_plot(gold, predicted, "toy, dev").axes[0]
    assert axes.get_title() == "toy, dev"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted", "gold")
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["maybe", "no", "yes"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["no", "yes"]
    shares = [[1 / 3, 2 / 3, 0], [0, 1, 0]]
    np.testing.assert_allclose(axes.images[0].get_array(), shares)
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {(0, 0): "1\n33%", (1, 0): "2\n67%", (1, 1): "1\n100%"}


# The entities of a sentence: a person; a location that is tagged as a person.
GOLD_TAGS = [["B-PER", "I-PER", "O", "B-LOC"]]
PREDICTED_TAGS = [["B-PER", "I-PER", "O", "B-PER"]]


@pytest.mark.parametrize(
    ("gold", "predicted", "name"),
    [
        (GOLD_TAGS, PREDICTED_TAGS, "PER"),
        ([("PER",), ("LOC", "x")], [("PER",), ("PER", "x")], "PER"),
    ],
)
def test_scores_of_entities_and_labels(gold, predicted, name):
    lines = report.prediction_table(gold, predicted).splitlines()
    (row,) = (line.split() for line in lines if line.split()[:1] == [name])
    assert row == [name, "0.5000", "1.0000", "0.6667", "1"]
    assert not any("O " in line for line in lines)
    axes = report.prediction_plot(gold, predicted, "toy, dev").axes[0]
    ticks = [tick.get_text() for tick in axes.get_yticklabels()]
    precision, recall, f1 = (bars[ticks.index("PER (1)")] for bars in axes.containers)
    widths = [bar.get_width() for bar in (precision, recall, f1)]
    np.testing.assert_allclose(widths, [0.5, 1, 2 / 3])


def test_learning_plot():
    history = [{"loss": 2.0, "dev_f1": 0.5}, {"loss": 1.0, "dev_f1": 0.4}]
    training = {"metric": "dev f1", "epochs": history, "best_epoch": 1}
    loss, score = report.learning_plot(training).axes
    np.testing.assert_array_equal(loss.lines[0].get_xydata(), [[1, 2], [2, 1]])
    np.testing.assert_array_equal(score.lines[0].get_ydata(), [0.5, 0.4])
    assert list(score.lines[1].get_xdata()) == [1, 1]


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [([0.0, 1.0, 2.0], [0.5, 1.0, 3.0]), ([1.0, 1.0], [1.0, 1.0])],
)
def test_scatter_plot(gold, predicted):
    axes = report.prediction_plot(gold, predicted, "toy, dev").axes[0]
    points = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(points, np.stack([gold, predicted], axis=1))
    (diagonal,) = axes.lines
    assert diagonal.get_slope() == 1
    x, y = diagonal.get_xy1()
    assert x == y


def test_write_plot(tmp_path):
    figure = report.prediction_plot(["yes", "no"], ["no", "no"], "toy, dev")
    report.write_plot(figure, tmp_path / "plot.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]
    width, height = figure.get_size_inches()
    image = matplotlib.image.imread(tmp_path / "plot.png")
    assert image.shape[:2] == (round(120 * height), round(120 * width))
