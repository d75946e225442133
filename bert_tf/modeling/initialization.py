# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights with which attention begins at neighboring tokens.

A BERT with random weights predicts little more than frequent tokens until its attention
has learned which positions are close. `initialize_local_attention` starts there, in the
way of mimetic initialization (arXiv 2305.09828): position embeddings are sinusoids
(arXiv 1706.03762), whose products are largest for close positions, and the product of
query and key matrices is close to a multiple of a projection. The architecture and the
checkpoint formats do not change.
"""

from __future__ import annotations

import numpy as np

from bert_tf.modeling.bert import BertBackbone

# Found by experiment: the standard deviation of the positions relative to that of the
# other embeddings, and the norm of the rows that query and key matrix share.
_POSITION_SCALE = 4.0
_QUERY_KEY_SCALE = 0.7


def initialize_local_attention(backbone: BertBackbone, seed: int = 0) -> None:
    """Replaces the random weights of a new encoder.

    - Position embeddings become sinusoids with four times the standard deviation of
      the other embeddings.
    - Matrices of the encoder layers are rescaled to a standard deviation of H^-0.5.
    - In each layer, 0.7 times a random orthogonal matrix [H, H] is added to the query
      and to the key matrix.

    Args:
        backbone: An encoder with newly initialized weights.
        seed: Seed of the orthogonal matrices.
    """
    config, rng = backbone.config, np.random.default_rng(seed)
    positions = _sinusoids(config.max_sequence_length, config.hidden_dim)
    stddev = _POSITION_SCALE * config.initializer_range
    backbone.embeddings.position_embedding.embeddings.assign(
        positions * (stddev / positions.std())
    )
    scale = config.hidden_dim**-0.5 / config.initializer_range
    for layer in backbone.encoder_layers:
        shape = (config.hidden_dim, config.hidden_dim)
        shared, _ = np.linalg.qr(rng.normal(size=shape))
        for dense in (layer.query, layer.key):
            dense.kernel.assign(dense.kernel * scale + _QUERY_KEY_SCALE * shared)
        for dense in (
            layer.value,
            layer.attention_output,
            layer.intermediate,
            layer.output_dense,
        ):
            dense.kernel.assign(dense.kernel * scale)


def _sinusoids(length: int, width: int) -> np.ndarray:
    """Returns the position encoding of arXiv 1706.03762, [length, width] float64."""
    columns = np.arange(width)
    frequencies = 10_000.0 ** -(columns // 2 * 2 / width)
    angles = np.arange(length)[:, np.newaxis] * frequencies
    return np.where(columns % 2, np.cos(angles), np.sin(angles))
