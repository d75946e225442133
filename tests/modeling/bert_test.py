# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import keras_private
from bert_tf.modeling import (
    BertBackbone,
    BertConfig,
    BertPretrainer,
    Dropout,
    EncoderLayer,
)
from bert_tf.modeling.config import ACTIVATIONS
from tests.toy.encoder import check_packed_rows, make_encoder_inputs, make_inputs
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients

# Backbone with pooler, vocabulary 30,522, 512 positions; the counts of the published
# checkpoints (KerasHub presets, google-research/bert README).
PARAMETERS = {"tiny": 4_385_920, "mini": 11_170_560, "base": 109_482_240}


@pytest.fixture(scope="module")
def pretrainer(tiny_config):
    keras.utils.set_random_seed(1)
    return BertPretrainer(BertBackbone(tiny_config))


def test_parameter_counts():
    counts = {}
    for size in PARAMETERS:
        with keras.StatelessScope(initialize_variables=False):  # Shapes only.
            backbone = BertBackbone(BertConfig.from_size(size, vocabulary_size=30_522))
            counts[size] = backbone.count_params()
    keras.utils.clear_session()  # Keras would initialize them with the next model.
    assert counts == PARAMETERS


def copy_to_keras_hub(backbone: BertBackbone, hub) -> None:
    """Copies our weights to KerasHub's `BertBackbone`."""

    def copy(ours, theirs, shapes=None):
        for mine, other in zip(ours.weights, theirs.weights, strict=True):
            other.assign(np.reshape(mine.numpy(), other.shape))

    copy(backbone.embeddings.token_embedding, hub.token_embedding)
    copy(backbone.embeddings.position_embedding, hub.position_embedding)
    copy(backbone.embeddings.segment_embedding, hub.segment_embedding)
    copy(backbone.embeddings.layer_norm, hub.embeddings_layer_norm)
    copy(backbone.pooler, hub.pooled_dense)
    for ours, theirs in zip(
        backbone.encoder_layers, hub.transformer_layers, strict=True
    ):
        attention = theirs._self_attention_layer
        copy(ours.query, attention._query_dense)
        copy(ours.key, attention._key_dense)
        copy(ours.value, attention._value_dense)
        copy(ours.attention_output, attention._output_dense)
        copy(ours.attention_layer_norm, theirs._self_attention_layer_norm)
        copy(ours.intermediate, theirs._feedforward_intermediate_dense)
        copy(ours.output_dense, theirs._feedforward_output_dense)
        copy(ours.output_layer_norm, theirs._feedforward_layer_norm)


def test_outputs_equal_keras_hub(tiny_config):
    import keras_hub

    backbone = BertBackbone(tiny_config)
    for weight in backbone.weights:  # So that biases and norms matter.
        weight.assign(weight + keras.random.normal(weight.shape, stddev=0.2, seed=7))
    shared = {"vocabulary_size", "num_layers", "num_heads", "hidden_dim"}
    shared |= {"intermediate_dim", "dropout", "max_sequence_length", "num_segments"}
    fields = dataclasses.asdict(tiny_config)
    hub = keras_hub.models.BertBackbone(**{name: fields[name] for name in shared})
    assert hub.count_params() == backbone.count_params()
    copy_to_keras_hub(backbone, hub)

    inputs = make_encoder_inputs(tiny_config)
    ours, theirs = backbone(inputs), hub(inputs)
    real = inputs["padding_mask"].astype(bool)  # Outputs at padding are undefined.
    np.testing.assert_allclose(
        ours["sequence_output"].numpy()[real],
        theirs["sequence_output"].numpy()[real],
        atol=2e-5,
    )
    np.testing.assert_allclose(
        ours["pooled_output"], theirs["pooled_output"], atol=2e-5
    )


def test_padding_tokens_do_not_change_the_logits(pretrainer, tiny_config):
    inputs = make_inputs(tiny_config)
    changed = dict(inputs)
    changed["token_ids"] = np.where(inputs["padding_mask"], inputs["token_ids"], 9)
    before, after = pretrainer(inputs), pretrainer(changed)
    np.testing.assert_array_equal(before["mlm"], after["mlm"])
    np.testing.assert_array_equal(before["nsp"], after["nsp"])


