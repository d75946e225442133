# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense layers that multiply int8 by int8.

Weights have one scale per column, activations one per row, computed for each request.
So the answer for a text does not depend on the other texts of its batch. The op exists
only in TensorFlow builds with oneDNN, and is exact only on CPUs with VNNI; elsewhere
each request fails, also those of the warm-up, so that servers do not load the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf


def require_int8() -> None:
    """Raises ValueError if int8 models do not run on this machine."""
    try:
        tf.function(check_int8, autograph=False)(1)
    except tf.errors.OpError as error:
        raise ValueError(
            "int8 models need an x86 CPU with VNNI, and TensorFlow with oneDNN: do "
            "not set TF_ENABLE_ONEDNN_OPTS=0. Export on another machine, or with "
            "another --precision."
        ) from error


def check_int8(rows: tf.Tensor) -> tf.Tensor:
    """Returns `rows` if a matmul of the largest integers is exact.

    It overflows on CPUs without VNNI. As `rows` is a part of it, TensorFlow does not
    try to fold it.
    """
    kernel = np.full([64, 16], 127, np.int8)
    x = tf.cast(tf.fill([rows, 64], 255), tf.uint8)
    products = _int8_matmul(x, kernel, np.zeros(16, np.int32))
    is_exact = tf.reduce_all(tf.equal(products, 64 * 255 * 127))
    message = "int8 models need a CPU with VNNI. Export with another precision."
    with tf.control_dependencies([tf.debugging.Assert(is_exact, [message])]):
        return tf.identity(rows)


def quantize(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 values and float32 scales: `values` is about their product."""
    scales = np.abs(values).max(axis=axis, keepdims=True) / np.float32(127)
    scales = np.maximum(scales, np.float32(1e-30))  # Zeros stay zeros.
    return np.rint(values / scales).astype(np.int8), scales


def int8_dense(
    kernel: np.ndarray, bias: np.ndarray
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a dense layer in int8."""
    kernel, column_scales = quantize(kernel, axis=0)
    # The op takes unsigned inputs, so 128 is added to them.
    offset = -128 * kernel.sum(axis=0, dtype=np.int32)

    # A `tf.function`, so that all its calls share one copy of the kernel.
    @tf.function(
        input_signature=[tf.TensorSpec([None, len(kernel)], tf.float32)],
        autograph=False,
    )
    def dense(x: tf.Tensor) -> tf.Tensor:
        largest = tf.reduce_max(tf.abs(x), axis=1, keepdims=True)
        x *= tf.math.divide_no_nan(np.float32(127), largest)
        x = tf.cast(x + np.float32(128.5), tf.uint8)  # Rounds half up.
        y = _int8_matmul(x, kernel, offset) * largest
        return y * (column_scales / np.float32(127)) + bias

    return dense


def _int8_matmul(x: tf.Tensor, kernel: np.ndarray, bias: np.ndarray) -> tf.Tensor:
    """Returns `x @ kernel + bias` for uint8 and int8, exact, as float32.

    TensorFlow replaces the op by one of oneDNN. Without it, the op has no outputs,
    which is an error.
    """
    return tf.raw_ops.QuantizedMatMulWithBiasAndDequantize(
        a=tf.bitcast(x, tf.quint8),
        b=tf.constant(kernel, tf.qint8),  # oneDNN caches the layout of constants.
        bias=tf.constant(bias, tf.qint32),
        # These ranges are those of the integers, so that all scales are 1.
        min_a=0.0,
        max_a=255.0,
        min_b=-127.0,
        max_b=127.0,
        min_freezed_output=0.0,  # Not used.
        max_freezed_output=1.0,
        Toutput=tf.float32,
        input_quant_mode="SCALED",
    )
