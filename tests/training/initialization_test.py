# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.training.initialization import (
    initialize_from_counts,
    initialize_local_attention,
)

_VOCABULARY_SIZE = 12


@pytest.fixture(scope="module")
def token_ids() -> np.ndarray:
    """Returns rows of tokens 1 to 10, so that 11 does not occur, with padding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 11, size=(30, 9)).astype(np.int32)
    ids[:, 7:] *= rng.integers(0, 2, size=(30, 1), dtype=np.int32)
    return ids


def mutual_information(token_ids: np.ndarray) -> np.ndarray:
    pairs = np.zeros((_VOCABULARY_SIZE, _VOCABULARY_SIZE))
    for row in token_ids:
        for i, token in enumerate(row):
            for j, neighbor in enumerate(row):
                distance = abs(i - j)
                if token and neighbor and 0 < distance <= 4:
                    pairs[token, neighbor] += (5 - distance) / 4
    shares = pairs.sum(0) ** 0.75 / (pairs.sum(0) ** 0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        information = np.log(pairs / pairs.sum(1, keepdims=True) / shares)
    return np.where(pairs > 0, np.maximum(information, 0), 0)


@pytest.mark.parametrize("hidden_dim", [4, 16])  # 16 is above the rank of the matrix.
def test_counts_give_embeddings_and_biases(token_ids, hidden_dim):
    config = BertConfig.from_size(f"1/{hidden_dim}/2", _VOCABULARY_SIZE)
    model = BertPretrainer(BertBackbone(config))
    table = model.backbone.embeddings.token_embedding.embeddings
    random = np.array(table)
    initialize_from_counts(model, token_ids)

    left, values, _ = np.linalg.svd(mutual_information(token_ids))
    rank = min(hidden_dim, _VOCABULARY_SIZE)
    expected = left[:, :rank] * np.sqrt(values[:rank])
    seen = slice(1, 11)
    norms = np.linalg.norm(expected[seen], axis=1, keepdims=True)
    expected[seen] *= 0.02 * hidden_dim**0.5 / norms
    # Products of rows do not depend on the signs of singular vectors.
    result = np.array(table)
    np.testing.assert_allclose(
        result[seen] @ result[seen].T, expected[seen] @ expected[seen].T, atol=1e-6
    )
    np.testing.assert_array_equal(result[[0, 11]], random[[0, 11]])

    counts = np.bincount(token_ids.ravel(), minlength=_VOCABULARY_SIZE)
    counts[0] = 0
    shares = np.exp(np.array(model.mlm_head.bias))
    np.testing.assert_allclose(shares, (counts + 1) / (counts + 1).sum(), rtol=1e-5)


@pytest.fixture
def new_backbone():
    keras.utils.set_random_seed(0)
    config = BertConfig.from_size("2/64/2", 100, max_sequence_length=64)
    return BertBackbone(config)


def share_of_neighbors(backbone: BertBackbone) -> float:
    """Returns the mean attention of the first layer to the 2 tokens on each side."""
    length = 32
    ids = np.random.default_rng(0).integers(5, 100, size=(4, length))
    x = backbone.embeddings(ids, 0 * ids)
    layer = backbone.encoder_layers[0]
    query, key = (
        np.reshape(dense(x), (4, length, 2, 32)) for dense in (layer.query, layer.key)
    )
    scores = np.einsum("bqnd,bknd->bnqk", query, key) / 32**0.5
    attention = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    distance = np.abs(np.subtract.outer(np.arange(length), np.arange(length)))
    near = (distance > 0) & (distance <= 2)
    return float((attention * near).sum(axis=-1)[..., 2:-2].mean())


def test_local_attention_begins_at_neighbors(new_backbone):
    assert share_of_neighbors(new_backbone) == pytest.approx(4 / 32, rel=0.02)
    initialize_local_attention(new_backbone)
    assert share_of_neighbors(new_backbone) > 1.5 * 4 / 32


def test_local_attention_gives_all_matrices_the_same_scale(new_backbone):
    initialize_local_attention(new_backbone, seed=1)
    for layer in new_backbone.encoder_layers:
        for dense in (layer.value, layer.attention_output, layer.output_dense):
            # Truncation at two standard deviations leaves 0.88 of one.
            assert np.std(dense.kernel) == pytest.approx(0.88 * 64**-0.5, rel=0.05)
    positions = np.array(new_backbone.embeddings.position_embedding.embeddings)
    assert positions.std() == pytest.approx(0.08, rel=1e-4)
    # Products of sinusoids depend on the distance only.
    gram = positions @ positions.T
    np.testing.assert_allclose(gram[0, :32], gram[20, 20:52], rtol=1e-4)
