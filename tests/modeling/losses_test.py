# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling.losses import MaskedLMLoss
from tests.modeling.fusion_test import in_graph
from tests.modeling.gradients_test import kept


@pytest.fixture
def batch():
    """Token ids [2, 3], logits [2, 3, 50] of all sizes, weights."""
    logits = 30 * tf.random.stateless_normal([2, 3, 50], [1, 2])
    weights = tf.constant([[0.1, 0.2, 0.0], [0.3, 0.3, 0.1]])
    return tf.constant([[0, 7, 3], [49, 1, 7]]), logits, weights


def value_and_gradient(loss, token_ids, logits, weights):
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(token_ids, logits, weights)
    return value, tape.gradient(value, logits)


@pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])
def test_it_is_the_cross_entropy_of_keras(batch, run):
    theirs = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="sum"
    )
    found = run(lambda *batch: value_and_gradient(MaskedLMLoss(), *batch))(*batch)
    expected = value_and_gradient(theirs, *batch)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_logits_alone_are_kept_of_their_size(batch):
    token_ids, logits, weights = batch

    def large(loss):
        tensors = kept(lambda logits: loss(token_ids, logits, weights), logits)
        return [t for t in tensors if t.shape[-1] == 50]

    (only,) = large(MaskedLMLoss())
    assert only.op.type == "Placeholder"


def test_it_can_be_saved():
    config = keras.saving.serialize_keras_object(MaskedLMLoss(reduction="none"))
    assert keras.saving.deserialize_keras_object(config).reduction == "none"
