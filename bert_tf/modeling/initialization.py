# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights for short trainings.

A BERT with random weights predicts little more than frequent tokens until its attention
has learned which positions are close. `initialize_local_attention` starts there, in the
way of mimetic initialization (arXiv 2305.09828): position embeddings are sinusoids
(arXiv 1706.03762), whose products are largest for close positions, and the product of
query and key matrices is close to a multiple of a projection. The architecture and the
checkpoint formats do not change.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling.backbone import BertBackbone

# Found by experiment: the standard deviation of the positions relative to that of the
# other embeddings, and the norm of the rows that query and key matrix share.
_POSITION_SCALE = 4.0
_QUERY_KEY_SCALE = 0.7


def initialize_local_attention(backbone: BertBackbone, seed: int = 0) -> None:
    """Replaces the random weights of a new encoder.

    - Position embeddings become sinusoids with four times the standard deviation of
      the other embeddings.
    - Matrices of the encoder layers are rescaled, to a standard deviation of about
      H^-0.5 instead of `initializer_range`.
    - In each layer, 0.7 times a random orthogonal matrix [H, H] is added to the query
      and to the key matrix.

    Args:
        backbone: An encoder with newly initialized weights.
        seed: Seed of the orthogonal matrices.
    """
    config = backbone.config
    positions = _sinusoids(config.max_sequence_length, config.hidden_dim)
    stddev = _POSITION_SCALE * config.initializer_range
    backbone.embeddings.position_embedding.embeddings.assign(
        positions * (stddev / ops.std(positions))
    )
    scale = config.hidden_dim**-0.5 / config.initializer_range
    for i, layer in enumerate(backbone.encoder_layers):
        orthogonal = keras.initializers.Orthogonal(_QUERY_KEY_SCALE, seed=seed + i)
        shared = orthogonal(layer.query.kernel.shape)
        for dense in (layer.query, layer.key):
            dense.kernel.assign(dense.kernel * scale + shared)
        for dense in (
            layer.value,
            layer.attention_output,
            layer.intermediate,
            layer.output_dense,
        ):
            dense.kernel.assign(dense.kernel * scale)


def _sinusoids(length: int, width: int) -> keras.KerasTensor:
    """Returns the position encoding of arXiv 1706.03762, [length, width] float32."""
    columns = ops.arange(width)
    exponents = ops.cast(columns // 2 * 2, "float32") / width
    positions = ops.arange(length, dtype="float32")[:, None]
    angles = positions / 10_000.0**exponents
    return ops.where(columns % 2 == 1, ops.cos(angles), ops.sin(angles))
