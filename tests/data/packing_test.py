# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf.data.packing import pack


@pytest.fixture
def items():
    """Lengths like those of pairs: most fill a row, a few are short."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(8000) < 0.6, 128, rng.integers(5, 129, 8000))
    return [(int(length), number) for number, length in enumerate(lengths)]


def test_rows_hold_all_items_and_fit(items):
    rows = list(pack(items, capacity=128, max_items=4))
    lengths = {number: length for length, number in items}
    assert sorted(number for row in rows for number in row) == sorted(lengths)
    assert max(sum(lengths[number] for number in row) for row in rows) <= 128
    assert max(map(len, rows)) == 4


def test_little_room_is_left(items):
    rows = list(pack(items, capacity=128, max_items=8))
    filled = sum(length for length, _ in items) / (128 * len(rows))
    assert filled > 0.99
    assert len(rows) < 0.82 * len(items)


def test_one_item_a_row_keeps_the_order(items):
    rows = list(pack(items, capacity=128, max_items=1))
    assert rows == [[number] for _, number in items]


def test_few_rows_wait(items):
    taken = 0

    def counted():
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    given = 0
    for row in pack(counted(), capacity=128, max_items=8):
        given += len(row)
        if taken < len(items):
            assert taken - given < 8 * 1001


def test_best_fit():
    items = [(6, "a"), (5, "b"), (4, "c"), (5, "d"), (10, "e")]
    rows = list(pack(items, capacity=10, max_items=9))
    assert rows == [["a", "c"], ["b", "d"], ["e"]]
