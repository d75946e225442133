# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sentence embeddings. The formulas are those of sentence-transformers 6.2."""

import numpy as np
import pytest

from bert_tf.heads import EmbeddingConfig, SentenceEmbedding, SentenceEncoder
from bert_tf.modeling import BertBackbone
from tests.toy.models import randomize_weights

LENGTHS = [5, 1, 3]
HIDDEN = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
MASK = (np.arange(5) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)

POOLED = {
    "cls": lambda x: x[0],
    "lasttoken": lambda x: x[-1],
    "max": lambda x: x.max(axis=0),
    "mean": lambda x: x.mean(axis=0),
    "mean_sqrt_len_tokens": lambda x: x.sum(axis=0) / np.sqrt(len(x)),
    "weightedmean": lambda x: np.average(x, axis=0, weights=np.arange(len(x)) + 1),
}


def embed(**options):
    config = EmbeddingConfig(max_sequence_length=8, **options)
    return SentenceEmbedding(config)(HIDDEN, MASK).numpy()


@pytest.mark.parametrize("mode", POOLED)
def test_pooling_ignores_padding(mode):
    expected = [POOLED[mode](x[:n]) for x, n in zip(HIDDEN, LENGTHS)]
    found = embed(pooling=mode, normalize=False)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_several_modes_are_concatenated_in_their_order():
    parts = [embed(pooling=mode, normalize=False) for mode in ("mean", "cls")]
    found = embed(pooling="mean+cls", normalize=False)
    np.testing.assert_array_equal(found, np.concatenate(parts, axis=1))


def test_normalized_vectors_have_length_one():
    vectors = embed(normalize=False)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(embed(), vectors / lengths, rtol=1e-6)
    assert embed(truncate_dim=3).shape == (3, 3)
    np.testing.assert_array_equal(embed(truncate_dim=100), embed())


@pytest.mark.parametrize("bias", [True, False])
def test_model_with_dense_layer(tiny_config, bias):
    pooling = {"max_sequence_length": 8, "pooling": "cls+mean", "normalize": False}
    config = EmbeddingConfig(**pooling, dense_dim=6, dense_bias=bias)
    model = randomize_weights(SentenceEncoder(BertBackbone(tiny_config), config))
    ids = np.array([[2, 7, 3, 0], [2, 8, 9, 3]], np.int32)
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids != 0}
    hidden = model.backbone(inputs)["sequence_output"]
    pooled = SentenceEmbedding(pooling)(hidden, inputs["padding_mask"])
    kernel, *biases = model.sentence_embedding.dense.get_weights()
    assert len(biases) == bias
    vectors = model(inputs)
    assert model.output_shape == (None, 6)
    expected = np.tanh(pooled @ kernel + sum(biases))
    np.testing.assert_allclose(vectors, expected, atol=1e-6)

    again = SentenceEncoder.from_config(model.get_config())
    assert again.sentence_embedding.config == config
    again.set_weights(model.get_weights())
    np.testing.assert_array_equal(again(inputs), vectors)


def test_config_round_trip():
    config = EmbeddingConfig(max_sequence_length=64, pooling="cls", dense_dim=8)
    head = {"kind": "embedding", **config.to_dict(), "temperature": 0.05}
    assert EmbeddingConfig.from_dict(head) == config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "median"}, "pooling='median'"),
        ({"pooling": "cls+"}, r"pooling='cls\+'"),
        ({"max_sequence_length": 2}, "at least 3"),
        ({"max_sequence_length": "8"}, "integer of at least 3.*'8'"),
    ],
)
def test_invalid_config(options, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingConfig(**{"max_sequence_length": 8, **options})
