# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Makes sentence pairs for next sentence prediction and packs them into rows."""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

_NUM_SPECIAL_TOKENS = 3  # [CLS] first segment [SEP] second segment [SEP]

_MAX_OPEN_ROWS = 1000  # More would reduce padding by less than 0.1%.


class Pair(NamedTuple):
    """Token ids of two segments, without special tokens."""

    first: np.ndarray
    second: np.ndarray
    is_random_next: bool

    @property
    def length(self) -> int:
        """Number of tokens including special tokens."""
        return len(self.first) + len(self.second) + _NUM_SPECIAL_TOKENS


def draw_pairs(
    tokens: np.ndarray,
    starts: Sequence[int],
    random_segment: Callable[[float, int], np.ndarray],
    rng: random.Random,
    *,
    max_sequence_length: int,
    short_sequence_probability: float,
) -> Iterator[Pair]:
    """Yields the sentence pairs of one document (arXiv 1810.04805, 3.1 and A.2).

    Collects sentences up to a target length and splits them at a random sentence
    boundary into the first segment and its continuation. With probability 1/2 a random
    segment of another document replaces the continuation, whose sentences then begin
    the next pair. So each token is used about once. Pairs that are too long lose
    tokens at random ends of their longer segment.

    Whether a pair is random is drawn before its sentences are collected, so that the
    length of the first segment is independent of the label. There is one exception: a
    single sentence at the end of a document always gets a random second segment.

    Args:
        tokens: Token ids of a text, [num_tokens].
        starts: Start of each sentence of the document in `tokens`, followed by the end
            of the document.
        random_segment: Function of a number in [0, 1), which selects the position, and
            a number of tokens. Returns whole sentences of another document.
        rng: Makes all random choices.
        max_sequence_length: Maximum number of tokens in a pair, including 3 special
            tokens.
        short_sequence_probability: Probability of a target length that is uniform
            between 2 and the maximum, instead of the maximum.
    """
    room = max_sequence_length - _NUM_SPECIAL_TOKENS
    starts = _cut_long_sentences(starts, room)
    num_sentences = len(starts) - 1
    i = 0
    while i < num_sentences:
        is_short = rng.random() < short_sequence_probability
        target = 2 + int(rng.random() * (room - 1)) if is_short else room
        is_random_next = rng.random() < 0.5
        end = bisect.bisect_left(starts, starts[i] + target, lo=i + 1)
        if not is_random_next:
            end = max(end, i + 2)
        end = min(end, num_sentences)
        if end - i == 1:
            is_random_next, middle = True, end
        else:
            middle = i + 1 + int(rng.random() * (end - i - 1))
        first = tokens[starts[i] : starts[middle]]
        if is_random_next:
            second = random_segment(rng.random(), max(1, target - len(first)))
            i = middle
        else:
            second = tokens[starts[middle] : starts[end]]
            i = end
        yield Pair(*_trim(first, second, room, rng), is_random_next)


def _cut_long_sentences(starts: Sequence[int], room: int) -> Sequence[int]:
    """Cuts sentences longer than a pair into pieces of at most half a pair.

    Otherwise most tokens would be lost in lists, tables, and scripts whose full stops
    `split_sentences` does not know.
    """
    if max(stop - start for start, stop in itertools.pairwise(starts)) <= room:
        return starts
    cut = [starts[0]]
    for start, stop in itertools.pairwise(starts):
        length = stop - start
        pieces = 1 if length <= room else -(-length // (room // 2))
        cut += [start + length * piece // pieces for piece in range(1, pieces + 1)]
    return cut


def _trim(
    first: np.ndarray, second: np.ndarray, room: int, rng: random.Random
) -> tuple[np.ndarray, np.ndarray]:
    """Drops tokens of the longer segment, one by one, until both fit into `room`."""
    if len(first) + len(second) > room:
        second_length = min(len(second), max(room // 2, room - len(first)))
        first = _drop(first, len(first) + second_length - room, rng)
        second = _drop(second, len(second) - second_length, rng)
    return first, second


def _drop(segment: np.ndarray, count: int, rng: random.Random) -> np.ndarray:
    """Drops `count` tokens, each from the front or the back with probability 1/2."""
    front = rng.getrandbits(count).bit_count()
    return segment[front : len(segment) - count + front]


def pack(
    pairs: Iterable[Pair], max_length: int, max_pairs: int
) -> Iterator[list[Pair]]:
    """Packs pairs into rows with online best fit (arXiv 2107.02027).

    Each pair goes to the open row with the least room that it fits in. Attention does
    not cross the pairs of a row (see `BertBackbone`), so packing only replaces padding.

    Args:
        pairs: Pairs of at most `max_length` tokens.
        max_length: Maximum number of tokens in a row.
        max_pairs: Maximum number of pairs in a row.
    """
    # (room, age, row), sorted: the first row with enough room is the best fit.
    open_rows: list[tuple[int, int, list[Pair]]] = []
    for age, pair in enumerate(pairs):
        length = pair.length
        best = bisect.bisect_left(open_rows, (length,))
        if best < len(open_rows):
            room, opened, row = open_rows.pop(best)
        else:
            room, opened, row = max_length, age, []
        row.append(pair)
        room -= length
        if room and len(row) < max_pairs:
            bisect.insort(open_rows, (room, opened, row))
            if len(open_rows) > _MAX_OPEN_ROWS:
                yield open_rows.pop(0)[2]  # The fullest.
        else:
            yield row
    yield from (row for _, _, row in open_rows)
