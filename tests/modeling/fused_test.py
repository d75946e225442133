# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import bert, config, fused
from bert_tf.modeling.backend import dropout_mask
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients

SEED = tf.constant([3, 0], tf.int64)
RUNS = pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])


def float32_arrays(tensors):
    return [tf.cast(tensor, "float32").numpy() for tensor in tensors]


# --- Dense layers ----------------------------------------------------------------


def test_bias_gradient_of_many_bfloat16_rows_is_exact():
    # A bfloat16 sum of 4,096 numbers of size 1 ends where 1 is below half of its last
    # digit.
    dy = tf.cast(1 + tf.random.stateless_normal((4096, 3), [1, 0]), "bfloat16")
    _, _, d_bias = value_and_gradients(fused.add_bias, [dy, tf.zeros(3)], dy)
    expected = tf.cast(dy, "float64").numpy().sum(axis=0)
    np.testing.assert_allclose(d_bias, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "function",
    [fused.add_bias, *fused.BIAS_AND_ACTIVATION.values()],
    ids=["add_bias", *fused.BIAS_AND_ACTIVATION],
)
def test_bias_gradient_has_the_dtype_of_the_bias(function):
    x = tf.ones((5, 3), "float16")
    y, dx, d_bias = value_and_gradients(function, [x, tf.zeros(3)], tf.ones_like(x))
    assert (y.dtype, dx.dtype, d_bias.dtype) == ("float16", "float16", "float32")


# --- Attention -------------------------------------------------------------------

SCORES = (2, 3, 7, 7)  # Rows, heads, queries, keys.


@pytest.fixture
def attention_inputs():
    """Query, key, value, bias (the second row is all padding), upstream gradient."""
    query, key, value, upstream = (
        tf.random.stateless_normal((2, 3, 7, 4), [i, 0]) for i in range(4)
    )
    mask = tf.constant([[1, 1, 1, 1, 1, 0, 0], [0] * 7], "float32")
    return query, key, value, bert.attention_bias(mask), upstream


def plain_attention(query, key, value, bias, rate, seed):
    """`attend_in_training` with the gradient of autodiff."""
    scores = tf.matmul(query, key, transpose_b=True)
    weights = tf.cast(tf.nn.softmax(tf.cast(scores, "float32") + bias), query.dtype)
    mask = dropout_mask(weights.shape, rate, seed)
    if mask is not None:
        weights = tf.where(mask, weights / (1 - rate), 0)
    return tf.matmul(weights, value)


def attention_results(function, tensors, rate, run=in_graph):
    """Returns the value and the gradients w.r.t. query, key and value, float32."""
    *inputs, bias, upstream = tensors
    found = value_and_gradients(
        lambda *inputs: function(*inputs, bias, rate, SEED), inputs, upstream, run
    )
    assert all(tensor.dtype == tensors[0].dtype for tensor in found)
    return float32_arrays(found)


@RUNS
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_attention_gradient_equals_autodiff(attention_inputs, rate, run):
    found, expected = (
        attention_results(function, attention_inputs, rate, run)
        for function in (fused.attend_in_training, plain_attention)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)
        assert np.isfinite(a).all()


def test_attention_in_bfloat16_is_as_exact_as_autodiff(attention_inputs):
    *inputs, bias, upstream = attention_inputs
    low = [tf.cast(tensor, "bfloat16") for tensor in inputs]
    rounded = [*low, bias, tf.cast(upstream, "bfloat16")]
    float32 = [tf.cast(tensor, "float32") for tensor in rounded]
    exact = attention_results(plain_attention, float32, 0.0)

    def errors(function):
        found = attention_results(function, rounded, 0.0)
        return [np.std(a - b) for a, b in zip(found, exact, strict=True)]

    pairs = zip(errors(fused.attend_in_training), errors(plain_attention), strict=True)
    for ours, autodiff in pairs:
        assert ours <= 1.5 * autodiff


def test_attention_keeps_one_tensor_of_the_size_of_the_scores(attention_inputs):
    *inputs, bias, _ = attention_inputs
    kept = kept_tensors(
        lambda *inputs: fused.attend_in_training(*inputs, bias, 0.3, SEED), *inputs
    )
    assert [tensor.shape for tensor in kept].count(SCORES) == 1


# --- Residual connection ---------------------------------------------------------

SHAPE = (9, 16)
BIAS = np.linspace(-0.7, 0.4, 16)


@pytest.fixture(scope="module")
def layer_norm():
    layer = keras.layers.LayerNormalization(epsilon=1e-2)
    layer.build(SHAPE)
    layer.gamma.assign(tf.linspace(-1.0, 2.0, 16))
    layer.beta.assign(tf.linspace(0.5, -0.5, 16))
    return layer


