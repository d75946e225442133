# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights for short trainings, from the text that the model will be trained on.

Letters: V vocabulary, C contexts, H hidden.
"""

from __future__ import annotations

import os

import keras
import numpy as np

from bert_tf.data import read_token_ids
from bert_tf.modeling import BertBackbone, BertPretrainer

# Contexts are the most frequent tokens at these distances, with these weights.
_CONTEXTS = 2048
_DISTANCES = {1: 1.0, 2: 0.75, 3: 0.5, 4: 0.25}
# The power of context counts, which makes rare contexts count less (arXiv 1301.3781).
_SMOOTHING = 0.75
_POWER_ITERATIONS = 2

# Found by experiment: the standard deviation of the positions relative to that of the
# other embeddings, and the norm of the rows that query and key matrix share.
_POSITION_SCALE = 4.0
_QUERY_KEY_SCALE = 0.7


def initialize_from_corpus(
    model: BertPretrainer, records: str | os.PathLike, seed: int = 0
) -> None:
    """Replaces the random weights of a new model, see the functions of this module.

    Args:
        model: A new model.
        records: The records that it will be trained on.
        seed: Seed of the orthogonal matrices and of the randomized SVD.
    """
    initialize_local_attention(model.backbone, seed)
    initialize_from_counts(model, read_token_ids(records), seed)


# --- Attention to neighbors ------------------------------------------------------


def initialize_local_attention(backbone: BertBackbone, seed: int = 0) -> None:
    """Replaces the random weights of a new encoder, for short trainings.

    A BERT with random weights predicts little more than frequent tokens until its
    attention has learned which positions are close. These weights start there, in the
    way of mimetic initialization (arXiv 2305.09828): position embeddings are sinusoids
    (arXiv 1706.03762), whose products are largest for close positions, and the product
    of query and key matrices is close to a multiple of a projection.

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
    columns = np.arange(config.hidden_dim)
    frequencies = 10_000.0 ** -(columns // 2 * 2 / config.hidden_dim)
    angles = np.arange(config.max_sequence_length)[:, np.newaxis] * frequencies
    sinusoids = np.where(columns % 2, np.cos(angles), np.sin(angles))
    stddev = _POSITION_SCALE * config.initializer_range
    backbone.embeddings.position_embedding.embeddings.assign(
        sinusoids * (stddev / sinusoids.std())
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


# --- Counts of tokens -------------------------------------------------------------


def initialize_from_counts(
    model: BertPretrainer, token_ids: np.ndarray, seed: int = 0
) -> None:
    """Initializes token embeddings and output biases by the counts of tokens.

    A BERT with random embeddings first learns how frequent tokens are, and then which
    tokens are alike. Counting finds both without gradients:

    - The biases of masked LM become the logarithms of the tokens' relative frequencies.
    - Token embeddings become the left singular vectors, times the roots of the singular
      values, of the positive pointwise mutual information of tokens and their neighbors
      (Levy and Goldberg, 2014). Each row is scaled to the norm of a random row. Tokens
      without neighbors in the text keep their random embeddings.

    Args:
        model: A new model.
        token_ids: Rows of text [R, S] int32, 0 at padding.
        seed: Seed of the randomized singular value decomposition (arXiv 0909.4061).
    """
    config = model.backbone.config
    counts = np.bincount(token_ids.ravel(), minlength=config.vocabulary_size)
    counts[0] = 0
    model.mlm_head.bias.assign(np.log((counts + 1) / (counts + 1).sum()))

    table = model.backbone.embeddings.token_embedding.embeddings
    information = _mutual_information(token_ids, counts)
    vectors = _left_factors(information, config.hidden_dim, seed)
    known = information.any(axis=1)
    norms = np.linalg.norm(vectors[known], axis=1, keepdims=True)
    norm = config.initializer_range * config.hidden_dim**0.5
    values = np.array(keras.ops.convert_to_numpy(table))
    values[known] = vectors[known] * (norm / norms)
    table.assign(values)


def _mutual_information(token_ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns max(0, log p(token, context) / (p(token) p(context))), [V, C] float32."""
    contexts = np.argsort(-counts, kind="stable")[:_CONTEXTS]
    columns = np.full(len(counts), -1)
    columns[contexts] = np.arange(len(contexts))
    pairs = np.zeros(len(counts) * len(contexts), np.float32)
    for distance, weight in _DISTANCES.items():
        left, right = token_ids[:, :-distance].ravel(), token_ids[:, distance:].ravel()
        for tokens, neighbors in ((left, right), (right, left)):
            column = columns[neighbors]
            known = (tokens > 0) & (neighbors > 0) & (column >= 0)
            cells = tokens[known] * np.int64(len(contexts)) + column[known]
            np.add.at(pairs, cells, np.float32(weight))
    pairs = pairs.reshape(len(counts), len(contexts))
    rows = pairs.sum(1, keepdims=True)
    shares = pairs.sum(0) ** _SMOOTHING
    shares /= shares.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(pairs / rows / shares)
    return np.where(pairs > 0, np.maximum(information, 0), 0)


def _left_factors(matrix: np.ndarray, rank: int, seed: int) -> np.ndarray:
    """Returns U sqrt(S) of the largest singular values, [V, rank], filled with 0."""
    rng = np.random.default_rng(seed)
    width = min(rank + 32, *matrix.shape)
    basis = rng.standard_normal((matrix.shape[1], width), dtype=np.float32)
    for _ in range(_POWER_ITERATIONS):
        basis, _ = np.linalg.qr(matrix @ basis)
        basis, _ = np.linalg.qr(matrix.T @ basis)
    left, values, _ = np.linalg.svd(matrix @ basis, full_matrices=False)
    factors = (left * np.sqrt(values))[:, :rank]
    return np.pad(factors, [(0, 0), (0, rank - factors.shape[1])])
