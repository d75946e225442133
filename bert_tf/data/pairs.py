# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draws sentence pairs from documents of token ids, and packs them into rows."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf import cli

_NUM_SPECIAL_TOKENS = 3  # [CLS] first segment [SEP] second segment [SEP]
_MAX_OPEN_ROWS = 1000  # More would reduce padding by less than 0.1%.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairConfig(cli.Options):
    """Options of sentence pairs."""

    max_sequence_length: int = cli.option(
        128, help="Tokens per row, including special tokens.", minimum=8, common=True
    )
    short_sequence_probability: float = cli.option(
        0.1, help="Probability of a random shorter pair.", minimum=0, maximum=1
    )
    next_sentence_prediction: bool = cli.option(
        True, help="Draw pairs of segments. If false, rows have single segments."
    )


# --- Sentence pairs --------------------------------------------------------------


class Pair(NamedTuple):
    """Token ids of two segments, without special tokens."""

    first: np.ndarray
    second: np.ndarray
    is_random_next: int

    @property
    def length(self) -> int:
        """Number of tokens including special tokens."""
        return len(self.first) + len(self.second) + 2 + bool(len(self.second))


def find_sentences(
    sizes: Sequence[int], lengths: np.ndarray, max_sequence_length: int
) -> tuple[list[int], list[int]]:
    """Returns where the sentences and the documents of a text begin.

    Sentences without tokens are dropped. Those longer than half a pair become small
    pieces, which fill pairs. Otherwise many tokens would be trimmed in lists and in
    scripts with unknown full stops.

    Args:
        sizes: Number of sentences in each document.
        lengths: Number of tokens in each sentence.
        max_sequence_length: Maximum number of tokens in a pair.

    Returns:
        Starts of sentences, in tokens, and of documents, in sentences. Both are
        followed by the end of the text.
    """
    half = (max_sequence_length - _NUM_SPECIAL_TOKENS) // 2
    step = max(1, half // 16)
    counts = np.where(lengths > half, -(-lengths // step), 1)
    last = np.cumsum(counts) - 1
    pieces = np.repeat(np.where(lengths > half, step, lengths), counts)
    pieces[last] = lengths - step * (counts - 1)
    has_tokens = pieces > 0
    ends = np.cumsum(has_tokens)[last[np.cumsum(sizes) - 1]]  # Of documents.
    return [0, *np.cumsum(pieces[has_tokens]).tolist()], [0, *ends.tolist()]


def draw_all_pairs(
    ids: np.ndarray,
    starts: Sequence[int],
    documents: Sequence[int],
    num_documents: int,
    rng: random.Random,
    options: PairConfig,
) -> Iterator[Pair]:
    """Yields the pairs of the first `num_documents` documents.

    Args:
        ids: Token ids of all documents. The further ones only give random segments.
        starts: Starts of sentences, see `find_sentences`.
        documents: Starts of documents.
        num_documents: The number of documents whose pairs to draw.
        rng: Makes all random choices.
        options: See `draw_pairs`.
    """

    def random_segment(first: int, last: int, where: float, length: int) -> np.ndarray:
        """Returns sentences of a document other than that of sentences first..last.

        All sentences of other documents are equally likely to be the first: "a random
        sentence from the corpus" (arXiv 1810.04805, section 3.1). As in google's code,
        a document that is alone is its own other document.
        """
        num_others = len(starts) - 1 - (last - first)
        sentence = int(where * (num_others or last))
        if sentence >= first and num_others:
            sentence += last - first
        end = documents[bisect.bisect_right(documents, sentence)]
        end = bisect.bisect_left(starts, starts[sentence] + length, sentence, end)
        return ids[starts[sentence] : starts[end]]

    for first, last in itertools.pairwise(documents[: num_documents + 1]):
        segment = functools.partial(random_segment, first, last)
        yield from draw_pairs(ids, starts[first : last + 1], segment, rng, options)


def draw_pairs(
    tokens: np.ndarray,
    starts: Sequence[int],
    random_segment: Callable[[float, int], np.ndarray],
    rng: random.Random,
    options: PairConfig,
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

    Without next sentence prediction there is no second segment.

    Args:
        tokens: Token ids of a text, [num_tokens].
        starts: Start of each sentence of the document in `tokens`, followed by the end
            of the document.
        random_segment: Function of a number in [0, 1), which selects the position, and
            a number of tokens. Returns whole sentences of another document.
        rng: Makes all random choices.
        options: The maximum length of a pair, including special tokens, and the
            probability of a target length that is uniform between 2 and the maximum.
    """
    room = options.max_sequence_length - _NUM_SPECIAL_TOKENS
    num_sentences = len(starts) - 1
    i = 0
    while i < num_sentences:
        is_short = rng.random() < options.short_sequence_probability
        target = 2 + int(rng.random() * (room - 1)) if is_short else room
        is_random_next = rng.random() < 0.5
        end = bisect.bisect_left(starts, starts[i] + target, lo=i + 1)
        if not is_random_next:
            end = max(end, i + 2)
        end = min(end, num_sentences)
        if not options.next_sentence_prediction:
            end -= end - i > 1 and starts[end] - starts[i] > room
            yield Pair(tokens[starts[i] : starts[end]][:room], tokens[:0], -1)
            i = end
            continue
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


# --- Rows ------------------------------------------------------------------------


def pack(
    pairs: Iterable[Pair], max_length: int, max_pairs: int
) -> Iterator[list[Pair]]:
    """Packs pairs into rows with online best fit (arXiv 2107.02027).

    Each pair goes to the open row with the least room that it fits in. Attention does
    not cross the pairs of a row (see `UnpackRows`), so packing only replaces padding.

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
