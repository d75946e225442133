# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sentence embeddings. The formulas are those of sentence-transformers 6.2."""

import numpy as np
import pytest

from bert_tf.heads import SentenceEmbedding, search_signatures, similarities

LENGTHS = [5, 1, 3]
HIDDEN = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
MASK = (np.arange(5) < np.array(LENGTHS)[:, np.newaxis]).astype(np.int32)

POOLED = {
    "cls": lambda x: x[0],
    "max": lambda x: x.max(axis=0),
    "mean": lambda x: x.mean(axis=0),
}


@pytest.mark.parametrize("mode", POOLED)
def test_pooling_ignores_padding(mode):
    expected = [POOLED[mode](x[:n]) for x, n in zip(HIDDEN, LENGTHS)]
    config = {"max_sequence_length": 8, "pooling": mode, "normalize": False}
    found = SentenceEmbedding(config)(HIDDEN, MASK)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


SIMILARITIES = {
    "cosine": lambda x, y: x @ y / np.sqrt((x @ x) * (y @ y)),
    "dot": lambda x, y: x @ y,
    "euclidean": lambda x, y: -np.sqrt(np.square(x - y).sum()),
    "manhattan": lambda x, y: -np.abs(x - y).sum(),
}


@pytest.mark.parametrize("name", SIMILARITIES)
def test_similarities_equal_sentence_transformers(name):
    a, b = HIDDEN[0], HIDDEN[1, :3]
    expected = [[SIMILARITIES[name](x, y) for y in b] for x in a]
    np.testing.assert_allclose(similarities(name, a, b), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("prompts", "names"),
    [
        ({}, ("sentence_embedding", "sentence_embedding")),
        ({"query": "q"}, ("query", "sentence_embedding")),
        ({"corpus": "c", "passage": "p"}, ("sentence_embedding", "passage")),
    ],
)
def test_signatures_for_queries_and_documents(prompts, names):
    assert search_signatures({"prompts": prompts}) == names
