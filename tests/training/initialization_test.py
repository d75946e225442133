# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest

from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.training.initialization import bigram_factors, initialize_from_corpus

_VOCABULARY_SIZE = 30
_LENGTH = 16


@pytest.fixture(scope="module")
def token_ids() -> np.ndarray:
    """Returns rows in which a permutation gives four of five next tokens.

    Tokens 1 to 4 and the last one do not occur; rows end with padding.
    """
    rng = np.random.default_rng(0)
    words = np.arange(5, _VOCABULARY_SIZE - 1)
    successor = dict(zip(words, np.roll(rng.permutation(words), 1)))
    ids = rng.choice(words, size=(400, _LENGTH)).astype(np.int32)
    for column in range(1, _LENGTH):
        follows = rng.random(len(ids)) < 0.8
        next_ids = [successor[token] for token in ids[:, column - 1]]
        ids[:, column] = np.where(follows, next_ids, ids[:, column])
    ids[:, 14:] *= rng.integers(0, 2, size=(400, 1), dtype=np.int32)
    return ids


@pytest.fixture(scope="module")
def model(token_ids) -> BertPretrainer:
    keras.utils.set_random_seed(0)
    config = BertConfig.from_size("1/128/4", _VOCABULARY_SIZE, max_sequence_length=64)
    model = BertPretrainer(BertBackbone(config))
    initialize_from_corpus(model, token_ids)
    return model


def test_factors_of_full_rank_are_the_centered_information(token_ids):
    counts = np.bincount(token_ids.ravel(), minlength=_VOCABULARY_SIZE)
    counts[0] = 0
    vectors, maps = bigram_factors(token_ids, counts, _VOCABULARY_SIZE)
    seen = vectors[5:-1]
    np.testing.assert_allclose(np.linalg.norm(seen, axis=1), 1, rtol=1e-5)
    shares = (counts + 1) / (counts + 1).sum()
    for distance, weight in {-1: 1, 1: 1, -2: 0.5, 2: 0.5}.items():
        pairs = np.zeros((_VOCABULARY_SIZE, _VOCABULARY_SIZE))
        for row in token_ids:
            for i, token in enumerate(row):
                j = i + distance
                if token and 0 <= j < _LENGTH and row[j]:
                    pairs[row[j], token] += 1
        smoothed = (pairs + 200 * shares) / (pairs.sum(1, keepdims=True) + 200)
        information = weight * np.log(smoothed / shares)
        information -= information @ shares[:, np.newaxis]
        information -= shares @ information  # The vectors cannot express the mean.
        left, right = maps[distance]
        np.testing.assert_allclose(
            seen @ left @ right.T @ seen.T, information[5:-1, 5:-1], atol=0.01
        )


def test_new_model_predicts_masked_tokens_from_their_neighbors(model, token_ids):
    tokens, column = token_ids[:200, :14].copy(), 7
    labels = tokens[:, column].copy()
    tokens[:, column] = 4  # [MASK] does not occur in the text.
    logits = model.predict(
        {
            "token_ids": tokens,
            "segment_ids": np.zeros_like(tokens),
            "padding_mask": np.ones_like(tokens),
            "mask_positions": np.full((200, 1), column, np.int32),
            "first_positions": np.zeros((200, 1), np.int32),
        },
        verbose=0,
    )["mlm"][:, 0]
    # At least one of two neighbors tells the token in 96 % of the rows.
    assert np.mean(logits.argmax(-1) == labels) > 0.8


@pytest.mark.parametrize("size", ["1/4/2", "1/16/16"])
def test_too_small_encoders_raise(token_ids, size):
    config = BertConfig.from_size(size, _VOCABULARY_SIZE)
    with pytest.raises(ValueError, match="at least 8, and 2 per head"):
        initialize_from_corpus(BertPretrainer(BertBackbone(config)), token_ids)
