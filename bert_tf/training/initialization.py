# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Initial weights for short trainings: a bigram model of the text, by counting.

A BERT with random weights learns for millions of tokens what counts of neighboring
tokens show. These weights begin there. With the unigram distribution p(w) and the
distribution p_d(w | n) of the tokens whose neighbor at distance d is n, the encoder
predicts a masked token w from its neighbors n_d, d = -2, -1, 1, 2, as if they were
independent:

    log p(w | n) = log p(w) + sum_d weight_d * log(p_d(w | n_d) / p(w)) + constant

The last factor is approximated by x_n M_d x_w, with token vectors x and a matrix M_d of
low rank. Then p(w) is the output bias of masked LM, x are the token embeddings, an
attention head of the first layer attends to the neighbor at distance d and multiplies
its vector by M_d, and residual connections carry the sum to the masked LM head.

Letters: V vocabulary, H hidden, D units of a head, T units of token vectors.
"""

from __future__ import annotations

from collections.abc import Mapping

import keras
import numpy as np

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer

# Only `--initialization=corpus` needs SciPy, which TPU VMs may lack.
sparse = lazy_import("scipy.sparse")
linalg = lazy_import("scipy.sparse.linalg")

# Distances of the neighbors, with the weights of their terms.
_NEIGHBORS = {-1: 1.0, 1: 1.0, -2: 0.5, 2: 0.5}
# Pseudo-counts: p_d(w | n) = (count of the pair + 200 p(w)) / (count of n + 200).
_PSEUDO_COUNTS = 200.0
_OVERSAMPLING = 32
_POWER_ITERATIONS = 3

# The following were found by experiment with BERT mini.
# Norm of token vectors times H^0.5, which is about the largest logit of masked LM.
_LARGEST_LOGIT = 20.0
# Attention score at the favored position: in the first layer, and in the others.
_NEIGHBOR_SCORE, _LOCAL_SCORE = 32.0, 1.5
# Share of the predicted logits that the first layer adds to token vectors.
_PREDICTION_SCALE = 0.1
# Scale of what matters little at the beginning: segment embeddings, random queries and
# keys, outputs of feed-forward layers. Inputs of that scale pass GELU almost linearly.
_SMALL_SCALE = 0.3


def initialize_from_corpus(
    model: BertPretrainer, token_ids: np.ndarray, seed: int = 0
) -> None:
    """Replaces the random weights of a new model by those of a bigram model.

    Positions, tokens of the text, other tokens such as [MASK], and segments have
    orthogonal subspaces of the H units. So attention reads only positions in the first
    layer, and the masked LM head reads only tokens of the text.

    The other layers favor close positions and equal tokens: their query and key
    matrices share an orthogonal matrix (arXiv 2305.09828). Other matrices stay random,
    with a standard deviation of about H^-0.5.

    Args:
        model: A new model.
        token_ids: Rows of the text that it will be trained on, [R, S] int32, 0 at
            padding; see `Records.token_ids`.
        seed: Seed of orthogonal matrices and of the randomized factorization.

    Raises:
        ValueError: The encoder is too small.
    """
    config, backbone = model.backbone.config, model.backbone
    hidden_dim = config.hidden_dim
    position_dim = min(hidden_dim // config.num_heads, hidden_dim // 4) // 2 * 2
    if not position_dim or config.embedding_dim != hidden_dim:
        raise ValueError(
            "--initialization=corpus needs embeddings of the hidden size, which is at "
            f"least 8, and 2 per head. Received: hidden_dim={hidden_dim}, num_heads="
            f"{config.num_heads}, embedding_dim={config.embedding_dim}. Pass "
            "--initialization=normal."
        )
    counts = np.bincount(token_ids.ravel(), minlength=config.vocabulary_size)
    counts[0] = 0
    model.mlm_head.bias.assign(np.log(_frequencies(counts)))

    rng = np.random.default_rng(seed)
    units = np.linalg.qr(rng.standard_normal((hidden_dim, hidden_dim)))[0]
    unseen_dim = -(-hidden_dim // 64)
    positions, unseen, segment, tokens = np.split(
        units.T, np.cumsum([position_dim, unseen_dim, 1])
    )
    tokens = tokens[: config.vocabulary_size]
    vectors, maps = bigram_factors(token_ids, counts, len(tokens), seed)
    others = rng.standard_normal((len(vectors), unseen_dim))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    table = np.where(counts[:, np.newaxis], vectors @ tokens, others @ unseen)
    _initialize_embeddings(backbone, table, positions, segment)

    first, *rest = backbone.encoder_layers
    scale = hidden_dim**-0.5 / config.initializer_range
    for layer in backbone.encoder_layers:
        for dense in (layer.value, layer.attention_output, layer.intermediate):
            _multiply(dense, scale)
        _multiply(layer.output_dense, scale * _SMALL_SCALE)
    _initialize_first_attention(first, maps, positions, tokens)
    for i, layer in enumerate(rest):
        shared = keras.initializers.Orthogonal(seed=seed + i)(units.shape)
        for dense in (layer.query, layer.key):
            _multiply(dense, scale * _SMALL_SCALE)
            dense.kernel.assign_add(shared * _score_scale(config, _LOCAL_SCORE))
    model.mlm_head.dense.kernel.assign(_SMALL_SCALE * tokens.T @ tokens)


# --- Layers ----------------------------------------------------------------------


def _multiply(dense: keras.layers.Dense, scale: float) -> None:
    dense.kernel.assign(dense.kernel * scale)


def _initialize_embeddings(
    backbone: BertBackbone,
    tokens: np.ndarray,
    position_units: np.ndarray,
    segment_unit: np.ndarray,
) -> None:
    """Assigns embeddings of equal norm for tokens and positions.

    Position embeddings are sinusoids (arXiv 1706.03762) with wavelengths from 2 to the
    maximum length. The product of two of them depends on their distance.

    Args:
        backbone: A new encoder.
        tokens: A vector of norm 1 for each token, [V, H].
        position_units: Orthonormal rows [P, H].
        segment_unit: A vector of norm 1, [1, H].
    """
    embeddings, config = backbone.embeddings, backbone.config
    norm = _LARGEST_LOGIT * config.hidden_dim**-0.5
    embeddings.token_embedding.embeddings.assign(norm * tokens)

    frequencies = _position_frequencies(config, len(position_units))
    angles = np.arange(config.max_sequence_length)[:, np.newaxis] * frequencies
    sinusoids = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    sinusoids *= norm / len(frequencies) ** 0.5
    embeddings.position_embedding.embeddings.assign(sinusoids @ position_units)

    if config.num_segments:
        segments = np.linspace(-1, 1, config.num_segments)[:, np.newaxis]
        segments = norm * _SMALL_SCALE * segments * segment_unit
        embeddings.segment_embedding.embeddings.assign(segments)


def _position_frequencies(config: BertConfig, position_dim: int) -> np.ndarray:
    """Returns the angles between neighboring positions in radians, [P / 2]."""
    shortest, longest = 2, config.max_sequence_length
    return 2 * np.pi / np.geomspace(shortest, longest, position_dim // 2)


def _score_scale(config: BertConfig, score: float) -> float:
    """Returns the scale of query and key matrices for an attention score.

    After LayerNorm, the parts of a vector for token and position have the squared norm
    H / 2 each.
    """
    head_dim = config.hidden_dim // config.num_heads
    return (score * head_dim**0.5 / (config.hidden_dim / 2)) ** 0.5


def _initialize_first_attention(
    layer: keras.layers.Layer,
    maps: Mapping[int, tuple[np.ndarray, np.ndarray]],
    position_units: np.ndarray,
    token_units: np.ndarray,
) -> None:
    """Makes each head read the token at one distance and map it to what it predicts.

    Heads take turns in the distances and in the components of their maps.

    Args:
        layer: The first layer.
        maps: See `bigram_factors`.
        position_units: Orthonormal rows [P, H].
        token_units: Orthonormal rows [T, H].
    """
    config = layer.config
    num_heads, head_dim = config.num_heads, config.hidden_dim // config.num_heads
    scale = _score_scale(config, _NEIGHBOR_SCORE)
    frequencies = _position_frequencies(config, len(position_units))
    query, key, value, output = np.zeros((4, config.hidden_dim, num_heads, head_dim))
    unit = slice(len(position_units))
    for head in range(num_heads):
        turn, i = divmod(head, len(_NEIGHBORS))
        distance = list(_NEIGHBORS)[i]
        # The product of a rotated sinusoid is largest at the distance.
        cosines, sines = (np.diag(f(distance * frequencies)) for f in (np.cos, np.sin))
        rotation = np.block([[cosines, sines], [-sines, cosines]])
        query[:, head, unit] = position_units.T @ rotation
        key[:, head, unit] = position_units.T
        component = slice(turn * head_dim, (turn + 1) * head_dim)
        left, right = (factor[:, component] for factor in maps[distance])
        rank = slice(left.shape[1])  # Small vocabularies have fewer components.
        value[:, head, rank] = token_units.T @ left
        output[:, head, rank] = token_units.T @ right
    query, key, value, output = (
        x.reshape(len(x), -1) for x in (query, key, value, output)
    )
    layer.query.kernel.assign(scale * query)
    layer.key.kernel.assign(scale * key)
    layer.value.kernel.assign(_PREDICTION_SCALE * value)
    layer.attention_output.kernel.assign(output.T)


# --- Counts of tokens -------------------------------------------------------------


def bigram_factors(
    token_ids: np.ndarray, counts: np.ndarray, rank: int, seed: int = 0
) -> tuple[np.ndarray, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Factorizes weight_d * log(p_d(w | n) / p(w)) for all tokens w and neighbors n.

    Errors are weighted by the frequencies of both tokens, and terms that depend on n
    only are left out, because softmax ignores them. The vectors are right singular
    vectors of the matrices of all distances, one below the other.

    Args:
        token_ids: Rows of text [R, S] int32, 0 at padding.
        counts: How often each token occurs, [V].
        rank: T, at most V.
        seed: Seed of the randomized factorization (arXiv 0909.4061).

    Returns:
        Token vectors [V, T] of norm 1; and for each distance two matrices [T, T], left
        and right, with M_d = left rightᵀ and the most important components first.
    """
    weights = np.sqrt(counts, dtype=np.float32)
    matrices = {
        distance: _weighted_information(token_ids, counts, weights, distance)
        for distance in _NEIGHBORS
    }

    def squared(x: np.ndarray) -> np.ndarray:
        return sum(matrix.T @ (matrix @ x) for matrix in matrices.values())

    rng = np.random.default_rng(seed)
    width = min(rank + _OVERSAMPLING, len(counts))
    basis = rng.standard_normal((len(counts), width), dtype=np.float32)
    for _ in range(_POWER_ITERATIONS):
        basis, _ = np.linalg.qr(squared(basis))
    values, rotation = np.linalg.eigh(basis.T @ squared(basis))  # Ascending.
    values, rotation = values[-rank:], rotation[:, -rank:]
    vectors = basis @ rotation * np.maximum(values, 0) ** 0.25
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    # The least squares solution of matrix = (weights * vectors) M (weights * vectors)ᵀ.
    basis, triangle = np.linalg.qr(weights[:, np.newaxis] * vectors)
    inverse = np.linalg.pinv(triangle, rcond=1e-3)
    maps = {}
    for distance, matrix in matrices.items():
        left, values, right = np.linalg.svd(basis.T @ (matrix @ basis))
        roots = np.sqrt(values)
        maps[distance] = (inverse @ left * roots, inverse @ right.T * roots)
    return vectors, maps


