# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of sentence embeddings. The formulas are those of sentence-transformers 6.2."""

import numpy as np
import pytest

from bert_tf.heads import SentenceEmbedding

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
