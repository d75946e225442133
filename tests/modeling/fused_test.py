# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Functions with gradients of their own: values, gradients, precision, kept tensors."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import attention, fused, pretrainer
from bert_tf.modeling.backend import dropout_mask
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients

SEED = tf.constant([3, 0], tf.int64)
RUNS = pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])


def normal(*shape, seed=0):
    return tf.random.stateless_normal(shape, [seed, 0])


def float32_arrays(tensors):
    return [tf.cast(tensor, "float32").numpy() for tensor in tensors]


def layer_norm(policy):
    layer = keras.layers.LayerNormalization(epsilon=1e-2, dtype=policy)
    layer.build((9, 16))
    layer.gamma.assign(tf.linspace(-1.0, 2.0, 16))
    layer.beta.assign(tf.linspace(0.5, -0.5, 16))
    return layer


LAYER_NORMS = {
    "float32": layer_norm("float32"),
    "bfloat16": layer_norm("mixed_bfloat16"),
}
# The second row is all padding.
BIAS = attention.attention_bias(tf.constant([[1, 1, 1, 1, 1, 0, 0], [0] * 7]))
TOKEN_IDS = tf.constant([[0, 7, 3], [49, 1, 7]])
WEIGHTS = tf.constant([[0.1, 0.2, 0.0], [0.3, 0.3, 0.1]])


def attend(query, key, value, rate):
    return attention.attend_in_training(query, key, value, BIAS, rate, SEED)


def plain_attend(query, key, value, rate):
    scores = tf.matmul(query, key, transpose_b=True)
    weights = tf.cast(tf.nn.softmax(tf.cast(scores, "float32") + BIAS), query.dtype)
    mask = dropout_mask(weights.shape, rate, SEED)
    if mask is not None:
        weights = tf.where(mask, weights / (1 - rate), 0)
    return tf.matmul(weights, value)


def add_and_norm(x, y, bias, rate):
    return fused.add_and_norm(x, y, bias, LAYER_NORMS[x.dtype.name], rate, SEED)


def plain_add_and_norm(x, y, bias, rate):
    y = y + bias
    mask = dropout_mask(y.shape, rate, SEED)
    if mask is not None:
        y = tf.where(mask, y / (1 - rate), 0)
    return LAYER_NORMS[x.dtype.name](x + y)


def masked_lm_loss(logits, rate):
    return pretrainer.MaskedLMLoss(reduction="sum")(TOKEN_IDS, logits, WEIGHTS)


def plain_masked_lm_loss(logits, rate):
    loss = keras.losses.SparseCategoricalCrossentropy(True, reduction="sum")
    return loss(TOKEN_IDS, logits, WEIGHTS)


@dataclasses.dataclass
class Kernel:
    """A function with a gradient of its own, and the same with that of autodiff."""

    function: Callable
    plain: Callable
    inputs: list[tf.Tensor]
    large: tuple[int, ...]  # The shape of the largest tensors,
    kept: list[str]  # and the dtypes of those that stay for the backward pass.
    has_layer_norm: bool = False

    def results(self, function, rate, dtype="float32", run=in_graph):
        """Returns the value and the gradients, float32."""
        inputs = [tf.cast(x, dtype) for x in self.inputs]
        upstream = normal(*function(*inputs, rate).shape, seed=7)
        found = value_and_gradients(
            lambda *inputs: function(*inputs, rate),
            inputs,
            tf.cast(upstream, dtype),
            run,
            LAYER_NORMS[dtype].trainable_variables if self.has_layer_norm else (),
        )
        assert found[0].dtype == found[1].dtype == dtype
        return float32_arrays(found)


KERNELS = {
    "attention": Kernel(
        attend,
        plain_attend,
        [normal(2, 3, 7, 4, seed=seed) for seed in range(3)],
        (2, 3, 7, 7),
        ["float32"],
    ),
    "add_and_norm": Kernel(
        add_and_norm,
        plain_add_and_norm,
        [normal(9, 16, seed=0), normal(9, 16, seed=1), tf.linspace(-0.7, 0.4, 16)],
        (9, 16),
        ["bool", "float32"],
        has_layer_norm=True,
    ),
    "masked_lm_loss": Kernel(
        masked_lm_loss, plain_masked_lm_loss, [30 * normal(2, 3, 50)], (2, 3, 50), []
    ),
}


