# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a training step, and what the machine could do at best.

Their ratio is the share of peak, also called MFU. The peak is measured, not looked up:
that of a matrix multiplication of the model's own shape and precision.
"""

from __future__ import annotations

import math
import time

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertConfig

tf = lazy_import("tensorflow")

_REPEATS = 10
_OPERATIONS = 2e9  # At a time, at least; so many that calls cost nothing beside them.
_MAX_TOKENS = 4096  # Rows of the measured matrix; more would not be faster.


def training_step(
    architecture: BertConfig, *, rows: int, length: int, predictions: int
) -> float:
    """Returns the floating-point operations of one pre-training step.

    Multiplications and additions of all matrix products: forward once, backward twice.
    Padding counts, as it is computed; what is computed twice to save memory does not.

    Args:
        architecture: Of the encoder.
        rows: Sequences, or packed rows, in the step.
        length: Tokens in a row.
        predictions: Masked tokens in a row.
    """
    hidden = architecture.hidden_dim
    dense = (4 * hidden + 2 * architecture.intermediate_dim) * hidden
    attention = 2 * length * hidden
    encoder = length * architecture.num_layers * (dense + attention)
    head = predictions * hidden * (hidden + architecture.vocabulary_size)
    return 3.0 * 2 * rows * (encoder + head)


def peak(architecture: BertConfig, tokens: int, dtype: str) -> float:
    """Measures a feed-forward layer's multiplications, in operations per second.

    Args:
        architecture: Gives the shapes of the layer.
        tokens: Rows of the matrix, at most 4,096.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.
    """
    tokens = min(tokens, _MAX_TOKENS)
    hidden, inner = architecture.hidden_dim, architecture.intermediate_dim
    operations = 2 * 2.0 * tokens * hidden * inner  # Of one layer.
    layers = math.ceil(_OPERATIONS / operations)

    def matrix(rows: int, columns: int):
        return tf.cast(tf.random.normal((rows, columns)) / rows**0.5, dtype)

    @tf.function(autograph=False)
    def multiply(x, into, out):
        for _ in range(layers):
            x = tf.matmul(tf.matmul(x, into), out)
        return x[0, 0]

    matrices = matrix(tokens, hidden), matrix(hidden, inner), matrix(inner, hidden)
    multiply(*matrices).numpy()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        multiply(*matrices).numpy()  # Waits for the device.
        seconds.append(time.perf_counter() - start)
    return layers * operations / min(seconds)
