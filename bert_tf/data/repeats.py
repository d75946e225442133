# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts repeated items of long sequences in bounded memory, by their 64-bit hashes.

Up to 2 million items the counts are exact. Above that, only two kinds of items are
compared: the `_NUM_FREQUENT` most frequent, and a sample, the items whose hash is a
multiple of k = ceil(number of items / 2 million). Repeats in the sample count k times.
As all copies of an item have the same hash, the estimate is unbiased. Its relative
standard error is about 1 / sqrt(repeats in the sample), that is 0.3% if 5% of the items
are repeats. Memory is at most about 150 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

_CHUNK = 1 << 20  # Items in memory at a time.
_NUM_FREQUENT = 1 << 16
_NUM_SAMPLED = 1 << 21

# Returns the hashes, uint64, and the sizes of the items start..stop.
Read = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


class Repeats(NamedTuple):
    """The items that are equal to an earlier item.

    Attributes:
        counts: Number of repeats in each source, [sources].
        sizes: Sum of their sizes, [sources].
        most: (count, first position) of frequent items, in descending order of count.
    """

    counts: np.ndarray
    sizes: np.ndarray
    most: list[tuple[int, int]]


def count_repeats(read: Read, ends: np.ndarray) -> Repeats:
    """Counts repeats in a sequence of items that is the concatenation of sources.

    Args:
        read: Reads consecutive items.
        ends: End of each source, [sources].
    """
    num_items = int(ends[-1])
    step = sampling_step(num_items)
    frequent = _most_frequent(read, num_items)
    frequent_counts = np.zeros(len(frequent), np.int64)
    first_positions = np.full(len(frequent), num_items)
    seen = np.empty(0, np.uint64)  # Sorted.
    repeats, repeat_sizes = np.zeros([2, len(ends)])
    for start, hashes, sizes in _chunks(read, num_items):
        is_frequent = _is_in(hashes, frequent)
        indices = frequent.searchsorted(hashes[is_frequent])
        frequent_counts += np.bincount(indices, minlength=len(frequent))
        np.minimum.at(first_positions, indices, start + np.flatnonzero(is_frequent))

        chosen = np.flatnonzero(is_frequent | (hashes % step == 0))
        distinct, first = np.unique(hashes[chosen], return_index=True)
        was_seen = _is_in(distinct, seen)
        is_repeat = np.ones(len(chosen), bool)
        is_repeat[first] = was_seen
        new = distinct[~was_seen]
        seen = np.insert(seen, seen.searchsorted(new), new)

        chosen = chosen[is_repeat]
        weights = np.where(is_frequent[chosen], 1, step)
        sources = ends.searchsorted(start + chosen, side="right")
        repeats += np.bincount(sources, weights, len(ends))
        repeat_sizes += np.bincount(sources, weights * sizes[chosen], len(ends))
    most = np.stack([frequent_counts, first_positions], axis=1)[frequent_counts > 1]
    most = most[np.lexsort([most[:, 1], -most[:, 0]])]
    most = list(map(tuple, most.tolist()))
    return Repeats(repeats.astype(np.int64), repeat_sizes.astype(np.int64), most)


def sampling_step(num_items: int) -> int:
    """Returns k: one in k of the different items is compared."""
    return max(1, -(-num_items // _NUM_SAMPLED))


def _most_frequent(read: Read, num_items: int) -> np.ndarray:
    """Returns the hashes of the `_NUM_FREQUENT` most frequent items, sorted.

    Only the counts of these items are kept from chunk to chunk. So an item that is rare
    in the first chunks, with a share below 1 / `_NUM_FREQUENT`, may be missed.
    """
    hashes, counts = np.empty(0, np.uint64), np.empty(0)
    for _, chunk, _ in _chunks(read, num_items):
        weights = np.concatenate([counts, np.ones(len(chunk))])
        hashes = np.concatenate([hashes, chunk])
        hashes, inverse = np.unique(hashes, return_inverse=True)
        counts = np.bincount(inverse, weights)
        kept = np.sort(np.argsort(-counts, kind="stable")[:_NUM_FREQUENT])
        hashes, counts = hashes[kept], counts[kept]
    return hashes


def _chunks(read: Read, num_items: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields the start, the hashes and the sizes of each chunk."""
    for start in range(0, num_items, _CHUNK):
        yield start, *read(start, min(start + _CHUNK, num_items))


def _is_in(values: np.ndarray, sorted_values: np.ndarray) -> np.ndarray:
    if not len(sorted_values):
        return np.zeros(len(values), bool)
    indices = sorted_values.searchsorted(values)
    return sorted_values[np.minimum(indices, len(sorted_values) - 1)] == values