def _frequencies(counts: np.ndarray) -> np.ndarray:
    """Returns p(w), [V]; every token counts once more."""
    return (counts + 1) / (counts + 1).sum()


def _weighted_information(
    token_ids: np.ndarray, counts: np.ndarray, weights: np.ndarray, distance: int
) -> linalg.LinearOperator:
    """Returns weights[n] weights[w] weight_d log(p_d(w | n) / p(w)), [V, V], centered.

    A pair that does not occur has the same value with each token: that of its row is
    left out, so the matrix is sparse before centering.
    """
    rows = token_ids if distance < 0 else token_ids[:, ::-1]
    columns = abs(distance)
    neighbors, tokens = rows[:, :-columns].ravel(), rows[:, columns:].ravel()
    both = (neighbors > 0) & (tokens > 0)
    ones = np.ones(both.sum(), np.float32)
    matrix = sparse.csr_array(
        (ones, (neighbors[both], tokens[both])), shape=(len(counts),) * 2
    )  # Sums duplicates.
    expected = np.float32(_PSEUDO_COUNTS) * _frequencies(counts).astype(np.float32)
    ratios = matrix.data / expected[matrix.indices]
    matrix.data = np.float32(_NEIGHBORS[distance]) * np.log1p(ratios)
    means = matrix @ (weights**2 / (weights**2).sum())
    matrix = sparse.diags_array(weights) @ matrix @ sparse.diags_array(weights)
    operator = linalg.aslinearoperator
    column, row = (weights * means)[:, np.newaxis], weights[np.newaxis]
    return operator(matrix) - operator(column) @ operator(row)
