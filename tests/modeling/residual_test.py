# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import residual
from bert_tf.modeling.dropout import draw_kept
from tests.modeling.fusion_test import in_graph
from tests.modeling.gradients_test import kept, value_and_gradients

SHAPE = (9, 16)


@pytest.fixture(scope="module")
def layer_norm():
    layer = keras.layers.LayerNormalization(epsilon=1e-2)
    layer.build(SHAPE)
    layer.gamma.assign(tf.linspace(-1.0, 2.0, 16))
    layer.beta.assign(tf.linspace(0.5, -0.5, 16))
    return layer


def by_parts(x, y, layer_norm, *, dropout, seed):
    """What `add_and_norm` does, differentiated part by part."""
    if dropout:
        y = tf.where(draw_kept(y.shape, dropout, seed), y / (1 - dropout), 0)
    return layer_norm(x + y)


def outcome(function, layer_norm, dropout, dtype="float32", run=in_graph):
    """The value and the gradients of x, y, gamma and beta, as float32 arrays."""
    *inputs, upstream = (
        tf.cast(tf.random.stateless_normal(SHAPE, [i, 0]), dtype) for i in range(3)
    )
    options = {"dropout": dropout, "seed": keras.random.SeedGenerator(3)}
    found = value_and_gradients(
        lambda x, y: function(x, y, layer_norm, **options),
        inputs,
        upstream,
        run,
        layer_norm.trainable_variables,
    )
    assert found[0].dtype == dtype
    return [tf.cast(tensor, "float32").numpy() for tensor in found]


@pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradient_is_that_of_the_parts(layer_norm, dropout, run):
    options = {"dropout": dropout, "run": run}
    found = outcome(residual.add_and_norm, layer_norm, **options)
    expected = outcome(by_parts, layer_norm, **options)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)


def test_in_bfloat16_it_is_as_exact_as_the_parts(layer_norm):
    exact = outcome(by_parts, layer_norm, 0.3)
    low = keras.layers.LayerNormalization(epsilon=1e-2, dtype="mixed_bfloat16")
    low.build(SHAPE)
    low.set_weights(layer_norm.get_weights())

    def error(function):
        found = outcome(function, low, 0.3, "bfloat16")
        return [abs(a - b).max() for a, b in zip(found, exact, strict=True)]

    for own, other in zip(error(residual.add_and_norm), error(by_parts), strict=True):
        assert own <= 1.5 * other


def test_the_normalised_sum_and_the_choice_are_kept(layer_norm):
    options = {"dropout": 0.3, "seed": keras.random.SeedGenerator(3)}

    def large(function):
        x, y = tf.ones(SHAPE), tf.ones(SHAPE)
        tensors = kept(lambda x, y: function(x, y, layer_norm, **options), x, y)
        return sorted(t.dtype.name for t in tensors if t.shape == SHAPE)

    assert large(residual.add_and_norm) == ["bool", "float32"]
    assert len(large(by_parts)) > 2
