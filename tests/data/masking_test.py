# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.masking."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import Masker
from tests.toy.records import LENGTH, make_masker, random_pairs


@pytest.fixture
def masked(vocabulary):
    """A large batch before and after masking."""
    before = random_pairs(vocabulary, batch_size=4000, seed=1, length=64)
    masker = make_masker(vocabulary, mask_selection_length=10)
    return before, masker(before, (0, tf.constant(0)))


def test_number_of_predictions_equals_google_research_bert(masked):
    before, (_, _, weights) = masked
    lengths = before["padding_mask"].numpy().sum(1)
    expected = [min(10, max(1, round(int(length) * 0.15))) for length in lengths]
    np.testing.assert_array_equal((weights["mlm"].numpy() > 0).sum(1), expected)


def test_rows_with_few_tokens_get_one_prediction(vocabulary):
    masker = make_masker(vocabulary, mask_selection_rate=0.01)
    *_, weights = masker(random_pairs(vocabulary, 50, seed=5), (0, tf.constant(0)))
    np.testing.assert_array_equal((weights["mlm"].numpy() > 0).sum(1), 1)


def test_rate_of_one_selects_all_tokens_but_special_ones(vocabulary):
    before = random_pairs(vocabulary, 50, seed=5)
    masker = Masker(vocabulary=vocabulary, mask_selection_rate=1.0)
    x, _, weights = masker(before, (0, tf.constant(0)))
    assert x["mask_positions"].shape == (50, LENGTH)
    is_regular = ~np.isin(before["token_ids"], vocabulary.special_ids)
    for row in range(50):
        used = weights["mlm"][row].numpy() > 0
        positions = x["mask_positions"][row].numpy()
        np.testing.assert_array_equal(positions[used], np.flatnonzero(is_regular[row]))
        assert (positions[~used] == 0).all()


def test_default_number_of_predictions_is_rounded_up(vocabulary):
    x, *_ = Masker(vocabulary=vocabulary)(
        random_pairs(vocabulary, 2, seed=5), (0, tf.constant(0))
    )
    assert x["mask_positions"].shape == (2, 3)  # 16 * 0.15 is 2.4.


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ({"mask_selection_rate": 0.0}, "mask_selection_rate=0.0"),
        ({"mask_selection_rate": 1.1}, "mask_selection_rate=1.1"),
        ({"mask_token_rate": -0.1}, "mask_token_rate=-0.1"),
        ({"random_token_rate": -0.1}, "random_token_rate=-0.1"),
        ({"random_token_rate": 0.3}, "random_token_rate=0.3"),
    ],
)
def test_rates_out_of_range_raise(vocabulary, rates, message):
    with pytest.raises(ValueError, match=message):
        make_masker(vocabulary, **rates)


def test_selected_positions_are_distinct_and_not_special(masked, vocabulary):
    before, (x, y, weights) = masked
    tokens = before["token_ids"].numpy()
    for row in range(500):
        used = weights["mlm"][row].numpy() > 0
        positions = x["mask_positions"][row].numpy()[used]
        assert len(set(positions)) == len(positions)
        assert list(positions) == sorted(positions)
        np.testing.assert_array_equal(
            y["mlm"][row].numpy()[used], tokens[row][positions]
        )
        assert not set(tokens[row][positions]) & set(vocabulary.special_ids)


def test_positions_are_equally_likely(vocabulary):
    pairs = random_pairs(vocabulary, 1, seed=0)
    pairs = {name: tf.repeat(value, 20_000, 0) for name, value in pairs.items()}
    x, _, weights = make_masker(vocabulary)(pairs, (0, tf.constant(1)))
    used = weights["mlm"].numpy() > 0
    counts = np.bincount(x["mask_positions"].numpy()[used], minlength=LENGTH)
    ids = pairs["token_ids"][0].numpy()
    candidates = ~np.isin(ids, vocabulary.special_ids)
    assert (counts[~candidates] == 0).all()
    shares = counts[candidates] / counts.sum()
    np.testing.assert_allclose(shares, 1 / candidates.sum(), rtol=0.05)


