# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The activations of the feed-forward layers, for inference and for training.

Between the two passes of training, differentiation of GELU's parts keeps several
tensors as large as its input, which is four times as wide as the encoder. Its gradient
follows from the input alone. Both are computed in float32, in one pass where that pays.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from bert_tf.modeling import fusion, gradients

_A = 2 * math.sqrt(2 / math.pi)
_B = _A * 0.044715


def _gate(x):
    return ops.sigmoid(x * (_A + _B * (x * x)))


def _gelu_tanh(x):
    # As 1 + tanh(u) = 2 sigmoid(2 u); fewer passes over x than in the usual form.
    return x * _gate(x)


def _slope_tanh(x):
    gate = _gate(x)
    return gate + x * gate * (1.0 - gate) * (_A + 3 * _B * (x * x))


def _gelu_erf(x):
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


def _slope_erf(x):
    density = ops.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 + 0.5 * ops.erf(x * math.sqrt(0.5)) + x * density


def _with_slope(function: Callable, slope: Callable) -> Callable:
    """Returns `function` of a tensor, with a gradient that keeps only the tensor."""

    @fusion.fused
    def value(x):
        return ops.cast(function(fusion.float32(x)), x.dtype)

    @fusion.fused
    def gradient(x, of_y):
        of_x = fusion.float32(of_y) * slope(fusion.float32(x))
        return ops.cast(of_x, x.dtype)

    @gradients.with_gradient
    def wrapped(x):
        return value(x), lambda of_y: gradient(gradients.after(of_y, x), of_y)

    return wrapped


# Forms whose nodes TensorFlow joins with the matrix product before them.
INFERENCE: dict[str, Callable[[Any], Any]] = {
    "gelu_tanh": functools.partial(keras.activations.gelu, approximate=True),
    "gelu_erf": functools.partial(keras.activations.gelu, approximate=False),
    "relu": keras.activations.relu,
}

# The same functions, up to rounding, with gradients that keep little.
TRAINING: dict[str, Callable[[Any], Any]] = INFERENCE | {
    "gelu_tanh": _with_slope(_gelu_tanh, _slope_tanh),
    "gelu_erf": _with_slope(_gelu_erf, _slope_erf),
}
