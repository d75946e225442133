# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.repeats against a dictionary of all items."""

import collections

import numpy as np
import pytest

from bert_tf.data import repeats

NUM_ITEMS = 30_000
ENDS = np.array([5_000, 5_000, 30_000])  # The second source is empty.


@pytest.fixture(scope="module")
def items() -> tuple[np.ndarray, np.ndarray]:
    """Hashes and sizes: half of the items are among 4000, a tenth among 3."""
    rng = np.random.default_rng(0)
    kind, numbers = rng.random(NUM_ITEMS), np.arange(NUM_ITEMS) + 10_000
    numbers = np.where(kind < 0.6, rng.integers(3, 4_003, NUM_ITEMS), numbers)
    numbers = np.where(kind < 0.1, rng.integers(0, 3, NUM_ITEMS), numbers)
    hashes = rng.integers(0, 1 << 64, 50_000, np.uint64)[numbers]
    return hashes, 1 + (hashes % np.uint64(97)).astype(np.int64)


def count(items: tuple[np.ndarray, np.ndarray]) -> repeats.Repeats:
    return repeats.count_repeats(lambda i, j: (items[0][i:j], items[1][i:j]), ENDS)


def expected(items) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    first, counts = {}, collections.Counter()
    found = np.zeros([2, len(ENDS)], np.int64)
    for i, (value, size) in enumerate(zip(*map(np.ndarray.tolist, items))):
        if value in first:
            found[:, np.searchsorted(ENDS, i, side="right")] += 1, size
        first.setdefault(value, i)
        counts[value] += 1
    most = [(n, first[value]) for value, n in counts.items() if n > 1]
    return *found, sorted(most, key=lambda entry: (-entry[0], entry[1]))


@pytest.mark.parametrize("chunk", [100, 7_777, 1 << 20])
def test_counts_are_exact_below_the_sample_size(items, monkeypatch, chunk):
    monkeypatch.setattr(repeats, "_CHUNK", chunk)
    counts, sizes, most = count(items)
    expected_counts, expected_sizes, expected_most = expected(items)
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_array_equal(sizes, expected_sizes)
    assert counts[1] == 0
    assert most == expected_most


def test_sample_estimates_repeats_and_counts_frequent_items(items, monkeypatch):
    monkeypatch.setattr(repeats, "_CHUNK", 1_000)
    monkeypatch.setattr(repeats, "_NUM_FREQUENT", 100)
    monkeypatch.setattr(repeats, "_NUM_SAMPLED", NUM_ITEMS // 8)
    assert repeats.sampling_step(NUM_ITEMS) == 8
    counts, sizes, most = count(items)
    expected_counts, expected_sizes, expected_most = expected(items)
    # Twice the documented standard error. Sizes vary by hash, which adds to theirs.
    error = 2 / (expected_counts.sum() / 8) ** 0.5
    assert counts.sum() == pytest.approx(expected_counts.sum(), rel=error)
    assert sizes.sum() == pytest.approx(expected_sizes.sum(), rel=2 * error)
    assert counts.sum() != expected_counts.sum(), "an estimate, not a count"
    assert most[:3] == expected_most[:3]
    assert len(most) <= 100


def test_estimate_is_unbiased(items, monkeypatch):
    """The mean over the 8 possible samples is the exact number of repeats."""
    monkeypatch.setattr(repeats, "_NUM_FREQUENT", 0)
    monkeypatch.setattr(repeats, "_NUM_SAMPLED", NUM_ITEMS // 8)
    hashes, sizes = items
    estimates = [count((hashes + np.uint64(i), sizes)).counts for i in range(8)]
    np.testing.assert_array_equal(np.mean(estimates, axis=0), expected(items)[0])
