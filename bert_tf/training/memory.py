# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""How much memory a training takes, and how many rows at a time fit into what is there.

The estimate has the form of arXiv 2205.05198, section 4.1, with the factors that fit
what training steps of this model were seen to take with TensorFlow 2.21 in float32
(`benchmarks.training_memory`: tiny, mini, medium; 128 and 512 tokens, with dropout).
"""

from __future__ import annotations

import os
import resource
import sys

import tensorflow as tf
from tensorflow.python.client import device_lib

from bert_tf.modeling import BertConfig

# Tensors of a row: of each layer so many [S, H] and [N, S, S] wait for the backward
# pass, fewer [S, H] of a layer that is recomputed. A layer at work needs more, and the
# masked LM so many [P, V].
_LAYER_TENSORS, _SCORE_TENSORS = 19.7, 1.0
_RECOMPUTED_LAYER_TENSORS = 2.9
_WORKING_SCORE_TENSORS = 2.0
_LOGIT_TENSORS = 6.4
_COPIES_OF_WEIGHTS = 5  # Weights, two moments, gradients before and after clipping.
_RESERVE = 1.2  # What allocators lose, and what the form above does not know.


def row_bytes(
    architecture: BertConfig, *, length: int, predictions: int, recompute: bool
) -> float:
    """Estimates the bytes that a row of a batch needs during a training step.

    Args:
        architecture: Of the encoder.
        length: Tokens in a row.
        predictions: Masked tokens in a row.
        recompute: Whether only the inputs of layers are kept (see `EncoderLayer`).
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


def fitting_rows(rows: int, *, bytes_per_row: float, weights: int, free: float) -> int:
    """Returns the most rows, a divisor of `rows`, that fit into memory at once.

    Args:
        rows: Rows of a step on one replica.
        bytes_per_row: As `row_bytes` says.
        weights: Number of weights of the model.
        free: Bytes that the replica may use.

    Raises:
        ValueError: Not even one fits.
    """
    room = free / _RESERVE - 4 * _COPIES_OF_WEIGHTS * weights
    for divisor in range(1, rows + 1):
        if rows % divisor == 0 and rows // divisor * bytes_per_row <= room:
            return rows // divisor
    raise ValueError(
        f"The weights need {4e-9 * _COPIES_OF_WEIGHTS * weights:.1f} GB and a row "
        f"{1e-9 * bytes_per_row:.1f} GB more, by estimate, and {1e-9 * free:.1f} GB "
        "are free: a smaller --size, shorter --records or --recompute may fit."
    )


def free_memory(replicas: int) -> float:
    """Returns the bytes for each replica: of its GPU, or its share of this machine's.

    Args:
        replicas: Replicas on this machine, for those that share its memory.
    """
    for device in device_lib.list_local_devices():
        if device.device_type == "GPU":
            return device.memory_limit
    available = _kernel_says("/proc/meminfo", "MemAvailable")
    if available:
        return available / replicas
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 / replicas


def peak_memory() -> int:
    """Returns the most bytes in use so far: of the first GPU, else of the process."""
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    # getrusage has the peak of the process that started this one, too.
    peak = _kernel_says("/proc/self/status", "VmHWM")
    if peak:
        return peak
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


def _kernel_says(path: str, name: str) -> int:
    """Returns a number of bytes that Linux knows, 0 on other systems."""
    if not os.path.exists(path):
        return 0
    with open(path, encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return 1024 * int(lines[name].split()[0])
