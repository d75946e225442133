# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from bert_tf.checkpoints import extend_vocabulary, open_checkpoint, write_checkpoint
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.text import Vocabulary
from tests.toy.models import model_directory, randomize_weights


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, vocabulary, tiny_config):
    """Returns a pre-trained model with an unused token, id 5."""
    tokens = list(vocabulary.tokens)
    tokens[5] = "[unused0]"
    path = tmp_path_factory.mktemp("model")
    directory = model_directory(path, tiny_config, Vocabulary(tuple(tokens)))
    model = BertPretrainer(BertBackbone(tiny_config))
    directory.save_weights(randomize_weights(model))
    return open_checkpoint(directory.path)


@pytest.fixture(scope="module")
def extended(checkpoint, tmp_path_factory):
    tokens = list(checkpoint.vocabulary.tokens)
    tokens[5] = "cats"
    vocabulary = Vocabulary((*tokens, "mats", "##dog"))
    path = tmp_path_factory.mktemp("extended") / "model"
    assert write_checkpoint(extend_vocabulary(checkpoint, vocabulary), path) == []
    return open_checkpoint(path)


def test_new_tokens_are_the_mean_of_their_pieces(checkpoint, extended):
    before, after = checkpoint.read_weights(), extended.read_weights()
    ids = checkpoint.vocabulary.ids
    pieces = {5: ["cat", "##s"], 40: ["mat", "##s"], 41: ["[UNK]"]}
    for name, values in before.items():
        new, old = after[name], values
        if name in ("embeddings/token_embedding/embeddings", "mlm/bias"):
            assert len(new) == 42
            for token, parts in pieces.items():
                mean = old[ids(parts)].mean(axis=0)
                np.testing.assert_allclose(new[token], mean, rtol=1e-5)
            new, old = np.delete(new, [*pieces], axis=0), np.delete(old, 5, axis=0)
        np.testing.assert_array_equal(new, old)
