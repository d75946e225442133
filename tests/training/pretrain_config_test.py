# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import pathlib

import pytest

from bert_tf.training import PretrainConfig, WarmupDecay
from tests.toy.records import write_records

TWO_PHASES = PretrainConfig(
    records="short,long",
    output="model",
    steps=(90, 10),
    batch_size=(16, 8),
    learning_rate=(1e-2, 5e-3),
    warmup_steps=(20, 2),
    mask_selection_rate=(0.3, 0.15),
)


@pytest.fixture
def two_phases(tmp_path, vocabulary):
    """`TWO_PHASES` with records that exist."""
    folders = [str(tmp_path / name) for name in TWO_PHASES.records.split(",")]
    for folder, length in zip(folders, (16, 32)):
        rows = [([2, 5, 3, 6, 3], 3, 0)]
        write_records(pathlib.Path(folder), vocabulary, rows, length=length)
    return dataclasses.replace(TWO_PHASES, records=",".join(folders))


def test_phases_are_consecutive(two_phases, vocabulary):
    first, second = two_phases.phases()
    assert f"{first.records.path},{second.records.path}" == two_phases.records
    assert (first.first_step, first.end) == (0, 90)
    assert (second.first_step, second.end) == (90, 100)
    assert (first.batch_size, second.batch_size) == (16, 8)
    assert first.records.vocabulary == second.records.vocabulary == vocabulary
    assert first.schedule == WarmupDecay(1e-2, 20, 90)
    assert second.schedule == WarmupDecay(5e-3, 2, 10, first_step=90)
    one = dataclasses.replace(two_phases, learning_rate=0.1, warmup_steps=3)
    assert {p.schedule for p in one.phases()} == {WarmupDecay(0.1, 3, 100)}
    default = dataclasses.replace(one, steps=(300, 199), warmup_steps=None)
    assert {p.schedule for p in default.phases()} == {WarmupDecay(0.1, 4, 499)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 9}, "--steps must have one number for each of the 2"),
        ({"steps": (1, 2, 3)}, "for each of the 2 --records. Received: steps=1,2,3"),
        ({"warmup_steps": (1, 2, 3)}, "--warmup_steps must have one number for each"),
        ({"warmup_steps": 90}, "`warmup_steps` must be at least 0 and below .*=90, st"),
    ],
)
def test_inconsistent_numbers_raise(two_phases, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(two_phases, **change).phases()
