# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.training.initialization import bigram_factors, initialize_from_corpus
from tests.toy.models import encoder_inputs

VOCABULARY_SIZE = 30


@pytest.fixture(scope="module")
def token_ids() -> np.ndarray:
    """Returns rows in which a cycle of words gives the next one; some have padding."""
    words = np.random.default_rng(0).permutation(np.arange(5, VOCABULARY_SIZE - 1))
    ids = np.stack([np.roll(words, -n)[:16] for n in range(len(words))])
    ids[::2, 14:] = 0
    return np.tile(ids, (20, 1)).astype(np.int32)


def test_factors_of_full_rank_are_the_centered_information(token_ids):
    counts = np.bincount(token_ids.ravel(), minlength=VOCABULARY_SIZE)
    counts[0] = 0
    vectors, maps = bigram_factors(token_ids, counts, VOCABULARY_SIZE)
    seen = vectors[5:-1]
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 1, rtol=1e-5)
    shares = (counts + 1) / (counts + 1).sum()
    for distance, weight in {-1: 1, 1: 1, -2: 0.5, 2: 0.5}.items():
        size, pairs = abs(distance), np.zeros((VOCABULARY_SIZE, VOCABULARY_SIZE))
        both = token_ids[:, :-size], token_ids[:, size:]
        np.add.at(pairs, both if distance < 0 else both[::-1], 1)
        pairs[0] = pairs[:, 0] = 0  # Padding.
        smoothed = (pairs + 200 * shares) / (pairs.sum(1, keepdims=True) + 200)
        information = weight * np.log(smoothed / shares)
        information -= information @ shares[:, np.newaxis]
        information -= shares @ information  # The vectors cannot express the mean.
        left, right = maps[distance]
        np.testing.assert_allclose(
            seen @ left @ right.T @ seen.T, information[5:-1, 5:-1], atol=0.01
        )


def test_new_model_predicts_masked_tokens_from_their_neighbors(token_ids):
    keras.utils.set_random_seed(0)
    config = BertConfig.from_size("1/128/4", VOCABULARY_SIZE, max_sequence_length=64)
    model = BertPretrainer(BertBackbone(config))
    initialize_from_corpus(model, token_ids)
    tokens, column = token_ids[:, :14].copy(), 7
    labels = tokens[:, column].copy()
    tokens[:, column] = 4  # [MASK] does not occur in the text.
    positions = np.full((len(tokens), 1), column, np.int32)
    positions = {"mask_positions": positions, "first_positions": 0 * positions}
    inputs = encoder_inputs(tokens) | positions
    logits = model(inputs)["mlm"].numpy()[:, 0]
    assert np.mean(logits.argmax(-1) == labels) > 0.8


def test_too_small_encoders_raise(token_ids):
    config = BertConfig.from_size("1/16/16", VOCABULARY_SIZE)
    with pytest.raises(ValueError, match="at least 8, and 2 per head"):
        initialize_from_corpus(BertPretrainer(BertBackbone(config)), token_ids)