def plain_add_and_norm(x, y, bias, layer_norm, rate, seed):
    """`add_and_norm` with the gradient of autodiff."""
    y = y + bias
    mask = dropout_mask(y.shape, rate, seed)
    if mask is not None:
        y = tf.where(mask, y / (1 - rate), 0)
    return layer_norm(x + y)


def residual_results(function, layer_norm, rate, dtype="float32", run=in_graph):
    """Returns the value and the gradients w.r.t. x, y, bias, gamma, beta, float32."""
    x, y, upstream = (
        tf.cast(tf.random.stateless_normal(SHAPE, [i, 0]), dtype) for i in range(3)
    )
    found = value_and_gradients(
        lambda *inputs: function(*inputs, layer_norm, rate, SEED),
        [x, y, tf.constant(BIAS, dtype)],
        upstream,
        run,
        layer_norm.trainable_variables,
    )
    assert found[0].dtype == dtype
    return float32_arrays(found)


@RUNS
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_add_and_norm_gradient_equals_autodiff(layer_norm, rate, run):
    found, expected = (
        residual_results(function, layer_norm, rate, run=run)
        for function in (fused.add_and_norm, plain_add_and_norm)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)


def test_add_and_norm_in_bfloat16_is_as_exact_as_autodiff(layer_norm):
    exact = residual_results(plain_add_and_norm, layer_norm, 0.3)
    low = keras.layers.LayerNormalization(epsilon=1e-2, dtype="mixed_bfloat16")
    low.build(SHAPE)
    low.set_weights(layer_norm.get_weights())

    def errors(function):
        found = residual_results(function, low, 0.3, "bfloat16")
        return [abs(a - b).max() for a, b in zip(found, exact, strict=True)]

    pairs = zip(errors(fused.add_and_norm), errors(plain_add_and_norm), strict=True)
    for ours, autodiff in pairs:
        assert ours <= 1.5 * autodiff


def test_add_and_norm_keeps_the_normalized_sum_and_the_mask(layer_norm):
    kept = kept_tensors(
        lambda *inputs: fused.add_and_norm(*inputs, layer_norm, 0.3, SEED),
        tf.ones(SHAPE),
        tf.ones(SHAPE),
        tf.ones(16),
    )
    large = [tensor.dtype.name for tensor in kept if tensor.shape == SHAPE]
    assert sorted(large) == ["bool", "float32"]


# --- Activations -----------------------------------------------------------------


ACTIVATIONS = {
    "gelu_tanh": lambda x: keras.activations.gelu(x, approximate=True),
    "gelu_erf": lambda x: keras.activations.gelu(x, approximate=False),
    "relu": keras.activations.relu,
}


@RUNS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", config.ACTIVATIONS)
def test_activation_in_training_equals_inference(run, form, dtype):
    x = tf.concat([tf.linspace(-9.0, 9.0, 2001), [-1e4, 1e4]], 0)[:, tf.newaxis]
    x, bias = tf.cast(x, dtype), tf.constant([-0.125], dtype)
    upstream = tf.cast(tf.linspace(-2.0, 3.0, 2003), dtype)[:, tf.newaxis]

    def inference(x, bias):  # The sum is not rounded.
        total = tf.cast(x, "float32") + tf.cast(bias, "float32")
        return tf.cast(ACTIVATIONS[form](total), dtype)

    found, expected = (
        value_and_gradients(function, [x, bias], upstream, run)
        for function in (fused.BIAS_AND_ACTIVATION[form], inference)
    )
    assert {tensor.dtype.name for tensor in found} == {dtype}
    size = abs(tf.cast(x, "float32"))  # XLA's erf ends 1.8e-7 below one.
    y, dx, d_bias = float32_arrays(found)
    y_expected, dx_expected, _ = float32_arrays(expected)
    tolerances = (2e-6, 1e-5) if dtype == "float32" else (0.05, 0.05)
    for a, b, tolerance in zip((y, dx), (y_expected, dx_expected), tolerances):
        tolerance = np.maximum(tolerance, 1e-7 * size)
        np.testing.assert_array_less(abs(a - b), tolerance + 1e-6 * abs(b))
    rounding = 1e-5 if dtype == "float32" else 4e-3
    np.testing.assert_allclose(d_bias, dx.sum(axis=0), rtol=rounding)


@pytest.mark.parametrize("form", config.ACTIVATIONS)
def test_activation_keeps_only_its_inputs(form):
    kept = kept_tensors(fused.BIAS_AND_ACTIVATION[form], tf.ones([8, 16]), tf.ones(16))
    assert {tensor.op.type for tensor in kept} == {"Placeholder"}
