# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Holds out rows of the training file as dev and test set, `--dev_share=0.1`."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


def hold_out(
    rows: Sequence[Any], share: float, seed: int, classes: Callable[[Any], Iterable]
) -> tuple[list[Any], list[Any]]:
    """Divides rows into those to train and those to hold out, both in their order.

    Rows with the same `group`, or without one with the same inputs, stay together. The
    order of the groups depends on a hash of the seed and the group, so the result is
    the same on every machine. A group is held out if that brings the number of rows, in
    total and of each of its classes, closer to the share.

    Args:
        rows: `Example`s.
        share: The share of the rows to hold out.
        seed: Changes the order.
        classes: Returns the classes of a row. Training keeps a row of each.
    """

    def group(row: Any) -> bytes:
        content = f"{seed}\n{row.group or repr(row.inputs)}"
        return hashlib.blake2b(content.encode("utf-8", "replace")).digest()

    groups = collections.defaultdict(collections.Counter)
    for row in rows:
        groups[group(row)].update({None, *classes(row)})  # None counts all rows.
    left = sum(groups.values(), collections.Counter())
    wanted = {name: share * count for name, count in left.items()}
    held_out = set()
    for key, counts in sorted(groups.items()):
        gain = sum(abs(wanted[k]) - abs(wanted[k] - n) for k, n in counts.items())
        if gain > 0 and all(left[k] > n for k, n in counts.items()):
            held_out.add(key)
            left -= counts
            wanted |= {k: wanted[k] - n for k, n in counts.items()}
    parts = [], []
    for row in rows:
        parts[group(row) in held_out].append(row)
    return parts


def copies(splits: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Returns how many rows of each split have the inputs of a row in another one."""
    keys = {k: [hash(repr(row.inputs)) for row in rows] for k, rows in splits.items()}
    counts = collections.Counter(key for values in keys.values() for key in {*values})
    return {k: sum(counts[key] > 1 for key in values) for k, values in keys.items()}
