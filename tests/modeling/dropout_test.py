# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import dropout, fusion


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_share_that_is_kept(monkeypatch, rate, on_cpu):
    monkeypatch.setattr(fusion, "on_cpu", lambda: on_cpu)
    seed = keras.random.SeedGenerator(1)
    kept = np.array(dropout.draw_kept((401, 501), rate, seed))  # An odd number.
    assert kept.shape == (401, 501)
    assert kept.dtype == bool
    # Five standard deviations.
    tolerance = 5 * (rate * (1 - rate) / kept.size) ** 0.5
    assert abs(kept.mean() - (1 - rate)) < tolerance
    # Neighbours share 32 random bits, and know nothing of each other.
    neighbours = (kept[:, 1:] & kept[:, :-1]).mean()
    assert abs(neighbours - (1 - rate) ** 2) < 2 * tolerance


def test_every_draw_is_another():
    seed = keras.random.SeedGenerator(1)
    first, second = (np.array(dropout.draw_kept((99,), 0.5, seed)) for _ in range(2))
    again = np.array(dropout.draw_kept((99,), 0.5, keras.random.SeedGenerator(1)))
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_nearly_all_may_be_dropped():
    seed = keras.random.SeedGenerator(1)
    kept = np.array(dropout.draw_kept((10_000,), 0.999999, seed))
    assert kept.mean() < 0.01
