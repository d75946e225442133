# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.pairs. See corpus_test.py for whole records.

The token ids of the document are 0, 1, 2, ... so that a token id is its position. Token
ids of other documents are `OTHER` and above.
"""

import collections
import itertools
import random

import numpy as np
import pytest

from bert_tf.data.pairs import Pair, PairConfig, draw_pairs, pack

OTHER = 1_000_000


def draw(sentence_lengths, seed="0", max_sequence_length=32, short=0.1, calls=None):
    """Draws the pairs of a document with sentences of these lengths."""
    starts = [0, *itertools.accumulate(sentence_lengths)]
    calls = [] if calls is None else calls

    def random_segment(where, length):
        calls.append((where, length))
        lengths = random.Random(where).choices(sentence_lengths, k=length)
        sentences = itertools.accumulate(lengths)
        end = next(total for total in sentences if total >= length)
        return np.arange(OTHER, OTHER + end)

    options = PairConfig(
        max_sequence_length=max_sequence_length, short_sequence_probability=short
    )
    tokens, rng = np.arange(starts[-1]), random.Random(seed)
    return list(draw_pairs(tokens, starts, random_segment, rng, options))


def random_lengths(rng, num_sentences, longest):
    return [rng.randint(1, longest) for _ in range(num_sentences)]


def own_segments(pairs: list[Pair]) -> list[np.ndarray]:
    """Returns the segments from the document itself, in order."""
    segments = []
    for pair in pairs:
        segments.append(pair.first)
        if not pair.is_random_next:
            segments.append(pair.second)
    return segments


def test_invariants_for_random_documents():
    rng = random.Random(0)
    used = total = 0
    for trial in range(120):
        max_length = rng.choice([8, 16, 32, 128])
        lengths = random_lengths(rng, rng.randint(1, 40), rng.choice([1, 5, 30, 300]))
        pairs = draw(lengths, str(trial), max_length)
        tokens = np.concatenate(own_segments(pairs))
        assert (np.diff(tokens) > 0).all(), "no token is used twice"
        if max_length == 128 and max(lengths) <= 30:
            used, total = used + len(tokens), total + sum(lengths)
        for pair in pairs:
            assert len(pair.first) + len(pair.second) + 3 <= max_length
            for segment in (pair.first, pair.second):
                assert len(segment)
                assert (np.diff(segment) == 1).all(), "tokens in order, without a gap"
            assert pair.first[-1] < sum(lengths)
            if pair.is_random_next:
                assert pair.second[0] >= OTHER
            else:
                assert pair.first[-1] < pair.second[0] < pair.second[-1] + 1 < OTHER
    assert 0.9 < used / total < 1, "few tokens are trimmed"


def test_half_of_pairs_are_random_and_their_first_segments_are_as_long():
    rng = random.Random(2)
    lengths = collections.defaultdict(list)
    for trial in range(60):
        for pair in draw(random_lengths(rng, 300, 40), str(trial), 64):
            lengths[pair.is_random_next].append(len(pair.first))
    share = len(lengths[True]) / (len(lengths[True]) + len(lengths[False]))
    # A single sentence at the end of a document always gets a random segment.
    assert share == pytest.approx(0.5, abs=0.02)
    assert np.mean(lengths[True]) == pytest.approx(np.mean(lengths[False]), rel=0.03)
    (pair,) = draw([7])
    assert pair.is_random_next
    assert pair.first.tolist() == list(range(7))


def test_short_sequence_probability():
    def lengths(short):
        pairs = draw([1] * 40_000, short=short)
        # The last pairs get what is left of the document.
        return np.array([len(p.first) + len(p.second) for p in pairs[:-5]])

    assert set(lengths(short=0)) == {29}
    found = lengths(short=0.1)
    # One of the 28 lengths from 2 to 29 is not shorter.
    assert np.mean(found < 29) == pytest.approx(0.1 * 27 / 28, abs=0.03)
    assert found.min() == 2
    assert np.mean(lengths(short=1)) == pytest.approx((2 + 29) / 2, abs=0.6)


def test_random_segment_fills_the_target_length():
    calls = []
    pairs = draw([1] * 2500, short=0, calls=calls)
    used = np.concatenate(own_segments(pairs))  # No pair is too long.
    assert used.tolist() == list(range(2500))
    random_pairs = [pair for pair in pairs if pair.is_random_next]
    assert len(calls) == len(random_pairs) > 50
    for (_, length), pair in zip(calls, random_pairs, strict=True):
        assert len(pair.first) + length == 29
    assert len({where for where, _ in calls}) == len(calls)
    assert all(0 <= where < 1 for where, _ in calls)


def test_long_segments_are_trimmed_equally_at_random_ends():
    fronts = []
    for seed in range(200):
        pairs = draw([29, 29], str(seed), short=0)
        if not pairs[0].is_random_next:
            ((first, second, _),) = pairs
            assert (len(first), len(second)) == (15, 14)
            fronts.append(first[0])
    # Each of 14 tokens is dropped from the front with probability 1/2.
    assert np.mean(fronts) == pytest.approx(7, abs=1)
    assert np.std(fronts) == pytest.approx(14**0.5 / 2, abs=0.5)


@pytest.mark.parametrize("first_length", [1, 4, 13, 14, 15, 20, 24, 25, 26, 28])
def test_longer_segment_is_trimmed(first_length):
    drawn = (draw([first_length, 25], str(seed), short=0)[0] for seed in range(20))
    pair = next(pair for pair in drawn if not pair.is_random_next)
    expected = [first_length, 25]
    while sum(expected) > 29:
        expected[0 if expected[0] > expected[1] else 1] -= 1
    assert [len(pair.first), len(pair.second)] == expected


# --- Packing ---------------------------------------------------------------------


def pair_of_length(length: int, number: int = 0) -> Pair:
    """Returns a pair with a number as its first token."""
    return Pair(np.full(1, number), np.zeros(length - 4, int), is_random_next=False)


def numbers(rows: list[list[Pair]]) -> list[list[int]]:
    return [[int(pair.first[0]) for pair in row] for row in rows]


@pytest.fixture(scope="module")
def pairs() -> list[Pair]:
    """Pairs of realistic lengths: 60% fill a row."""
    rng = np.random.default_rng(0)
    lengths = np.where(rng.random(8000) < 0.6, 128, rng.integers(5, 129, 8000))
    return [pair_of_length(int(length), i) for i, length in enumerate(lengths)]


@pytest.mark.parametrize("max_pairs", [1, 3, 8])
def test_pack_keeps_all_pairs_within_limits(pairs, max_pairs):
    rows = list(pack(pairs, max_length=128, max_pairs=max_pairs))
    assert sorted(itertools.chain(*numbers(rows))) == list(range(8000))
    assert max(sum(pair.length for pair in row) for row in rows) <= 128
    assert max(map(len, rows)) == min(max_pairs, 4)
    if max_pairs == 1:
        assert numbers(rows) == [[i] for i in range(8000)]
    if max_pairs == 8:  # Less than 1% padding.
        assert sum(pair.length for pair in pairs) / (128 * len(rows)) > 0.99
        assert len(rows) < 0.82 * len(pairs)


@pytest.mark.parametrize(
    ("lengths", "max_open_rows", "rows"),
    [
        ([60, 50, 40, 50, 100], 1000, [[0, 2], [1, 3], [4]]),
        # Closes the fullest of too many open rows.
        ([60, 80, 70, 40, 30], 2, [[1], [0, 3], [2, 4]]),
    ],
)
def test_pack_is_best_fit(monkeypatch, lengths, max_open_rows, rows):
    monkeypatch.setattr("bert_tf.data.pairs._MAX_OPEN_ROWS", max_open_rows)
    pairs = [pair_of_length(length, i) for i, length in enumerate(lengths)]
    assert numbers(list(pack(pairs, max_length=100, max_pairs=9))) == rows
