# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import attention
from bert_tf.modeling.dropout import draw_kept
from tests.modeling.fusion_test import in_graph
from tests.modeling.gradients_test import kept, value_and_gradients

SHAPE = (2, 3, 7, 4)  # Rows, heads, tokens, numbers of a head.


@pytest.fixture
def tensors():
    """Query, key, value, bias with padding and a row of padding alone, upstream."""
    query, key, value, upstream = (
        tf.random.stateless_normal(SHAPE, [i, 0]) for i in range(4)
    )
    mask = tf.constant([[1, 1, 1, 1, 1, 0, 0], [0] * 7], "float32")
    bias = (1 - mask[:, None, None, :]) * -1e9
    return query, key, value, bias, upstream


def by_parts(query, key, value, bias, *, dropout, seed):
    """What `attend_in_training` does, differentiated part by part."""
    scores = tf.matmul(query, key, transpose_b=True)
    weights = tf.cast(tf.nn.softmax(tf.cast(scores, "float32") + bias), query.dtype)
    if dropout:
        kept = draw_kept(weights.shape, dropout, seed)
        weights = tf.where(kept, weights / (1 - dropout), 0)
    return tf.matmul(weights, value)


def outcome(function, tensors, run=in_graph, **options):
    """The value and the gradients of query, key and value, as float32 arrays."""
    *inputs, bias, upstream = tensors
    options["seed"] = keras.random.SeedGenerator(3)
    found = value_and_gradients(
        lambda *inputs: function(*inputs, bias, **options), inputs, upstream, run
    )
    assert all(tensor.dtype == tensors[0].dtype for tensor in found)
    return [tf.cast(tensor, "float32").numpy() for tensor in found]


@pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_is_that_of_the_parts(tensors, dropout, run):
    options = {"dropout": dropout, "run": run}
    found = outcome(attention.attend_in_training, tensors, **options)
    expected = outcome(by_parts, tensors, **options)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
        assert np.isfinite(a).all()


def test_in_bfloat16_it_is_as_exact_as_the_parts(tensors):
    *inputs, bias, upstream = tensors
    low = [tf.cast(tensor, "bfloat16") for tensor in inputs]
    rounded = [*low, bias, tf.cast(upstream, "bfloat16")]
    exact = outcome(
        by_parts,
        [tf.cast(tensor, "float32") for tensor in rounded],
        dropout=0.0,
    )

    def error(function):
        found = outcome(function, rounded, dropout=0.0)
        return [abs(a - b).max() for a, b in zip(found, exact, strict=True)]

    parts = error(by_parts)
    for own, other in zip(error(attention.attend_in_training), parts, strict=True):
        assert own <= 1.5 * other


def test_without_dropout_it_is_that_of_inference(tensors):
    *inputs, bias, _ = tensors
    np.testing.assert_allclose(
        attention.attend_in_training(*inputs, bias),
        attention.attend(*inputs, bias),
        atol=1e-6,
    )


def test_one_tensor_of_the_size_of_the_scores_is_kept(tensors):
    *inputs, bias, _ = tensors
    options = {"dropout": 0.3, "seed": keras.random.SeedGenerator(3)}

    def scores_kept(function):
        tensors = kept(lambda *inputs: function(*inputs, bias, **options), *inputs)
        return [t for t in tensors if t.shape[-2:] == (7, 7)]

    assert len(scores_kept(attention.attend_in_training)) == 1
    assert len(scores_kept(by_parts)) == 4