def test_replacement_shares(masked, vocabulary):
    before, (x, y, weights) = masked
    used = weights["mlm"].numpy() > 0
    shown = tf.gather(x["token_ids"], x["mask_positions"], batch_dims=1).numpy()[used]
    labels = y["mlm"].numpy()[used]
    is_mask, is_same = shown == vocabulary.mask_id, shown == labels
    others = vocabulary.size - len(vocabulary.special_ids)
    np.testing.assert_allclose(is_mask.mean(), 0.8, atol=0.01)
    # A random token equals the label with probability 1 / others.
    np.testing.assert_allclose(is_same.mean(), 0.1 + 0.1 / others, atol=0.01)
    random_tokens = shown[~is_mask & ~is_same]
    assert not set(random_tokens) & set(vocabulary.special_ids)
    assert len(set(random_tokens)) == others
    untouched = np.ones(before["token_ids"].shape, bool)
    rows = np.broadcast_to(np.arange(len(used))[:, None], used.shape)
    untouched[rows[used], x["mask_positions"].numpy()[used]] = False
    np.testing.assert_array_equal(
        x["token_ids"].numpy()[untouched], before["token_ids"].numpy()[untouched]
    )


@pytest.mark.parametrize(
    ("rates", "allowed"), [((1.0, 0.0), "mask"), ((0.0, 0.0), "same")]
)
def test_replacement_shares_of_one_and_zero(vocabulary, rates, allowed):
    before = random_pairs(vocabulary, 200, seed=2)
    masker = make_masker(
        vocabulary, mask_token_rate=rates[0], random_token_rate=rates[1]
    )
    x, y, weights = masker(before, (0, tf.constant(0)))
    used = weights["mlm"].numpy() > 0
    shown = tf.gather(x["token_ids"], x["mask_positions"], batch_dims=1).numpy()[used]
    expected = vocabulary.mask_id if allowed == "mask" else y["mlm"].numpy()[used]
    assert (shown == expected).all()


def test_sample_weights_are_equal_and_sum_to_one(masked):
    _, (_, _, weights) = masked
    for weight in (weights["mlm"].numpy(), weights["nsp"].numpy()):
        used = weight[weight > 0]
        np.testing.assert_allclose(weight.sum(), 1, rtol=1e-5)
        np.testing.assert_allclose(used, 1 / len(used), rtol=1e-5)


def test_unused_slots_of_pairs_have_no_weight(vocabulary):
    before = random_pairs(vocabulary, 2, seed=6)
    before["is_random_next"] = tf.constant([[1, -1], [0, 1]])
    _, y, weights = make_masker(vocabulary)(before, (0, tf.constant(0)))
    assert y["nsp"].numpy().tolist() == [[1, 0], [0, 1]]
    np.testing.assert_allclose(weights["nsp"] * 3, [[1, 0], [1, 1]], rtol=1e-6)


def test_masks_depend_on_step_and_seed(vocabulary):
    before, masker = random_pairs(vocabulary, 50, seed=3), make_masker(vocabulary)

    def draw(seed, step):
        return masker(before, (seed, tf.constant(step)))[0]["token_ids"].numpy()

    np.testing.assert_array_equal(draw(0, 0), draw(0, 0))
    assert (draw(0, 0) != draw(0, 1)).any()
    assert (draw(0, 0) != draw(1, 0)).any()


def test_whole_word_masking(vocabulary):
    continues = vocabulary.is_continuation
    rng = np.random.default_rng(4)
    before = random_pairs(vocabulary, 2000, seed=4, length=64)
    pieces = rng.choice(np.flatnonzero(continues), (2000, 64))
    tokens = before["token_ids"].numpy()
    special = np.isin(tokens, vocabulary.special_ids)
    after_special = np.roll(special, 1, axis=1)
    continued = ~special & ~after_special & (rng.random(tokens.shape) < 0.4)
    tokens = np.where(continues[tokens], 5, tokens)  # Start from words of one token.
    tokens = np.where(continued, pieces, tokens)
    before["token_ids"] = tf.constant(tokens, tf.int32)
    masker = make_masker(vocabulary, mask_selection_length=10, whole_word_masking=True)
    x, _, weights = masker(before, (0, tf.constant(0)))

    counts = []
    for row in range(2000):
        used = weights["mlm"][row].numpy() > 0
        chosen = set(x["mask_positions"][row].numpy()[used].tolist())
        counts.append(len(chosen))
        for position in range(1, 64):
            if continues[tokens[row, position]]:
                assert (position in chosen) == (position - 1 in chosen)
    wanted = np.clip(np.round(before["padding_mask"].numpy().sum(1) * 0.15), 1, 10)
    assert (np.array(counts) <= wanted).all()
    assert np.mean(counts) > 0.8 * wanted.mean()
