# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf.modeling import BertConfig
from bert_tf.training import memory


@pytest.mark.parametrize(
    ("size", "length", "recompute", "megabytes"),
    [
        # python -m benchmarks.training_memory --sizes=tiny,mini,medium
        ("tiny", 128, False, 9.6),
        ("tiny", 128, True, 8.8),
        ("tiny", 512, False, 39.4),
        ("tiny", 512, True, 33.0),
        ("mini", 128, False, 17.8),
        ("mini", 128, True, 9.5),
        ("mini", 512, False, 97.3),
        ("mini", 512, True, 37.3),
        ("medium", 128, False, 52.1),
        ("medium", 128, True, 11.6),
        ("medium", 512, False, 282.3),
        ("medium", 512, True, 67.4),
    ],
)
def test_estimate_is_near_what_was_measured(size, length, recompute, megabytes):
    estimate = memory.row_bytes(
        BertConfig.from_size(size, 16_000),
        length=length,
        predictions=int(np.ceil(0.15 * length)),
        recompute=recompute,
    )
    assert 0.95 * megabytes < estimate / 1e6 < 1.4 * megabytes


def test_takes_the_largest_divisor_that_fits():
    def fitting(free):
        return memory.fitting_rows(24, bytes_per_row=1e6, weights=10**6, free=free)

    assert fitting(1.2 * (20e6 + 24e6)) == 24
    assert fitting(1.2 * (20e6 + 23.9e6)) == 12
    assert fitting(1.2 * (20e6 + 1e6)) == 1
    with pytest.raises(ValueError, match=r"need 0\.0 GB .* a row 0\.0 GB more"):
        fitting(1.2 * (20e6 + 0.9e6))


def test_peak_memory_has_seen_a_large_array():
    before = memory.peak_memory()
    array = np.ones(before // 4, "float32")  # As large as all that was in use.
    assert memory.peak_memory() >= before + array.nbytes / 2


def test_free_memory_is_shared_by_the_replicas():
    one, two = memory.free_memory(1), memory.free_memory(2)
    assert 0.4 * one < two < 0.6 * one
    assert one > 1e8
