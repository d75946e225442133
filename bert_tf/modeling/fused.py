# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The operations of an encoder layer, with fused kernels for training.

In training, the values are those of inference. Memory and time are not the same:

- Memory: autodiff keeps all intermediate tensors from the forward to the backward
  pass. Functions with a `custom_gradient` keep one or two and recompute the others.
- Time on CPUs: TensorFlow makes one pass over memory per elementwise op.
  `xla_fused` compiles a group of such ops with XLA into one pass. Matmuls stay
  outside, because oneDNN's are faster than XLA's.

Letters: B batch, S sequence, T = B * S, H hidden, I intermediate. Elementwise
arithmetic is in float32, whatever the type of the inputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from bert_tf.modeling.attention import split_heads
from bert_tf.modeling.backend import (
    cpu_only,
    custom_gradient,
    delay_until,
    dropout_mask,
    xla_fused,
)


def _float32(tensor):
    return ops.cast(tensor, "float32")


# --- Dense layers ----------------------------------------------------------------


def project_heads(x, layers, shape, num_heads: int, training: bool) -> list:
    """Applies dense layers to x [B*S, H], each with outputs [B, N, S, D].

    Args:
        x: [B*S, H].
        layers: Those of the queries, the keys and the values.
        shape: (B, S, ...).
        num_heads: N.
        training: Whether to keep what the backward pass needs.
    """
    if not training:
        return [split_heads(layer(x), shape, num_heads) for layer in layers]
    # One matmul for the three projections: three small ones are slower on CPUs.
    kernel = ops.concatenate([layer.kernel for layer in layers], axis=1)
    y = ops.matmul(x, ops.cast(kernel, layers[0].compute_dtype))
    y = add_bias(y, ops.concatenate([layer.bias for layer in layers]))
    size = layers[0].units // num_heads  # A static size; S may be dynamic.
    y = ops.reshape(y, (*shape[:2], len(layers), num_heads, size))
    return ops.unstack(ops.transpose(y, (2, 0, 3, 1, 4)))


def project(x, layer: keras.layers.Dense):
    """Returns x kernel, [T, units], without the bias of the layer.

    TensorFlow fuses a matmul and its bias into one op. That op is up to four times
    slower than a matmul on CPUs with AMX if the weights change. So the next operation
    adds the bias: `add_bias`, `add_and_norm` or `dense_and_activation`.
    """
    return ops.matmul(x, ops.cast(layer.kernel, layer.compute_dtype))


@custom_gradient
def add_bias(x, bias):
    """Returns x + bias, [T, H], of the dtype of `x`."""
    return _add_bias(x, bias), lambda dy: (dy, _d_bias(dy, bias))


@xla_fused
def _add_bias(x, bias):
    return ops.cast(_float32(x) + _float32(bias), x.dtype)


def _d_bias(dy, bias):
    """Returns the sum of dy [T, H] over the first axis, [H] of the dtype of `bias`.

    The sum is in float32. TensorFlow's own gradient of a bias adds up bfloat16 numbers
    on CPUs: with 4,096 rows, errors of biases were 5 to 60% (TensorFlow 2.21).
    """
    if cpu_only():  # A matmul is faster there.
        total = ops.matmul(ops.ones((1, ops.shape(dy)[0])), _float32(dy))[0]
    else:
        total = ops.sum(_float32(dy), axis=0)
    # With recomputation, `bias` may be of float32 and `dy` of float16.
    return ops.cast(total, bias.dtype)


# --- Residual connection ---------------------------------------------------------


def dense_add_and_norm(x, y, layer, layer_norm, dropout, seed, training: bool):
    """Returns LayerNorm(x + dropout(layer(y))), [T, H], of the dtype of `x`.

    Args:
        x: [T, H].
        y: The input of `layer`, [T, H or I].
        layer: A dense layer.
        layer_norm: See `add_and_norm`.
        dropout: A `Dropout`; it applies in training only.
        seed: Its `next_seed`.
        training: Whether to keep what the backward pass needs.
    """
    if not training:
        return layer_norm(x + layer(y))
    y = project(y, layer)
    return add_and_norm(x, y, layer.bias, layer_norm, dropout.rate, seed)


def add_and_norm(
    x, y, bias, layer_norm: keras.layers.LayerNormalization, rate: float, seed
):
    """Returns LayerNorm(x + dropout(y + bias)), [T, H], of the dtype of `x`.

    Autodiff would keep several tensors of size [T, H]; this keeps the normalized sum
    and the dropout mask.

    Args:
        x, y: [T, H].
        bias: [H], that of the dense layer that `project` applied.
        layer_norm: A built layer; its weights get gradients.
        rate, seed: See `dropout_mask`.
    """
    mask = dropout_mask(ops.shape(y), rate, seed)
    scale = 1 / (1 - rate)

    @custom_gradient
    def add_and_norm(x, y, bias, gamma, beta):
        output, normalized, inverse_deviation = _add_and_norm(
            x, y, bias, mask, gamma, beta, scale, layer_norm.epsilon
        )

        def gradient(d_output):
            delayed = delay_until(d_output, normalized)
            return _add_and_norm_gradient(
                delayed, inverse_deviation, mask, gamma, d_output, scale
            )

        return output, gradient

    return add_and_norm(x, y, bias, layer_norm.gamma, layer_norm.beta)


