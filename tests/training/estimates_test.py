# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertConfig
from bert_tf.training import estimates


def test_flops_of_base_follow_from_its_number_of_weights():
    # Six operations per weight and token (arXiv 2001.08361, table 1), plus attention.
    # The head has the token embedding [V, H] and a dense layer.
    base = BertConfig.from_size("base", 30_522)
    per_token = 6 * (85e6 + 12 * 2 * 512 * 768)
    head = 6 * 77 * (768 * 30_522 + 768**2)
    count = estimates.step_flops(base, rows=2, length=512, predictions=77)
    assert count == pytest.approx(2 * (512 * per_token + head), rel=1e-3)


def test_peak_counts_the_operations_of_the_fastest_repetition(monkeypatch):
    products = []

    def matmul(a, b):
        products.append(2 * a.shape[0] * a.shape[1] * b.shape[1])
        return tf.linalg.matmul(a, b)

    def fori_loop(start, stop, body, x):
        for i in range(start, stop):
            x = body(i, x)
        return x

    # Each repetition reads the clock at its start and end.
    seconds = [5.0] * (estimates._REPETITIONS - 1) + [0.5]
    readings = iter(np.stack([np.zeros(len(seconds)), seconds], axis=1).flat)
    clock = types.SimpleNamespace(perf_counter=lambda: next(readings))
    monkeypatch.setattr(estimates, "time", clock)
    monkeypatch.setattr(estimates.ops, "matmul", matmul)
    monkeypatch.setattr(estimates.ops, "fori_loop", fori_loop)
    peak = estimates.measure_peak(BertConfig.from_size("tiny", 100), 512, "float32")
    assert sum(products) >= estimates._MIN_FLOPS  # Traced once.
    assert peak == pytest.approx(sum(products) / 0.5)


# Measured by benchmarks.training_memory in MB per row of 256 tokens. The factors of the
# estimate were fitted to other lengths, and not to the size small.
@pytest.mark.parametrize(
    ("size", "recompute", "megabytes"),
    [
        ("mini", False, 38.0),
        ("mini", True, 16.8),
        ("small", False, 63.4),
        ("small", True, 22.7),
    ],
)
def test_row_bytes_predict_measurements(size, recompute, megabytes):
    architecture = BertConfig.from_size(size, 16_000)
    estimate = estimates.row_bytes(
        architecture, length=256, predictions=39, recompute=recompute
    )
    assert 0.95 * megabytes < estimate / 1e6 < 1.2 * megabytes


def test_max_rows_is_the_largest_divisor_that_fits():
    def max_rows(free):
        return estimates.max_rows(24, bytes_per_row=1e6, weights=10**6, free=free)

    assert max_rows(1.2 * (20e6 + 24e6)) == 24
    assert max_rows(1.2 * (20e6 + 23.9e6)) == 12
    assert max_rows(1.2 * (20e6 + 1e6)) == 1
    with pytest.raises(ValueError, match=r"need 0\.0 GB and one row 0\.0 GB, but"):
        max_rows(1.2 * (20e6 + 0.9e6))


def test_peak_memory_includes_a_freed_array():
    before = estimates.peak_memory()
    size = np.ones(before // 4, "float32").nbytes  # As large as all memory in use.
    assert estimates.peak_memory() >= before + size / 2


def test_replicas_share_free_memory():
    one, two = estimates.free_memory(1), estimates.free_memory(2)
    assert 0.4 * one < two < 0.6 * one
    assert one > 1e8