def test_packed_rows_give_the_logits_of_unpacked_rows(pretrainer, tiny_config):
    check_packed_rows(pretrainer, tiny_config)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_layers_in_training_equal_inference(tiny_config, activation):
    layer = EncoderLayer(dataclasses.replace(tiny_config, activation=activation))
    x, mask = 3 * keras.random.normal((1, 50, 16), seed=1), np.ones((1, 50))
    layer(x, mask)  # Builds it.
    for dense in (layer.intermediate, layer.output_dense):
        dense.kernel.assign(keras.random.normal(dense.kernel.shape, seed=2))
    # The two forms of GELU differ by up to 5e-4.
    np.testing.assert_allclose(layer(x, mask, training=True), layer(x, mask), atol=1e-5)


def test_initialization_is_truncated_normal(tiny_config):
    backbone = BertBackbone(dataclasses.replace(tiny_config, vocabulary_size=5000))
    table = backbone.embeddings.token_embedding.embeddings.numpy()
    assert np.abs(table).max() <= 2 * 0.02 + 1e-6
    # Cutting a normal distribution at two deviations leaves 0.88 of its deviation.
    np.testing.assert_allclose(table.std(), 0.88 * 0.02, rtol=0.02)


def test_sequence_longer_than_the_positions_raises(pretrainer, tiny_config):
    ids = np.ones((1, tiny_config.max_sequence_length + 1), "int32")
    inputs = dict.fromkeys(("token_ids", "segment_ids", "padding_mask"), ids)
    with pytest.raises(ValueError, match=r"= 32 tokens.* Received: 33"):
        pretrainer.backbone(inputs)


def test_gradients_in_training_equal_autodiff_of_inference(tiny_config):
    rates = {"dropout": 0.1, "attention_dropout": 0.1}
    config = dataclasses.replace(tiny_config, num_layers=1, **rates)
    model = BertPretrainer(BertBackbone(config))
    for layer in keras_private.nested_layers(model):
        if isinstance(layer, Dropout):
            layer.rate = 0.0  # The layers may have other rates than the config.
    for weight in model.weights:
        weight.assign(weight * 5)  # So that no gradient is tiny.
    inputs = tf.nest.map_structure(tf.constant, make_inputs(tiny_config))

    def gradients(training):
        def both_passes(inputs):
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=training)
                loss = sum(tf.reduce_logsumexp(outputs[head]) for head in outputs)
            return tape.gradient(loss, [w.value for w in model.trainable_weights])

        return [tf.convert_to_tensor(g) for g in in_graph(both_passes)(inputs)]

    found, expected = gradients(training=True), gradients(training=False)
    for weight, a, b in zip(model.trainable_weights, found, expected, strict=True):
        tolerance = 2e-5 * np.abs(b).max() + 1e-7
        np.testing.assert_allclose(a, b, atol=tolerance, err_msg=weight.path)


def test_mixed_bfloat16_is_close_to_float32(tiny_config, pretrainer):
    mixed = BertPretrainer(BertBackbone(tiny_config, dtype="mixed_bfloat16"))
    mixed.set_weights(pretrainer.get_weights())
    inputs = make_inputs(tiny_config)
    exact, rounded = pretrainer(inputs), mixed(inputs)
    assert rounded["mlm"].dtype == rounded["nsp"].dtype == "float32"
    np.testing.assert_allclose(rounded["mlm"], exact["mlm"], atol=0.03)


def test_recomputation_keeps_only_the_input_of_a_layer(tiny_config):
    config = dataclasses.replace(tiny_config, dropout=0.3, attention_dropout=0.3)
    layer = EncoderLayer(config, recompute=True)
    x, mask = tf.ones([16, 8, 16]), tf.ones([16, 8])
    layer(x, mask)
    kept = kept_tensors(lambda x: layer(x, mask, training=True), x)
    # Weights and seeds are smaller.
    (large,) = [t for t in kept if t.shape.num_elements() >= 16 * 8 * 16]
    assert large.shape == x.shape


def test_recomputation_draws_the_same_dropout_masks(tiny_config):
    config = dataclasses.replace(tiny_config, dropout=0.3, attention_dropout=0.3)
    x, mask = tf.random.stateless_normal([4, 8, 16], [1, 2]), tf.ones([4, 8])

    def results(recompute):
        keras.utils.set_random_seed(4)
        layer = EncoderLayer(config, recompute=recompute)
        layer(x, mask)
        run = functools.partial(layer, attention_mask=mask, training=True)
        weights = layer.trainable_weights
        return value_and_gradients(run, [x], tf.ones_like(x), in_graph, weights)

    for a, b in zip(results(False), results(True), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
