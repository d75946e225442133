# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf.modeling.backbone import BertBackbone
from bert_tf.modeling.feature_tagger import CombineLayers, FeatureTagger, FrozenEncoder


def test_padding_does_not_change_the_logits(tiny_config):
    keras.utils.set_random_seed(1)
    model = FeatureTagger(BertBackbone(tiny_config), 3, "weighted_sum_all", units=4)
    assert model(model_inputs([7, 8, 9])).shape == (1, 3, 3)
    short = model(model_inputs([7, 8, 9]))
    padded = model(model_inputs([7, 8, 9, 0, 0, 0]))
    np.testing.assert_allclose(padded[:, :3], short, atol=1e-5)
    # Both directions matter.
    np.testing.assert_array_less(
        1e-7, np.abs(model(model_inputs([7, 8, 10])) - short).max(axis=-1)
    )


def model_inputs(ids):
    ids = np.array([ids], np.int32)
    return {
        "token_ids": ids,
        "segment_ids": 0 * ids,
        "padding_mask": np.int32(ids != 0),
    }


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
def test_features_of_table_7(tiny_config, name, layers):
    config = dataclasses.replace(
        tiny_config, num_layers=5, dropout=0.5, attention_dropout=0.5
    )
    backbone = BertBackbone(config)
    encoder = FrozenEncoder(backbone, name)
    inputs = model_inputs([7, 8, 9])
    # Call the layers one by one, without the functional graph.
    states = [keras.Model(backbone.input, backbone.hidden_states[0])(inputs)]
    for layer in backbone.encoder_layers:
        states.append(layer(states[-1], attention_mask=inputs["padding_mask"]))
    expected = np.stack([states[index] for index in layers], axis=2)
    # There is no dropout in training either.
    np.testing.assert_allclose(encoder(inputs, training=True), expected, atol=1e-5)
    assert not encoder.trainable_weights


def test_only_the_lstms_are_trained(tiny_config):
    model = FeatureTagger(BertBackbone(tiny_config), 3, "last", units=4)
    names = {variable.path.split("/")[0] for variable in model.trainable_variables}
    assert names == {"lstm_0", "lstm_1", "tag_logits"}


def test_combine_layers():
    layers = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype("float32")
    concatenated = CombineLayers("concat_last_four")(layers)
    np.testing.assert_array_equal(concatenated, layers.reshape(2, 3, 20))
    weighted = CombineLayers("weighted_sum_last_four")
    np.testing.assert_allclose(weighted(layers), layers.mean(axis=2), atol=1e-6)
    weighted.layer_logits.assign(np.log([1, 2, 3, 4]))
    expected = np.einsum("bskh,k->bsh", layers, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(weighted(layers), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first", "must be one of embeddings, .* Received: feature_set='first'"),
        ("concat_last_four", "needs .* at least four layers. .*num_layers=2"),
    ],
)
def test_invalid_feature_sets_raise(tiny_config, name, message):
    with pytest.raises(ValueError, match=message):
        FrozenEncoder(BertBackbone(tiny_config), name)
