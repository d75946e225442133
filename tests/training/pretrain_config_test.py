# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import numpy as np
import pytest

from bert_tf.training import PretrainConfig
from tests.toy.records import write_records

TWO_PHASES = PretrainConfig(
    records="short,long",
    output="model",
    steps=(90, 10),
    batch_size=(16, 8),
    learning_rate=(1e-2, 5e-3),
    warmup_steps=(20, 2),
)


def test_phases_are_consecutive():
    first, second = TWO_PHASES.phases()
    assert (first.records, second.records) == ("short", "long")
    assert (first.first_step, first.end) == (0, 90)
    assert (second.first_step, second.end) == (90, 100)
    assert (first.batch_size, second.batch_size) == (16, 8)


def test_single_number_applies_to_all_phases():
    options = dataclasses.replace(TWO_PHASES, batch_size=4)
    assert [phase.batch_size for phase in options.phases()] == [4, 4]


def test_phase_reads_its_records(tmp_path, vocabulary):
    write_records(tmp_path, vocabulary, [([2, 5, 3, 6, 3], 3, 0)], length=32)
    (phase,) = PretrainConfig(records=str(tmp_path), output="model").phases()
    assert (phase.length, phase.vocabulary) == (32, vocabulary)


def test_each_rate_has_its_own_warmup_and_decay():
    rates = np.array([TWO_PHASES.schedule()(step) for step in range(100)])
    np.testing.assert_allclose(rates[[19, 91]], [1e-2, 5e-3], rtol=1e-6)
    assert (np.diff(rates[:19]) > 0).all()
    assert (np.diff(rates[20:90]) < 0).all()
    assert rates[89] < 2e-4
    assert (np.diff(rates[92:]) < 0).all()


def test_single_rate_decays_over_all_phases():
    options = dataclasses.replace(TWO_PHASES, learning_rate=1e-2, warmup_steps=20)
    rates = np.array([options.schedule()(step) for step in range(100)])
    np.testing.assert_allclose(np.diff(rates[20:]), -1e-2 / 81, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 9}, "--steps must have one number for each of the 2"),
        ({"steps": (1, 2, 3)}, "--steps must have one number, or one for each"),
        ({"warmup_steps": (1, 2, 3)}, "--warmup_steps must have one number, or one"),
        ({"learning_rate": 1e-3}, "--warmup_steps must have one number, because"),
        ({"warmup_steps": 90}, "`warmup_steps` must be at least 0 and below"),
    ],
)
def test_inconsistent_numbers_raise(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TWO_PHASES, **change).schedule()
