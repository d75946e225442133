# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences of many lengths in, rows of them that fill a given length out.

Padding costs as much arithmetic as text. With attention kept inside each sequence (see
`BertBackbone`), several short ones in a row cost what one long one does and learn the
same (arXiv 2107.02027).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

# Rows that wait for what fits. With more the gain is below a thousandth.
_OPEN_ROWS = 1000


def pack(
    items: Iterable[tuple[int, Item]], capacity: int, max_items: int
) -> Iterator[list[Item]]:
    """Yields rows of items, each put where the least room is left that it fits in.

    Best fit, online: the memory is that of the open rows, and the same items in the
    same order give the same rows.

    Args:
        items: Each with its length, at most `capacity`.
        capacity: Largest sum of lengths in a row.
        max_items: Most items in a row.
    """
    # (room, age, items), sorted: the first with enough room leaves the least.
    open_rows: list[tuple[int, int, list[Item]]] = []
    for age, (length, item) in enumerate(items):
        place = bisect.bisect_left(open_rows, (length,))
        if place < len(open_rows):
            room, opened, row = open_rows.pop(place)
        else:
            room, opened, row = capacity, age, []
        row.append(item)
        room -= length
        if room and len(row) < max_items:
            bisect.insort(open_rows, (room, opened, row))
            if len(open_rows) > _OPEN_ROWS:
                yield open_rows.pop(0)[2]  # The fullest.
        else:
            yield row
    yield from (row for _, _, row in open_rows)
