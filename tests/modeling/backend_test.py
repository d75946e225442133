# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import backend
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients

# --- Custom gradients and fusion -------------------------------------------------


@backend.custom_gradient
def sine_of_product(x, y):
    def gradient(upstream):
        d_product = upstream * tf.cos(backend.delay_until(upstream, x) * y)
        return d_product * y, d_product * x

    return tf.sin(x * y), gradient


def test_custom_gradient_of_each_input():
    x, y = tf.constant([0.5, 2.0]), tf.constant([1.5, -1.0])
    upstream = tf.constant([1.0, 3.0])
    z, dx, dy = value_and_gradients(sine_of_product, [x, y], upstream)
    np.testing.assert_allclose(z, np.sin(x * y))
    d_product = np.cos(x * y) * [1.0, 3.0]
    np.testing.assert_allclose(dx, d_product * y, rtol=1e-6)
    np.testing.assert_allclose(dy, d_product * x, rtol=1e-6)


def test_custom_gradient_takes_keras_variables():
    x = tf.constant([0.5, 2.0])
    y = keras.Variable([1.5, -1.0])
    upstream = tf.ones(2)
    _, dx, dy = value_and_gradients(
        lambda x: sine_of_product(x, y), [x], upstream, weights=[y]
    )
    np.testing.assert_allclose(dx, np.cos(x * y) * y, rtol=1e-6)
    np.testing.assert_allclose(dy, np.cos(x * y) * x, rtol=1e-6)


def test_delayed_recomputation_keeps_only_inputs():
    kept = kept_tensors(sine_of_product, tf.ones(3), tf.ones(3))
    assert {tensor.op.type for tensor in kept} == {"Placeholder"}


@backend.xla_fused
def scaled_sum(x, y, scale):
    return tf.reduce_sum(x if y is None else x * y) * scale


def is_compiled(*shapes):
    """Whether a graph with inputs of these shapes contains an XLA-compiled function."""
    specs = [tf.TensorSpec(shape) for shape in shapes]
    run = in_graph(lambda x, y: scaled_sum(x, y, 0.5)).get_concrete_function(*specs)
    return any(
        "_XlaMustCompile" in op.node_def.attr for op in run.graph.get_operations()
    )


def test_xla_fused_compiles_static_shapes_on_cpu(monkeypatch):
    assert is_compiled([3], [3])
    assert not is_compiled([None], [3])
    monkeypatch.setattr(backend, "cpu_only", lambda: False)
    assert not is_compiled([3], [3])


@pytest.mark.parametrize("factor", [None, tf.constant([1.0, -1.0, 2.0])])
def test_xla_fused_returns_the_same_values(factor):
    x = tf.constant([1.0, 2.0, 3.0])
    expected = scaled_sum(x, factor, 0.5)
    np.testing.assert_allclose(expected, 3.0 if factor is None else 2.5)
    compiled = in_graph(lambda x: scaled_sum(x, factor, 0.5))
    np.testing.assert_allclose(compiled(x), expected)


# --- Dropout ---------------------------------------------------------------------


@pytest.mark.parametrize("cpu_only", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_mask_has_the_rate_and_independent_elements(
    monkeypatch, rate, cpu_only
):
    monkeypatch.setattr(backend, "cpu_only", lambda: cpu_only)
    mask = np.array(backend.dropout_mask((401, 501), backend.Dropout(rate, seed=1)))
    assert mask.shape == (401, 501)  # An odd number of elements.
    assert mask.dtype == bool
    # Five standard deviations.
    tolerance = 5 * (rate * (1 - rate) / mask.size) ** 0.5
    assert abs(mask.mean() - (1 - rate)) < tolerance
    # Neighbors, or on JAX the halves of the rows, share 32 random bits.
    for distance in (1, 251):
        both = (mask[:, distance:] & mask[:, :-distance]).mean()
        assert abs(both - (1 - rate) ** 2) < 3 * tolerance


def test_dropout_masks_differ_and_are_reproducible():
    dropout = backend.Dropout(0.5, seed=1)
    first, second = (np.array(backend.dropout_mask((9, 11), dropout)) for _ in range(2))
    again = np.array(backend.dropout_mask((9, 11), backend.Dropout(0.5, seed=1)))
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_dropout_mask_of_a_rate_near_one():
    mask = np.array(backend.dropout_mask((100, 100), backend.Dropout(0.999999, seed=1)))
    assert mask.mean() < 0.01


def test_dropout_layer_equals_that_of_keras():
    x = tf.ones((5, 40))
    ours, theirs = backend.Dropout(0.3, seed=7), keras.layers.Dropout(0.3, seed=7)
    for _ in range(2):
        np.testing.assert_array_equal(ours(x, training=True), theirs(x, training=True))
    np.testing.assert_array_equal(ours(x), x)
    copy = backend.Dropout.from_config(ours.get_config())
    assert (copy.rate, copy.seed, copy.name) == (0.3, 7, ours.name)


def test_replayed_seeds_do_not_advance_the_generator():
    generator, other = backend.SeedGenerator(1), backend.SeedGenerator(1)
    with generator.replay(tf.constant([8, 9])):
        np.testing.assert_array_equal(generator.next(), [8, 9])
    np.testing.assert_array_equal(generator.next(), other.next())
