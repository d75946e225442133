# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertConfig, initialize_local_attention

LENGTH = 32


@pytest.fixture
def backbone():
    keras.utils.set_random_seed(0)
    config = BertConfig.from_size("2/64/2", 100, max_sequence_length=64)
    return BertBackbone(config)


def share_of_neighbors(backbone: BertBackbone) -> float:
    """Returns the mean attention of the first layer to the 2 tokens on each side."""
    ids = np.random.default_rng(0).integers(5, 100, size=(4, LENGTH))
    x = backbone.embeddings(ids, 0 * ids)
    layer = backbone.encoder_layers[0]
    query, key = (
        np.reshape(dense(x), (4, LENGTH, 2, 32)) for dense in (layer.query, layer.key)
    )
    scores = np.einsum("bqnd,bknd->bnqk", query, key) / 32**0.5
    attention = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    distance = np.abs(np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH)))
    near = (distance > 0) & (distance <= 2)
    return float((attention * near).sum(axis=-1)[..., 2:-2].mean())


def test_attention_begins_at_neighbors(backbone):
    assert share_of_neighbors(backbone) == pytest.approx(4 / LENGTH, rel=0.02)
    initialize_local_attention(backbone)
    assert share_of_neighbors(backbone) > 1.5 * 4 / LENGTH


def test_all_matrices_have_the_same_scale(backbone):
    initialize_local_attention(backbone, seed=1)
    for layer in backbone.encoder_layers:
        for dense in (layer.value, layer.attention_output, layer.output_dense):
            # Truncation at two standard deviations leaves 0.88 of one.
            assert np.std(dense.kernel) == pytest.approx(0.88 * 64**-0.5, rel=0.05)
    positions = np.array(backbone.embeddings.position_embedding.embeddings)
    assert positions.std() == pytest.approx(0.08, rel=1e-4)
    # Products of sinusoids depend on the distance only.
    gram = positions @ positions.T
    np.testing.assert_allclose(gram[0, :32], gram[20, 20:52], rtol=1e-4)
