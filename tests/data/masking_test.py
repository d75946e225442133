# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.masking."""

import collections
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import Masker
from tests.toy.records import LENGTH, random_pairs


class Masked(NamedTuple):
    """Arrays: token ids [B, S]; positions, labels and whether they are used [B, P]."""

    token_ids: np.ndarray
    positions: np.ndarray
    labels: np.ndarray
    is_used: np.ndarray


def mask(vocabulary, rows, seed=0, step=0, **options) -> Masked:
    masker = Masker(vocabulary=vocabulary, **options)
    x, y, weights = masker(rows, (seed, tf.constant(step)))
    found = x["token_ids"], x["mask_positions"], y["mlm"], weights["mlm"] > 0
    return Masked(*(tensor.numpy() for tensor in found))


@pytest.fixture(scope="module")
def rows(vocabulary):
    return random_pairs(vocabulary, batch_size=4000, seed=1, length=64)


@pytest.fixture(scope="module")
def masked(vocabulary, rows):
    return mask(vocabulary, rows)


def test_predictions_are_those_of_google_research_bert(rows, masked, vocabulary):
    lengths = rows["padding_mask"].numpy().sum(1)
    expected = [min(10, max(1, round(int(length) * 0.15))) for length in lengths]
    _, positions, labels, used = masked
    np.testing.assert_array_equal(used.sum(1), expected)
    assert ((np.diff(positions, axis=1) > 0) | ~used[:, 1:]).all(), "distinct, sorted"
    tokens = np.take_along_axis(rows["token_ids"].numpy(), positions, axis=1)
    np.testing.assert_array_equal(labels[used], tokens[used])
    assert not np.isin(tokens[used], vocabulary.special_ids).any()


def test_rate_of_one_selects_all_tokens_but_special_ones(vocabulary):
    rows = random_pairs(vocabulary, 50, seed=5)
    _, positions, _, used = mask(vocabulary, rows, mask_selection_rate=1.0)
    assert positions.shape == (50, LENGTH)
    assert not positions[~used].any()
    chosen = np.zeros(positions.shape, bool)
    np.put_along_axis(chosen, positions, True, axis=1)  # And [CLS], if one is unused.
    regular = ~np.isin(rows["token_ids"], vocabulary.special_ids)
    np.testing.assert_array_equal(chosen[:, 1:], regular[:, 1:])


def test_positions_are_equally_likely(vocabulary):
    rows = random_pairs(vocabulary, 1, seed=0)
    many = {name: tf.repeat(value, 20_000, 0) for name, value in rows.items()}
    _, positions, _, used = mask(vocabulary, many, step=1)
    shares = np.bincount(positions[used], minlength=LENGTH) / used.sum()
    regular = ~np.isin(rows["token_ids"][0], vocabulary.special_ids)
    np.testing.assert_allclose(shares, regular / regular.sum(), rtol=0.05)


def test_replacement_shares(rows, masked, vocabulary):
    token_ids, positions, labels, used = masked
    shown = np.take_along_axis(token_ids, positions, axis=1)[used]
    is_mask, is_same = shown == vocabulary.mask_id, shown == labels[used]
    others = vocabulary.size - len(vocabulary.special_ids)
    np.testing.assert_allclose(is_mask.mean(), 0.8, atol=0.01)
    # A random token equals the label with probability 1 / others.
    np.testing.assert_allclose(is_same.mean(), 0.1 + 0.1 / others, atol=0.01)
    random_tokens = {*shown[~is_mask & ~is_same].tolist()}
    assert not random_tokens.intersection(vocabulary.special_ids)
    assert len(random_tokens) == others
    before = rows["token_ids"].numpy()  # All other tokens stay the same.
    np.put_along_axis(token_ids, positions, 0, axis=1)
    np.put_along_axis(before, positions, 0, axis=1)
    np.testing.assert_array_equal(token_ids, before)


def test_masks_depend_on_seed_and_step(vocabulary):
    rows = random_pairs(vocabulary, 20, 2)
    runs = [(0, 0), (0, 0), (0, 1), (1, 0)]
    first, again, *others = (mask(vocabulary, rows, *run).positions for run in runs)
    np.testing.assert_array_equal(again, first)
    assert all((other != first).any() for other in others)


def test_whole_words_are_those_of_the_loop_of_google(vocabulary):
    """Words in random order; one that is longer than the room left is skipped."""
    rng = np.random.default_rng(4)
    rows = random_pairs(vocabulary, 400, seed=4, length=64)
    special = np.isin(rows["token_ids"], vocabulary.special_ids)
    continued = ~np.roll(special, 1, axis=1) & (rng.random(special.shape) < 0.4)
    pieces = rng.choice(np.flatnonzero(vocabulary.is_continuation), special.shape)
    tokens = np.where(continued, pieces, 5)  # 5 is a word of one token.
    tokens = np.where(special, rows["token_ids"], tokens)
    rows["token_ids"] = tf.constant(tokens, tf.int32)
    masked = mask(vocabulary, rows, whole_word_masking=True)
    draws = tf.random.stateless_uniform(special.shape, (0, 0)).numpy()
    numbers = np.cumsum(~vocabulary.is_continuation[tokens], axis=1)
    skipped = 0
    for row, length in enumerate(rows["padding_mask"].numpy().sum(1)):
        words = collections.defaultdict(list)
        for position in np.flatnonzero(~special[row]).tolist():
            words[numbers[row, position]].append(position)
        expected, wanted = [], max(1, round(int(length) * 0.15))
        for number in sorted(words, key=lambda number: draws[row, number % 64]):
            if len(expected) + len(words[number]) <= wanted:
                expected += words[number]
        used = masked.is_used[row]
        assert masked.positions[row][used].tolist() == sorted(expected)
        skipped += len(expected) < wanted
    assert 0 < skipped < 40


def test_rate_out_of_range_raises(vocabulary):
    with pytest.raises(ValueError, match=r"mask_selection_rate=0\.0"):
        Masker(vocabulary=vocabulary, mask_selection_rate=0.0)
