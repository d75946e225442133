# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np

from bert_tf import monitoring


def test_history_replaces_rows_behind_the_last_checkpoint(tmp_path):
    for step in (10, 20, 30, 20):
        row = {"step": step, "loss": 1 / step}
        monitoring._append_history(tmp_path / "history.csv", row)
    rows = monitoring.read_history(tmp_path)
    assert [row["step"] for row in rows] == [10, 20]
    assert rows[1]["loss"] == 1 / 20


def test_no_history_is_empty(tmp_path):
    assert monitoring.read_history(tmp_path) == []


def test_finds_weights_that_are_not_finite():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    assert monitoring.weights_are_finite(model)
    model.layers[0].bias.assign(np.array([0.0, np.inf]))
    assert not monitoring.weights_are_finite(model)
