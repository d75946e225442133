# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest

from bert_tf.finetuning import evaluation

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
    lines = map(str.split, evaluation.prediction_table(kind, *pair).splitlines())
    name, *numbers = row.split()
    (found,) = (numbers for first, *numbers in filter(None, lines) if first == name)
    assert list(map(float, found)) == list(map(float, numbers))


def test_rare_classes_are_merged():
    gold = [f"name {i}" for i in range(40)] + ["often"] * 2
    table = evaluation.prediction_table("class", gold, gold)
    assert "often" in table
    assert "(others)     1.0000    1.0000    1.0000        11" in table
