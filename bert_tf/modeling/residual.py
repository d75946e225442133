# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dropout, residual and LayerNorm of training, LayerNorm(x + dropout(y)), at once.

Between the two passes differentiation of its parts keeps several tensors as large as
the hidden states. The gradient follows from the normalised sum and from what dropout
kept.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import fusion, gradients
from bert_tf.modeling.dropout import draw_kept
from bert_tf.modeling.fusion import float32


def add_and_norm(
    x,
    y,
    layer_norm: keras.layers.LayerNormalization,
    *,
    dropout: float = 0.0,
    seed: keras.random.SeedGenerator | None = None,
):
    """Returns LayerNorm(x + dropout(y)), [T, H], of the type of `x`.

    Args:
        x, y: [T, H].
        layer_norm: Has the weights, and is built.
        dropout: Share of the numbers of `y` that are set to 0.
        seed: For them.
    """
    kept = draw_kept(ops.shape(y), dropout, seed) if dropout else None
    scale = 1 / (1 - dropout)

    @gradients.with_gradient
    def joined(x, y, gamma, beta):
        inputs = (x, y, kept, gamma, beta, scale, layer_norm.epsilon)
        output, normalised, inverse = _forward(*inputs)

        def gradient(of_output):
            later = gradients.after(of_output, normalised)
            return _backward(later, inverse, kept, gamma, of_output, scale)

        return output, gradient

    return joined(x, y, layer_norm.gamma, layer_norm.beta)


@fusion.fused
def _forward(x, y, kept, gamma, beta, scale, epsilon):
    """LayerNorm, the sum normalised, and one over its standard deviation [T, 1]."""
    total = float32(x) + _dropped(float32(y), kept, scale)
    centred = total - ops.mean(total, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    normalised = centred * inverse
    output = normalised * float32(gamma) + float32(beta)
    return ops.cast(output, x.dtype), ops.cast(normalised, x.dtype), inverse


@fusion.fused
def _backward(normalised, inverse, kept, gamma, of_output, scale):
    """The gradients of x, y, gamma and beta."""
    low = normalised.dtype
    normalised, of_output = float32(normalised), float32(of_output)
    of_gamma = ops.sum(of_output * normalised, axis=0)
    of_beta = ops.sum(of_output, axis=0)
    of_normalised = of_output * float32(gamma)
    along = ops.mean(of_normalised * normalised, axis=-1, keepdims=True)
    mean = ops.mean(of_normalised, axis=-1, keepdims=True)
    of_total = inverse * (of_normalised - mean - along * normalised)
    of_y = _dropped(of_total, kept, scale)
    return (
        *(ops.cast(tensor, low) for tensor in (of_total, of_y)),
        *(ops.cast(tensor, gamma.dtype) for tensor in (of_gamma, of_beta)),
    )


def _dropped(tensor, kept, scale):
    return tensor if kept is None else ops.where(kept, tensor * scale, 0.0)
