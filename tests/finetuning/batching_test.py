# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import batching
from bert_tf.finetuning.batching import Split
from bert_tf.text import Tokenizer, cut_windows

LENGTHS = np.random.default_rng(0).integers(2, 33, 103)


@pytest.fixture(scope="module")
def split(vocabulary):
    """Returns a function that returns a split.

    Its examples of n tokens are n - 2 pieces with the id n, [CLS] and [SEP].
    """
    tokenizer = Tokenizer(vocabulary)
    ids = tf.RaggedTensor.from_row_lengths(np.repeat(LENGTHS, LENGTHS - 2), LENGTHS - 2)
    rows = cut_windows(tokenizer, tf.cast(ids, tf.int32), 32)
    fields = {"name": "train", "rows": rows, "targets": tf.range(len(LENGTHS))}
    return lambda **changes: Split(**fields | changes)


def run(dataset):
    return list(dataset.as_numpy_iterator())


def examples_in(batches):
    """Returns the targets of all rows with a weight, in order."""
    return np.concatenate([targets[weights > 0] for _, targets, weights in batches])


def test_bucket_lengths():
    lengths = np.array([1, 8, 9, 64, 65, 128, 129, 257, 500, 512])
    expected = [8, 8, 16, 64, 80, 128, 160, 320, 510, 510]
    np.testing.assert_array_equal(batching.bucket_lengths(lengths, 510), expected)
    assert len(set(batching.bucket_lengths(np.arange(1, 513), 512))) == 20


def test_each_epoch_has_every_example_once(split):
    batches = run(batching.batches(split(), 16, max_length=32, epochs=3))
    assert len(batches) == 3 * 7  # ceil(103 / 16)
    for epoch in range(3):
        rows = examples_in(batches[7 * epoch : 7 * epoch + 7])
        np.testing.assert_array_equal(np.sort(rows), np.arange(103))
    assert list(examples_in(batches[:7])) != list(examples_in(batches[7:14]))
    other = run(batching.batches(split(), 16, max_length=32, seed=1))
    assert list(examples_in(other)) != list(examples_in(batches[:7]))
    rest = run(batching.batches(split(), 16, max_length=32, first_step=9, epochs=3))
    np.testing.assert_array_equal(examples_in(rest), examples_in(batches[9:]))


def test_rows_are_padded_examples(split):
    for inputs, targets, weights in run(batching.batches(split(), 16, max_length=32)):
        ids, mask = inputs["token_ids"], inputs["padding_mask"]
        lengths = LENGTHS[targets]
        position, end = np.arange(ids.shape[1]), lengths[:, np.newaxis] - 1
        # This includes empty rows, whose example is one of the batch.
        np.testing.assert_array_equal(mask, position <= end)
        is_piece = (position > 0) & (position < end)
        np.testing.assert_array_equal(ids[is_piece], np.repeat(lengths, lengths - 2))
        assert set(targets) == set(targets[weights > 0])
        assert ids.shape[0] == 16
        assert ids.shape[1] == batching.bucket_lengths(lengths[weights > 0], 32).max()


def test_weights_of_a_batch_sum_to_one(split):
    for _, targets, weights in run(batching.batches(split(), 16, max_length=32)):
        count = len(targets[weights > 0])
        np.testing.assert_allclose(weights[weights > 0], 1 / count, rtol=1e-6)
    own = tf.cast(tf.range(len(LENGTHS)) % 3, tf.float32)
    for _, targets, weights in run(
        batching.batches(split(weights=own), 16, max_length=32)
    ):
        expected = (targets % 3) * (weights > 0)
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-6)


def test_targets_and_weights_per_token(split):
    tags = tf.RaggedTensor.from_row_lengths(np.repeat(LENGTHS, LENGTHS), LENGTHS)
    own = tf.cast(tags > 8, tf.float32)
    dataset = batching.batches(
        split(targets={"tag": tags}, weights=own), 16, max_length=32
    )
    totals = []
    for inputs, targets, weights in run(dataset):
        assert targets["tag"].shape == weights["tag"].shape == inputs["token_ids"].shape
        assert not weights["tag"][targets["tag"] <= 8].any()
        totals.append(weights["tag"].sum())
    # All targets of one batch, with short examples only, have weight 0.
    np.testing.assert_allclose(sorted(totals), [0] + [1] * 6, rtol=1e-6)


def test_examples_with_several_rows(split):
    rows = split().rows[np.arange(16).reshape(8, 2)]
    missing = tf.constant([[1, 0]] * 8)
    rows = dataclasses.replace(rows, lengths=rows.lengths * missing)
    choices = split(rows=rows, targets=tf.range(8))
    np.testing.assert_array_equal(choices.lengths, LENGTHS[0:16:2])
    dataset = batching.batches(choices, 4, max_length=32)
    assert dataset.element_spec[0]["token_ids"].shape.as_list() == [4, 2, None]
    for inputs, targets, _ in run(dataset):
        lengths = inputs["padding_mask"].sum(axis=2)
        expected = np.stack([LENGTHS[2 * targets], 0 * targets], axis=1)
        np.testing.assert_array_equal(lengths, expected)


class SumAndTwice(keras.Model):
    """Outputs the sum of the tokens of each row, and twice each token."""

    def call(self, inputs):
        ids = tf.cast(inputs["token_ids"], tf.float32)
        return {"sum": tf.reduce_sum(ids, axis=1), "twice": 2 * ids}


def test_predict_returns_outputs_in_the_order_of_the_split(split):
    outputs = batching.predict(SumAndTwice(), split(targets=None), 16, max_length=32)
    assert [o["sum"] for o in outputs] == [5 + n * (n - 2) for n in LENGTHS]
    for length, output in zip(LENGTHS, outputs, strict=True):
        assert (output["twice"][1 : length - 1] == 2 * length).all()
