# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Functions with gradients of their own, which keep little between the two passes.

Differentiation keeps what each part of a function needs. Where the gradient follows
from less, it is better to compute the rest again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def with_gradient(function: Callable[..., tuple[Any, Callable]]) -> Callable[..., Any]:
    """Returns the function of tensors that `function` says.

    Args:
        function: Takes tensors and returns a tensor and, of its gradient (called
            upstream), the function that gives those of the tensors taken. What is
            returned takes variables as well.
    """

    @ops.custom_gradient
    def wrapped(*inputs):
        output, of_inputs = function(*inputs)

        def gradient(*arguments, upstream=None):
            if upstream is None:  # Backends differ in how they call it.
                (upstream,) = arguments
            return of_inputs(upstream)

        return output, gradient

    @functools.wraps(function)
    def of_values(*inputs):
        return wrapped(*(_value(tensor) for tensor in inputs))

    return of_values


def _value(tensor):
    """The tensor, or that of a variable."""
    tensor = ops.convert_to_tensor(tensor)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # Outside of graphs Keras returns TensorFlow's variable.
        tensor = tf.convert_to_tensor(tensor)
    return tensor


def after(upstream, tensor):
    """Returns `tensor`, in graphs of TensorFlow not before `upstream` is there.

    There what depends on tensors of the forward pass alone would be computed as soon
    as these are there, and kept.
    """
    if keras.backend.backend() != "tensorflow":
        return tensor
    import tensorflow as tf

    with tf.control_dependencies([upstream]):
        return tf.identity(tensor)
