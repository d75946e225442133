# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Elementwise arithmetic of training in one pass over memory.

On CPUs TensorFlow goes through memory once for each operation, and XLA once for a whole
expression; matrix products are better left to TensorFlow, whose oneDNN is faster at
them. So only what stands between the products is compiled here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function`, of tensors and constants, compiled by XLA where that pays.

    That is in TensorFlow's graphs, on CPUs, for tensors whose shapes are known: each
    new shape would be compiled anew. It is for functions that `gradients.with_gradient`
    makes use of: differentiated itself, it would keep all that it computes.
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    compiled = tf.function(function, jit_compile=True, autograph=False)

    @functools.wraps(function)
    def wrapped(*inputs):
        shapes = [value.shape for value in inputs if tf.is_tensor(value)]
        pays = (
            on_cpu()
            and not tf.executing_eagerly()
            and all(shape.is_fully_defined() for shape in shapes)
        )
        return (compiled if pays else function)(*inputs)

    return wrapped


def float32(tensor):
    """The tensor in float32, in which fused functions compute whatever comes in."""
    return ops.cast(tensor, "float32")


@functools.cache
def on_cpu() -> bool:
    """Whether TensorFlow computes here, and on nothing but CPUs.

    A TPU compiles the whole step; on GPUs XLA needs parts of CUDA that a machine may
    lack.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    return not any(keras.distribution.list_devices(kind) for kind in ("gpu", "tpu"))
