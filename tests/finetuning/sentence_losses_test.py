# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import sentence_losses

EMBEDDINGS = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
SCORES = np.array([0.2, 0.9, 0.2, 0.5], np.float32)
IDS = np.arange(12, dtype=np.int32).reshape(4, 3)


def loss_and_gradient(loss, embeddings, targets, weights=None):
    """Returns the loss and its gradient w.r.t. the embeddings."""
    embeddings = tf.constant(embeddings)
    if weights is None:
        weights = np.full(len(embeddings), 1 / len(embeddings))
    weights = tf.constant(weights, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(embeddings)
        unit = tf.math.l2_normalize(embeddings, axis=2)
        value = sentence_losses.LOSSES[loss](unit, tf.constant(targets), weights, 0.25)
    return float(value), tape.gradient(value, embeddings).numpy()


@pytest.mark.parametrize(
    ("loss", "texts", "targets", "expected", "gradient", "total"),
    [  # Golden values: CoSENTLoss and MultipleNegativesRankingLoss of
        # sentence-transformers 6.2, with scale=4.
        ("cosent", 2, SCORES, 4.1327872, [-0.0102625, -0.1780196, 0.066623], 15.03817),
        ("in_batch_negatives", 3, IDS, 2.5749917, [0.2280205, -0.5855201, 0.172941],
         7.8210220),
    ],
)  # fmt: skip
def test_losses_equal_sentence_transformers(
    loss, texts, targets, expected, gradient, total
):
    value, found = loss_and_gradient(loss, EMBEDDINGS[:, :texts], targets)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[1, 0, :3], gradient, rtol=1e-4)
    assert np.abs(found).sum() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [("cosent", SCORES), ("in_batch_negatives", IDS[:, :2])],
)
def test_padding_rows_do_not_count(loss, targets):
    embeddings = EMBEDDINGS[:, :2]
    expected, gradient = loss_and_gradient(loss, embeddings[:3], targets[:3])
    weights = [1 / 3, 1 / 3, 1 / 3, 0]
    value, found = loss_and_gradient(loss, embeddings, targets, weights)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found[:3], gradient, atol=1e-6)
    np.testing.assert_array_equal(found[3], 0)


def test_known_positives_are_no_negatives():
    """In-batch negatives equal a softmax over the other texts only."""
    ids = np.array([[0, 1, 2], [0, 3, -1], [4, 1, 0], [3, 5, 6]], np.int32)
    # For each example, the candidates (example, column) that remain.
    kept = [
        [(0, 1), (0, 2), (3, 1), (3, 2)],  # Without 1, 0, and (1, 1).
        [(1, 1), (0, 2), (2, 1), (3, 1), (3, 2)],  # Without (0, 1), missing, and 0.
        [(2, 1), (0, 2), (1, 1), (2, 2), (3, 1), (3, 2)],
        [(3, 1), (0, 1), (0, 2), (2, 1), (2, 2), (3, 2)],  # Without 3, its first text.
    ]
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=2, keepdims=True)
    losses = []
    for row, candidates in enumerate(kept):
        logits = np.array([unit[row, 0] @ unit[c] for c in candidates]) / 0.25
        losses.append(np.log(np.exp(logits).sum()) - logits[0])
    value, _ = loss_and_gradient("in_batch_negatives", EMBEDDINGS, ids)
    assert value == pytest.approx(np.mean(losses), rel=1e-5)
