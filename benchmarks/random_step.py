# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random batches of pre-training, and the arithmetic of a step."""

from __future__ import annotations

import math

import numpy as np

from bert_tf.modeling import BertConfig

VOCABULARY_SIZE = 30_522


def predictions(length: int) -> int:
    """Returns the number of predicted tokens of a row, 15 %."""
    return math.ceil(length * 15 / 100)


def random_batch(rows: int, length: int, vocabulary_size: int = VOCABULARY_SIZE):
    """Returns `(x, y, sample_weight)` of rows with one pair each and no padding."""
    generator = np.random.default_rng(0)
    shape, count = (rows, length), predictions(length)
    ids = generator.integers(0, vocabulary_size, shape, dtype="int32")
    x = {
        "token_ids": ids,
        "segment_ids": np.zeros(shape, "int32"),
        "padding_mask": np.ones(shape, "int32"),
        "mask_positions": np.tile(np.arange(count, dtype="int32"), (rows, 1)),
        "first_positions": np.zeros((rows, 1), "int32"),
    }
    y = {"mlm": ids[:, :count], "nsp": np.zeros((rows, 1), "int32")}
    weights = {k: np.full(v.shape, 1 / v.size, "float32") for k, v in y.items()}
    return x, y, weights


def step_flops(bert: BertConfig, rows: int, length: int) -> float:
    """Returns the floating-point operations of one pre-training step.

    Counts the multiplications and additions of all matmuls; the backward pass takes
    twice as many as the forward pass. Padding counts, recomputation does not.

    Args:
        bert: The architecture of the encoder.
        rows: Sequences, or packed rows, per step.
        length: Tokens per row, 15 % of them masked.
    """
    hidden = bert.hidden_dim
    dense = (4 * hidden + 2 * bert.intermediate_dim) * hidden
    attention = 2 * length * hidden
    encoder = length * bert.num_layers * (dense + attention)
    head = predictions(length) * hidden * (hidden + bert.vocabulary_size)
    return 3.0 * 2 * rows * (encoder + head)
