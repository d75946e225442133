# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.finetuning import batching, features
from bert_tf.modeling import BertBackbone, FrozenEncoder

LENGTHS = [3, 9, 4, 20, 9]


@pytest.fixture(autouse=True)
def eagerly():
    """Tracing graphs would take longer than running the few examples eagerly."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def backbone(tiny_config):
    keras.utils.set_random_seed(3)
    config = dataclasses.replace(tiny_config, num_layers=5, initializer_range=0.5)
    return BertBackbone(config)


@pytest.fixture(scope="module")
def inputs():
    tokens = np.random.default_rng(0).integers(5, 40, sum(LENGTHS)).astype(np.int32)
    token_ids = tf.RaggedTensor.from_row_lengths(tokens, LENGTHS)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": tf.ones_like(token_ids),
    }


def rows(column):
    """Returns the examples of a `MappedColumn` without padding."""
    return [column.take(tf.constant([i]), n)[0] for i, n in enumerate(LENGTHS)]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("embeddings", [0]),
        ("second_to_last", [4]),
        ("last", [5]),
        ("weighted_sum_last_four", [2, 3, 4, 5]),
        ("concat_last_four", [2, 3, 4, 5]),
        ("weighted_sum_all", [1, 2, 3, 4, 5]),
    ],
)
def test_features_of_table_7(backbone, inputs, tmp_path, name, layers):
    column = features.cached_features(
        FrozenEncoder(backbone, name), inputs, tmp_path, max_length=32
    )
    embeddings = keras.Model(backbone.input, backbone.hidden_states[0])
    for example, found in enumerate(rows(column)):
        ids = inputs["token_ids"][example].numpy()
        # Call the layers one by one, without the functional graph.
        x = embeddings({k: column[example][tf.newaxis] for k, column in inputs.items()})
        states = [x]
        for layer in backbone.encoder_layers:
            x = layer(x, attention_mask=np.ones([1, len(ids)]))
            states.append(x)
        expected = np.stack([states[i][0] for i in layers], axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_cache_depends_on_layers_tokens_and_weights(
    backbone, inputs, tmp_path, monkeypatch
):
    encoder = FrozenEncoder(backbone, "last")
    first = features.cached_features(encoder, inputs, tmp_path, max_length=32)
    (file,) = tmp_path.iterdir()
    assert np.load(file, mmap_mode="r").shape == (sum(LENGTHS), 1, 16)
    calls = []
    predict = batching.predict
    monkeypatch.setattr(
        batching, "predict", lambda *a, **k: calls.append(a) or predict(*a, **k)
    )
    again = features.cached_features(encoder, inputs, tmp_path, max_length=32)
    assert not calls
    for a, b in zip(rows(first), rows(again), strict=True):
        np.testing.assert_array_equal(a, b)

    features.cached_features(
        FrozenEncoder(backbone, "second_to_last"), inputs, tmp_path, max_length=32
    )
    token_ids = inputs["token_ids"] + 1
    changed = inputs | {"token_ids": token_ids}
    features.cached_features(encoder, changed, tmp_path, max_length=32)
    bias = backbone.encoder_layers[-1].output_dense.bias
    bias.assign_add(tf.ones_like(bias))
    features.cached_features(encoder, inputs, tmp_path, max_length=32)
    bias.assign_sub(tf.ones_like(bias))
    assert len(calls) == 3
    assert len(list(tmp_path.iterdir())) == 4


def test_interrupted_computation_leaves_no_file(
    backbone, inputs, tmp_path, monkeypatch
):
    monkeypatch.setattr(batching, "predict", None)
    with pytest.raises(TypeError):
        features.cached_features(
            FrozenEncoder(backbone, "last"), inputs, tmp_path, max_length=32
        )
    assert not list(tmp_path.iterdir())
