# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses of sentence encoders, and gradient caching."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning.siamese import SiameseEncoder
from bert_tf.heads import EmbeddingConfig, SentenceEncoder
from bert_tf.modeling import BertBackbone

EMBEDDINGS = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
SCORES = np.array([0.2, 0.9, 0.2, 0.5], np.float32)
IDS = np.arange(12, dtype=np.int32).reshape(4, 3)


@pytest.fixture
def make_encoder(tiny_config):
    def make(dropout=0.0):
        keras.utils.set_random_seed(0)
        rates = {"dropout": dropout, "attention_dropout": dropout}
        config = dataclasses.replace(tiny_config, num_layers=1, **rates)
        backbone = BertBackbone(config)
        return SentenceEncoder(backbone, EmbeddingConfig(max_sequence_length=8))

    return make


@pytest.fixture
def loss_and_gradient(make_encoder):
    """Returns the loss and its gradient w.r.t. the embeddings."""

    def compute(loss, embeddings, targets, weights=None):
        model = SiameseEncoder(make_encoder(), loss, temperature=0.25)
        embeddings = tf.constant(embeddings)
        if weights is None:
            weights = np.full(len(embeddings), 1 / len(embeddings))
        weights = tf.constant(weights, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            value = model.compute_loss(None, tf.constant(targets), embeddings, weights)
        return float(value), tape.gradient(value, embeddings).numpy()

    return compute


# --- Losses ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "texts", "targets", "expected", "gradient", "total"),
    [  # Golden values: CoSENTLoss, CosineSimilarityLoss and
        # MultipleNegativesRankingLoss of sentence-transformers 6.2, with scale=4.
        ("cosent", 2, SCORES, 4.1327872, [-0.0102625, -0.1780196, 0.066623], 15.03817),
        ("cosine", 2, SCORES, 0.3352153, [-0.0108330, -0.1879161, 0.070327], 1.8427155),
        ("in_batch_negatives", 3, IDS, 2.5749917, [0.2280205, -0.5855201, 0.172941],
         7.8210220),
    ],
)  # fmt: skip
def test_losses_equal_sentence_transformers(
    loss_and_gradient, loss, texts, targets, expected, gradient, total
):
    value, found = loss_and_gradient(loss, EMBEDDINGS[:, :texts], targets)
    assert value == pytest.approx(expected, rel=1e-5)
    np.testing.assert_allclose(found[1, 0, :3], gradient, rtol=1e-4)
    assert np.abs(found).sum() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [("cosent", SCORES), ("cosine", SCORES), ("in_batch_negatives", IDS[:, :2])],
)
def test_padding_rows_do_not_count(loss_and_gradient, loss, targets):
    embeddings = EMBEDDINGS[:, :2]
    expected, gradient = loss_and_gradient(loss, embeddings[:3], targets[:3])
    weights = [1 / 3, 1 / 3, 1 / 3, 0]
    value, found = loss_and_gradient(loss, embeddings, targets, weights)
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found[:3], gradient, atol=1e-6)
    np.testing.assert_array_equal(found[3], 0)


def test_known_positives_are_no_negatives(loss_and_gradient):
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


# --- Gradient caching ------------------------------------------------------------


class Recorder(keras.optimizers.SGD):
    """Keeps the gradients instead of applying them."""

    def apply_gradients(self, gradients_and_variables):
        self.gradients = [gradient for gradient, _ in gradients_and_variables]


@pytest.mark.parametrize(("dropout", "micro_batch_size"), [(0, 2), (0.3, 4)])
def test_cached_gradients_equal_those_of_the_whole_batch(
    make_encoder, dropout, micro_batch_size
):
    """With dropout in one micro-batch, both passes must draw the same masks."""
    rng = np.random.default_rng(1)
    token_ids = rng.integers(5, 40, (4, 3, 6)).astype(np.int32)
    inputs = {
        "token_ids": token_ids,
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": (np.arange(6) < rng.integers(2, 7, (4, 3, 1))).astype(np.int32),
    }
    batch = keras.tree.map_structure(
        tf.constant, (inputs, IDS, np.full(4, 1 / 4, np.float32))
    )
    found = []
    for size in (0, micro_batch_size):
        encoder = make_encoder(dropout)
        model = SiameseEncoder(encoder, "in_batch_negatives", 0.05, size)
        model.compile(Recorder(), run_eagerly=True)
        if size:
            loss = model.train_step(batch)["loss"]
            gradients = model.optimizer.gradients
        else:
            with tf.GradientTape() as tape:
                embeddings = model(batch[0], training=True)
                loss = model.compute_loss(*batch[:2], embeddings, batch[2])
            gradients = tape.gradient(
                loss, [v.value for v in encoder.trainable_variables]
            )
        found.append([loss, *map(tf.convert_to_tensor, gradients)])
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(expected, ours, atol=2e-5)
    if not dropout:
        return
    model._micro_batch_size = 2
    model.train_step(batch)
    (seed,) = {
        int(layer.seed_generator.state.value[1])
        for layer in encoder._flatten_layers()
        if getattr(layer, "seed_generator", None)
    }
    assert seed == 1 + 2  # The masks differ between steps and micro-batches.
