# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf.training.schedules import SequentialSchedule, WarmupDecay


def test_linear_schedule_warms_up_and_decays_to_zero():
    schedule = WarmupDecay(1.0, warmup_steps=4, total_steps=10)
    rates = [float(schedule(step)) for step in range(12)]
    np.testing.assert_allclose(rates[:4], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(np.diff(rates[4:10]), -1 / 7, rtol=1e-5)
    np.testing.assert_allclose(rates[9:], [1 / 7, 0, 0], atol=1e-6)
    without_warmup = WarmupDecay(1.0, warmup_steps=0, total_steps=2)
    np.testing.assert_allclose(
        [float(without_warmup(s)) for s in range(2)], [2 / 3, 1 / 3]
    )


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("cosine", (1 + np.cos(np.pi * np.arange(1, 5) / 5)) / 2),
        ("polynomial", np.sqrt(1 - np.arange(1, 5) / 5)),
        ("constant", np.ones(4)),
    ],
)
def test_decays(decay, expected):
    schedule = WarmupDecay(2.0, warmup_steps=2, total_steps=6, decay=decay)
    rates = [float(schedule(step)) for step in range(6)]
    np.testing.assert_allclose(rates[:2], [1.0, 2.0])
    np.testing.assert_allclose(rates[2:], 2 * expected, rtol=1e-6)


def test_sequential_schedule_restarts_each_schedule():
    first, second = WarmupDecay(1.0, 1, 3), WarmupDecay(0.5, 2, 4, "constant")
    schedule = SequentialSchedule([first, second], [3, 4])
    rates = [float(schedule(step)) for step in range(7)]
    expected = [*(float(first(i)) for i in range(3)), 0.25, 0.5, 0.5, 0.5]
    np.testing.assert_allclose(rates, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 1, 3, "log"), "linear, cosine.* decay='log'"),
        ((1.0, 10, 10), "warmup_steps=10, total_steps=10"),
    ],
)
def test_invalid_schedules_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupDecay(*arguments)
