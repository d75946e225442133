# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import collections

import pytest

from bert_tf.finetuning import Example
from bert_tf.finetuning.splits import copies, hold_out

HELD_OUT = ["8", "9", "10", "11"]


def example(number, gold="", group="", text=""):
    return Example(str(number), {}, (text or f"text {number}",), gold, group=group)


def ids(rows):
    return [row.id for row in rows]


def test_rows_do_not_depend_on_the_machine():
    rows = [example(i) for i in range(20)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: ())
    assert ids(held_out) == HELD_OUT
    assert ids(train) == [row.id for row in rows if row not in held_out]
    # More rows do not move a row to the other side, but where the share ends.
    more = ids(hold_out([example(i) for i in range(40)], 0.2, 0, lambda row: ())[1])
    assert len(more) == 8
    assert ids(hold_out(rows, 0.2, 1, lambda row: ())[1]) != HELD_OUT


def test_classes_have_equal_shares_and_stay_in_the_training_set():
    sizes = {"often": 200, "seldom": 20, "once": 1}
    rows = [example(f"{k}{i}", k) for k, n in sizes.items() for i in range(n)]
    train, held_out = hold_out(rows, 0.1, 0, lambda row: [row.gold])
    counts = collections.Counter(row.gold for row in held_out)
    assert counts == {"often": 20, "seldom": 2}
    assert "once" in {row.gold for row in train}


def test_groups_and_copies_stay_together():
    rows = [example(i, "ab"[i % 3 == 0], f"customer {i // 4}") for i in range(200)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: [row.gold])
    assert not {x.group for x in train} & {x.group for x in held_out}
    assert abs(len(held_out) - 40) <= 2
    assert abs(sum(x.gold == "b" for x in held_out) - 40 / 3) <= 3
    rows = [example(i, text=f"text {i % 50}") for i in range(200)]
    train, held_out = hold_out(rows, 0.2, 0, lambda row: ())
    assert not {x.inputs for x in train} & {x.inputs for x in held_out}
    assert copies({"train": train, "dev": held_out}) == {"train": 0, "dev": 0}
    both = {"train": rows[:50], "dev": [*rows[50:52], example(999)]}
    assert copies(both) == {"train": 2, "dev": 2}


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_kept_for_training(rows):
    train, held_out = hold_out([example(i) for i in range(rows)], 0.1, 0, lambda x: ())
    assert len(train) == rows
    assert not held_out
