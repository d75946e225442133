# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Estimates of the arithmetic and the memory of a training step.

The share of peak, also called model FLOPs utilization (MFU), is the arithmetic of a
step divided by what the machine could compute in the same time. This peak is measured
with matmuls of the model's shapes and precision.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time

import keras
import tensorflow as tf
from keras import ops
from tensorflow.python.client import device_lib

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertConfig

# --- Arithmetic ------------------------------------------------------------------

_REPETITIONS = 10
_MIN_FLOPS = 2e9  # Per measurement, so that the overhead of the call is negligible.
_MAX_TOKENS = 4096  # Larger matrices are not faster.


def step_flops(
    architecture: BertConfig, *, rows: int, length: int, predictions: int
) -> float:
    """Returns the floating-point operations of one pre-training step.

    Counts the multiplications and additions of all matmuls; the backward pass takes
    twice as many as the forward pass. Padding counts, recomputation does not.

    Args:
        architecture: The architecture of the encoder.
        rows: Sequences, or packed rows, per step.
        length: Tokens per row.
        predictions: Masked tokens per row.
    """
    hidden = architecture.hidden_dim
    dense = (4 * hidden + 2 * architecture.intermediate_dim) * hidden
    attention = 2 * length * hidden
    encoder = length * architecture.num_layers * (dense + attention)
    head = predictions * hidden * (hidden + architecture.vocabulary_size)
    return 3.0 * 2 * rows * (encoder + head)


def measure_peak(architecture: BertConfig, tokens: int, dtype: str) -> float:
    """Measures the FLOP/s of the matmuls of a feed-forward layer.

    Args:
        architecture: Defines the shapes of the layer.
        tokens: Rows of the input matrix. At most 4,096 are used.
        dtype: `"float32"`, `"bfloat16"` or `"float16"`.
    """
    tokens = min(tokens, _MAX_TOKENS)
    hidden, inner = architecture.hidden_dim, architecture.intermediate_dim
    layer_flops = 2 * 2.0 * tokens * hidden * inner
    layers = math.ceil(_MIN_FLOPS / layer_flops)

    def matrix(rows: int, columns: int):
        return ops.cast(keras.random.normal((rows, columns)) / rows**0.5, dtype)

    def multiply(x, intermediate, output):
        def layer(_, x):
            return ops.matmul(ops.matmul(x, intermediate), output)

        return ops.cast(ops.fori_loop(0, layers, layer, x)[0, 0], "float32")

    matrices = matrix(tokens, hidden), matrix(hidden, inner), matrix(inner, hidden)
    if keras.backend.backend() == "jax":
        multiply = lazy_import("jax").jit(multiply)
    else:
        multiply = tf.function(multiply, autograph=False)
    float(multiply(*matrices))  # Traces the function.
    seconds = []
    for _ in range(_REPETITIONS):
        start = time.perf_counter()
        float(multiply(*matrices))  # Waits for the device.
        seconds.append(time.perf_counter() - start)
    return layers * layer_flops / min(seconds)


# --- Memory ----------------------------------------------------------------------

# The estimate has the form of arXiv 2205.05198, section 4.1. Its factors are fitted to
# measurements with TensorFlow 2.21 in float32 and dropout
# (`benchmarks.training_memory`: tiny, mini, medium; 128 and 512 tokens).
#
# Numbers of tensors per row of a batch:
_LAYER_TENSORS, _SCORE_TENSORS = 19.7, 1.0  # [S, H] and [N, S, S] kept per layer.
_RECOMPUTED_LAYER_TENSORS = 2.9  # [S, H] kept per recomputed layer.
_WORKING_SCORE_TENSORS = 2.0  # Additional [N, S, S] of the layer being computed.
_LOGIT_TENSORS = 6.4  # [P, V] of the masked LM head.
_COPIES_OF_WEIGHTS = 5  # Weights, two moments, gradients before and after clipping.
_RESERVE = 1.2  # For fragmentation and the error of the estimate.


def row_bytes(
    architecture: BertConfig, *, length: int, predictions: int, recompute: bool
) -> float:
    """Estimates the bytes that one row of a batch needs during a training step.

    Args:
        architecture: The architecture of the encoder.
        length: Tokens per row.
        predictions: Masked tokens per row.
        recompute: Whether the backward pass recomputes the encoder layers.
    """
    vectors = length * architecture.hidden_dim
    scores = architecture.num_heads * length**2
    layer = _LAYER_TENSORS * vectors + _SCORE_TENSORS * scores
    working = _WORKING_SCORE_TENSORS * scores
    logits = _LOGIT_TENSORS * predictions * architecture.vocabulary_size
    if recompute:
        kept = _RECOMPUTED_LAYER_TENSORS * vectors
        return 4 * (architecture.num_layers * kept + max(layer + working, logits))
    return 4 * (architecture.num_layers * layer + working + logits)


def max_rows(rows: int, *, bytes_per_row: float, weights: int, free: float) -> int:
    """Returns the largest divisor of `rows` that fits into memory as a micro-batch.

    Args:
        rows: Rows per step on one replica.
        bytes_per_row: The result of `row_bytes`.
        weights: Number of weights of the model.
        free: Bytes available to the replica.

    Raises:
        ValueError: A single row does not fit.
    """
    available = free / _RESERVE - 4 * _COPIES_OF_WEIGHTS * weights
    for divisor in range(1, rows + 1):
        if rows % divisor == 0 and rows // divisor * bytes_per_row <= available:
            return rows // divisor
    raise ValueError(
        "Not enough memory: by estimate, the weights need "
        f"{4e-9 * _COPIES_OF_WEIGHTS * weights:.1f} GB and one row "
        f"{1e-9 * bytes_per_row:.1f} GB, but {1e-9 * free:.1f} GB are free. Use a "
        "smaller --size, shorter --records or --recompute."
    )


def free_memory(replicas: int) -> float:
    """Returns the bytes available to a replica: its GPU, or its share of the RAM.

    Args:
        replicas: The number of replicas on this machine.
    """
    for device in device_lib.list_local_devices():
        if device.device_type == "GPU":
            return device.memory_limit
    available = _read_proc("/proc/meminfo", "MemAvailable")
    if available:
        return available / replicas
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 / replicas


def peak_memory() -> int:
    """Returns the peak memory in bytes: of the first GPU, else of this process."""
    if keras.backend.backend() == "jax":
        statistics = lazy_import("jax").local_devices()[0].memory_stats()
        if statistics:  # None on CPUs.
            return statistics["peak_bytes_in_use"]
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    # On Linux, getrusage may return the peak of the parent process instead.
    peak = _read_proc("/proc/self/status", "VmHWM")
    if peak:
        return peak
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def _read_proc(path: str, name: str) -> int:
    """Returns a number of bytes from a file of Linux' /proc; 0 on other systems."""
    if not os.path.exists(path):
        return 0
    with open(path, encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return 1024 * int(lines[name].split()[0])