@RUNS
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_gradient_equals_autodiff(kernel, rate, run):
    found, expected = (
        kernel.results(function, rate, run=run)
        for function in (kernel.function, kernel.plain)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=5e-6)
        assert np.isfinite(a).all()


@pytest.mark.parametrize("name", ["attention", "add_and_norm"])
def test_bfloat16_is_as_exact_as_autodiff(name):
    kernel, rate = KERNELS[name], 0.3
    exact = kernel.results(kernel.plain, rate)

    def errors(function):
        found = kernel.results(function, rate, "bfloat16")
        return [np.std(a - b) for a, b in zip(found, exact, strict=True)]

    pairs = zip(errors(kernel.function), errors(kernel.plain), strict=True)
    for ours, autodiff in pairs:
        assert ours <= 1.5 * autodiff


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_few_large_tensors_stay_in_memory(kernel):
    kept = kept_tensors(lambda *x: kernel.function(*x, 0.3), *kernel.inputs)
    kept = [x for x in kept if x.op.type != "Placeholder" and x.shape == kernel.large]
    assert sorted(x.dtype.name for x in kept) == kernel.kept


def test_negative_token_ids_are_refused():
    errors = ValueError, tf.errors.InvalidArgumentError
    for run in (lambda f: f, in_graph):
        with pytest.raises(errors, match=r"(?s)sample weight 0.*-49"):
            run(pretrainer.MaskedLMLoss())(-TOKEN_IDS, normal(2, 3, 50))


# --- Biases and activations ------------------------------------------------------


def test_bias_gradient_of_many_bfloat16_rows_is_exact():
    # A bfloat16 sum of 4,096 numbers of size 1 ends where 1 is below half of its last
    # digit.
    dy = tf.cast(1 + normal(4096, 3), "bfloat16")
    _, _, d_bias = value_and_gradients(fused.add_bias, [dy, tf.zeros(3)], dy)
    expected = tf.cast(dy, "float64").numpy().sum(axis=0)
    np.testing.assert_allclose(d_bias, expected, rtol=1e-6)


@pytest.mark.parametrize("function", [fused.add_bias, *fused.ACTIVATIONS])
def test_bias_gradient_has_the_dtype_of_the_bias(function):
    if function in fused.ACTIVATIONS:
        function = fused.ACTIVATIONS[function].training
    x = tf.ones((5, 3), "float16")
    y, dx, d_bias = value_and_gradients(function, [x, tf.zeros(3)], tf.ones_like(x))
    assert (y.dtype, dx.dtype, d_bias.dtype) == ("float16", "float16", "float32")


@RUNS
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", fused.ACTIVATIONS)
def test_activation_in_training_equals_inference(run, form, dtype):
    x = tf.concat([tf.linspace(-9.0, 9.0, 2001), [-1e4, 1e4]], 0)[:, tf.newaxis]
    x, bias = tf.cast(x, dtype), tf.constant([-0.125], dtype)
    upstream = tf.cast(tf.linspace(-2.0, 3.0, 2003), dtype)[:, tf.newaxis]

    def inference(x, bias):  # The sum is not rounded.
        total = tf.cast(x, "float32") + tf.cast(bias, "float32")
        return tf.cast(fused.ACTIVATIONS[form].inference(total), dtype)

    found, expected = (
        value_and_gradients(function, [x, bias], upstream, run)
        for function in (fused.ACTIVATIONS[form].training, inference)
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


@pytest.mark.parametrize("form", fused.ACTIVATIONS)
def test_activation_keeps_only_its_inputs(form):
    kept = kept_tensors(fused.ACTIVATIONS[form].training, tf.ones([8, 16]), tf.ones(16))
    assert {tensor.op.type for tensor in kept} == {"Placeholder"}
