# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import pretrainer
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients

RUNS = pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])


@pytest.fixture
def predictions():
    """Token ids [2, 3], logits [2, 3, 50] of all sizes, weights [2, 3]."""
    logits = 30 * tf.random.stateless_normal([2, 3, 50], [1, 2])
    weights = tf.constant([[0.1, 0.2, 0.0], [0.3, 0.3, 0.1]])
    return tf.constant([[0, 7, 3], [49, 1, 7]]), logits, weights


@RUNS
def test_masked_lm_loss_equals_the_cross_entropy_of_keras(predictions, run):
    keras_loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="sum"
    )
    token_ids, logits, weights = predictions
    found, expected = (
        value_and_gradients(
            functools.partial(loss, token_ids, sample_weight=weights),
            [logits],
            tf.ones([]),
            run,
        )
        for loss in (pretrainer.MaskedLMLoss(reduction="sum"), keras_loss)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    errors = ValueError, tf.errors.InvalidArgumentError
    with pytest.raises(errors, match=r"(?s)sample weight 0.*-49"):
        run(pretrainer.MaskedLMLoss())(-token_ids, logits)


def test_masked_lm_loss_keeps_only_the_logits(predictions):
    token_ids, logits, weights = predictions
    loss = pretrainer.MaskedLMLoss(reduction="sum")
    kept = kept_tensors(lambda logits: loss(token_ids, logits, weights), logits)
    (large,) = [tensor for tensor in kept if tensor.shape[-1] == 50]
    assert large.op.type == "Placeholder"
