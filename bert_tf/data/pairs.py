# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""One document in, its sentence pairs for next sentence prediction out.

A pure function of the document, a way to get segments of other documents, and a seed:
whoever calls it, with however many processes, gets the same pairs.
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

_NUM_SPECIAL_TOKENS = 3  # [CLS] first segment [SEP] second segment [SEP]


class Pair(NamedTuple):
    """Two segments for next sentence prediction; token ids, no special tokens."""

    first: np.ndarray
    second: np.ndarray
    is_random_next: bool

    @property
    def length(self) -> int:
        """Number of tokens with the special ones."""
        return len(self.first) + len(self.second) + _NUM_SPECIAL_TOKENS


def draw_pairs(
    tokens: np.ndarray,
    starts: Sequence[int],
    random_segment: Callable[[float, int], np.ndarray],
    seed: str,
    *,
    max_sequence_length: int,
    short_sequence_probability: float,
) -> Iterator[Pair]:
    """Yields the sentence pairs of one document (arXiv 1810.04805, 3.1 and A.2).

    Sentences are gathered up to a target length and divided at a random sentence
    boundary. The part before it is the first segment; the second is, with equal
    chances, the part behind it or a random segment of another document. In the latter
    case the part behind is put back, so that each token is used about once. A pair
    that is too long loses tokens from its longer segment, at random ends.

    The kind of pair is drawn before the sentences are gathered, so that the length of
    the first segment tells nothing about it; only a single sentence that is left at
    the end of a document always gets a random partner.

    Args:
        tokens: The document's token ids, [num_tokens].
        starts: Where its sentences begin in `tokens`, and num_tokens at the end.
        random_segment: Called with a number in [0, 1) that chooses the place, and the
            wanted number of tokens; returns whole sentences of another document.
        seed: Determines all random choices.
        max_sequence_length: Most tokens of a pair with its three special tokens.
        short_sequence_probability: Share of pairs with a target length drawn between 2
            and the greatest possible, which is the target otherwise.
    """
    rng = random.Random(seed)
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
    """Cuts sentences that exceed a whole pair into pieces of at most half a pair.

    Otherwise most of a list, a table, or a text in a script whose full stops are not
    recognised would never be seen.
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
    """Takes tokens from the longer segment, one by one, until both fit into `room`."""
    if len(first) + len(second) > room:
        second_length = min(len(second), max(room // 2, room - len(first)))
        first = _drop(first, len(first) + second_length - room, rng)
        second = _drop(second, len(second) - second_length, rng)
    return first, second


def _drop(segment: np.ndarray, count: int, rng: random.Random) -> np.ndarray:
    """Drops `count` tokens, each from the front or the back with equal chances."""
    front = rng.getrandbits(count).bit_count()
    return segment[front : len(segment) - count + front]
