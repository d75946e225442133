# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a training step, and what the machine could do at best.

Their ratio is the share of peak, also called MFU. The peak is measured, not looked up:
that of a matrix multiplication of the model's own shape and precision.
"""

from __future__ import annotations

import statistics
import time

from bert_tf.config import BertConfig
from bert_tf.lazy import tf

_REPEATS = 10
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
    """Measures a feed-forward layer's multiplication, in operations per second.

    Args:
        architecture: Gives the shape of the layer.
        tokens: Rows of the matrix, at most 4,096.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.
    """
    tokens = min(tokens, _MAX_TOKENS)
    hidden, inner = architecture.hidden_dim, architecture.intermediate_dim
    a = tf.cast(tf.random.normal((tokens, hidden)), dtype)
    b = tf.cast(tf.random.normal((hidden, inner)), dtype)
    multiply = tf.function(tf.matmul)
    multiply(a, b).numpy()
    seconds = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        multiply(a, b)[0, 0].numpy()  # Waits for the device.
        seconds.append(time.perf_counter() - start)
    return 2.0 * tokens * hidden * inner / statistics.median(seconds)