@xla_fused
def _add_and_norm(x, y, bias, mask, gamma, beta, scale, epsilon):
    """Returns the output, the normalized sum, and 1 / standard deviation [T, 1]."""
    total = _float32(x) + _drop(_float32(y) + _float32(bias), mask, scale)
    centered = total - ops.mean(total, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    inverse_deviation = ops.rsqrt(variance + epsilon)
    normalized = centered * inverse_deviation
    output = normalized * _float32(gamma) + _float32(beta)
    return ops.cast(output, x.dtype), ops.cast(normalized, x.dtype), inverse_deviation


@xla_fused
def _add_and_norm_gradient(normalized, inverse_deviation, mask, gamma, d_output, scale):
    """Returns the gradients w.r.t. x, y, bias, gamma and beta."""
    dtype = normalized.dtype
    normalized, d_output = _float32(normalized), _float32(d_output)
    d_gamma = ops.sum(d_output * normalized, axis=0)
    d_beta = ops.sum(d_output, axis=0)
    d_normalized = d_output * _float32(gamma)
    projection = ops.mean(d_normalized * normalized, axis=-1, keepdims=True)
    mean = ops.mean(d_normalized, axis=-1, keepdims=True)
    dx = inverse_deviation * (d_normalized - mean - projection * normalized)
    dy = _drop(dx, mask, scale)
    d_bias = ops.sum(dy, axis=0)
    return (
        *(ops.cast(tensor, dtype) for tensor in (dx, dy)),
        *(ops.cast(tensor, gamma.dtype) for tensor in (d_bias, d_gamma, d_beta)),
    )


def _drop(tensor, mask, scale):
    return tensor if mask is None else ops.where(mask, tensor * scale, 0.0)


# --- Activations -----------------------------------------------------------------


def _activation(value: Callable, derivative: Callable) -> Callable[[Any, Any], Any]:
    """Returns an activation of x + bias that keeps only x and bias for the gradient."""

    @xla_fused
    def forward(x, bias):
        return ops.cast(value(_float32(x) + _float32(bias)), x.dtype)

    @xla_fused
    def backward(x, bias, dy):
        x = _float32(x) + _float32(bias)
        return ops.cast(_float32(dy) * derivative(x), dy.dtype)

    @custom_gradient
    def activation(x, bias):
        def gradient(dy):
            dx = backward(delay_until(dy, x), bias, dy)
            return dx, _d_bias(dx, bias)

        return forward(x, bias), gradient

    return activation


_GELU_A = 2 * math.sqrt(2 / math.pi)
_GELU_B = _GELU_A * 0.044715


def _gelu_gate(x):
    # (1 + tanh(u)) / 2 = sigmoid(2 u); fewer passes over x than the usual form.
    return ops.sigmoid(x * (_GELU_A + _GELU_B * (x * x)))


def _gelu_tanh(x):
    return x * _gelu_gate(x)


def _gelu_tanh_derivative(x):
    gate = _gelu_gate(x)
    return gate + x * gate * (1.0 - gate) * (_GELU_A + 3 * _GELU_B * (x * x))


def _gelu_erf(x):
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _gelu_erf_derivative(x):
    density = ops.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 + 0.5 * ops.erf(x * math.sqrt(0.5)) + x * density


class Activation(NamedTuple):
    """An activation of `BertConfig`.

    Attributes:
        inference: A function of x. TensorFlow fuses it with the preceding matmul.
        training: The same of x + bias, see `_activation`.
    """

    inference: Callable[[Any], Any]
    training: Callable[[Any, Any], Any]


ACTIVATIONS: Mapping[str, Activation] = {
    "gelu_tanh": Activation(
        functools.partial(keras.activations.gelu, approximate=True),
        _activation(_gelu_tanh, _gelu_tanh_derivative),
    ),
    "gelu_erf": Activation(
        functools.partial(keras.activations.gelu, approximate=False),
        _activation(_gelu_erf, _gelu_erf_derivative),
    ),
    "relu": Activation(
        keras.activations.relu,
        _activation(ops.relu, lambda x: ops.cast(x > 0, x.dtype)),
    ),
}


def dense_and_activation(x, layer: keras.layers.Dense, activation: str, training: bool):
    """Applies a dense layer and an activation of `BertConfig`: [T, H] -> [T, I]."""
    functions = ACTIVATIONS[activation]
    if not training:
        return functions.inference(layer(x))
    return functions.training(project(x, layer), layer.bias)
