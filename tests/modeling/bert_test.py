# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import keras_private, modeling
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer, fused
from tests.toy.checkpoints import assert_equal
from tests.toy.gradients import in_graph, kept_tensors, value_and_gradients
from tests.toy.models import encoder_inputs

# Backbone with pooler, vocabulary 30,522, 512 positions; the counts of the published
# checkpoints (KerasHub presets, google-research/bert README).
PARAMETERS = {"tiny": 4_385_920, "mini": 11_170_560, "base": 109_482_240}

BATCH, LENGTH, PREDICTIONS = 3, 12, 4


def make_inputs(config: BertConfig, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    lengths = np.array([LENGTH, 7, 3])
    padding_mask = np.arange(LENGTH) < lengths[:, None]
    token_ids = rng.integers(5, config.vocabulary_size, (BATCH, LENGTH)) * padding_mask
    inputs = encoder_inputs(token_ids) | {
        "segment_ids": (np.arange(LENGTH) >= 2) & padding_mask,
        "mask_positions": rng.integers(0, 3, (BATCH, PREDICTIONS)),
        "first_positions": np.zeros((BATCH, 1)),
    }
    return {name: value.astype("int32") for name, value in inputs.items()}


@pytest.fixture(scope="module")
def pretrainer(one_layer):
    keras.utils.set_random_seed(1)
    return BertPretrainer(BertBackbone(one_layer))


def test_parameter_counts():
    counts = {}
    for size in PARAMETERS:
        with keras.StatelessScope(initialize_variables=False):  # Shapes only.
            backbone = BertBackbone(BertConfig.from_size(size, vocabulary_size=30_522))
            counts[size] = backbone.count_params()
    keras.utils.clear_session()  # Keras would initialize them with the next model.
    assert counts == PARAMETERS


def test_packed_rows_give_the_logits_of_unpacked_rows(pretrainer, one_layer):
    inputs = make_inputs(one_layer, seed=3)
    lengths = inputs["padding_mask"].sum(1)  # 12, 7, 3
    rows = {"padding_mask": np.array([[1] * 12 + [0] * 3, [1] * 10 + [0] * 5], "int32")}
    for name in ("token_ids", "segment_ids"):
        first, second, third = (v[:n] for v, n in zip(inputs[name], lengths))
        rows[name] = np.zeros((2, 15), "int32")
        rows[name][0, :12] = first
        rows[name][1, :10] = np.concatenate([second, third])
    rows["first_positions"] = np.array([[0, 0], [0, 7]], "int32")
    positions = inputs["mask_positions"]
    rows["mask_positions"] = np.zeros((2, 2 * PREDICTIONS), "int32")
    rows["mask_positions"][0, :PREDICTIONS] = positions[0]
    rows["mask_positions"][1] = np.concatenate([positions[1], positions[2] + 7])
    alone, together = pretrainer(inputs), pretrainer(rows)
    assert together["nsp"].shape == (2, 2, 2)
    for head, size in (("mlm", PREDICTIONS), ("nsp", 1)):
        expected = np.reshape(alone[head], (BATCH, size, -1))
        found = np.array(together[head])
        found = [found[0, :size], found[1, :size], found[1, size:]]
        np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize("activation", fused.ACTIVATIONS)
def test_layers_in_training_equal_inference(one_layer, activation):
    layer = modeling.EncoderLayer(dataclasses.replace(one_layer, activation=activation))
    x, mask = 3 * keras.random.normal((1, 50, 16), seed=1), np.ones((1, 50))
    layer(x, mask)  # Builds it.
    for dense in (layer.intermediate, layer.output_dense):
        dense.kernel.assign(keras.random.normal(dense.kernel.shape, seed=2))
    # The two forms of GELU differ by up to 5e-4.
    np.testing.assert_allclose(layer(x, mask, training=True), layer(x, mask), atol=1e-5)


def test_initialization_is_truncated_normal(one_layer):
    backbone = BertBackbone(dataclasses.replace(one_layer, vocabulary_size=5000))
    table = backbone.embeddings.token_embedding.embeddings.numpy()
    assert np.abs(table).max() <= 2 * 0.02 + 1e-6
    # Cutting a normal distribution at two deviations leaves 0.88 of its deviation.
    np.testing.assert_allclose(table.std(), 0.88 * 0.02, rtol=0.02)


def test_gradients_in_training_equal_autodiff_of_inference(one_layer):
    rates = {"dropout": 0.1, "attention_dropout": 0.1}
    config = dataclasses.replace(one_layer, **rates)
    model = BertPretrainer(BertBackbone(config))
    for layer in keras_private.nested_layers(model):
        if isinstance(layer, modeling.Dropout):
            layer.rate = 0.0  # The layers may have other rates than the config.
    for weight in model.weights:
        weight.assign(weight * 5)  # So that no gradient is tiny.
    inputs = tf.nest.map_structure(tf.constant, make_inputs(one_layer))

    def gradients(training):
        def both_passes(inputs):
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=training)
                loss = sum(tf.reduce_logsumexp(outputs[head]) for head in outputs)
            return tape.gradient(loss, [w.value for w in model.trainable_weights])

        return [tf.convert_to_tensor(g) for g in both_passes(inputs)]

    found, expected = gradients(training=True), gradients(training=False)
    for weight, a, b in zip(model.trainable_weights, found, expected, strict=True):
        tolerance = 2e-5 * np.abs(b).max() + 1e-7
        np.testing.assert_allclose(a, b, atol=tolerance, err_msg=weight.path)


@pytest.mark.parametrize("of_the_session", [False, True])
def test_mixed_bfloat16_is_close_to_float32(one_layer, pretrainer, of_the_session):
    policy = "mixed_bfloat16"
    keras.config.set_dtype_policy(policy if of_the_session else "float32")
    try:
        backbone = BertBackbone(one_layer, dtype=None if of_the_session else policy)
        mixed = BertPretrainer(backbone)
    finally:
        keras.config.set_dtype_policy("float32")
    mixed.set_weights(pretrainer.get_weights())
    inputs = make_inputs(one_layer)
    exact, rounded = pretrainer(inputs), mixed(inputs)
    assert backbone.embeddings.compute_dtype == "bfloat16"
    assert rounded["mlm"].dtype == rounded["nsp"].dtype == "float32"
    np.testing.assert_allclose(rounded["mlm"], exact["mlm"], atol=0.03)


def test_recomputation_keeps_only_the_input_of_a_layer(one_layer):
    config = dataclasses.replace(one_layer, dropout=0.3, attention_dropout=0.3)
    layer = modeling.EncoderLayer(config, recompute=True)
    x, mask = tf.ones([16, 8, 16]), tf.ones([16, 8])
    layer(x, mask)
    kept = kept_tensors(lambda x: layer(x, mask, training=True), x)
    # Weights and seeds are smaller.
    (large,) = [t for t in kept if t.shape.num_elements() >= 16 * 8 * 16]
    assert large.shape == x.shape


def test_recomputation_draws_the_same_dropout_masks(one_layer):
    config = dataclasses.replace(one_layer, dropout=0.3, attention_dropout=0.3)
    x, mask = tf.random.stateless_normal([4, 8, 16], [1, 2]), tf.ones([4, 8])

    def results(recompute):
        keras.utils.set_random_seed(4)
        layer = modeling.EncoderLayer(config, recompute=recompute)
        layer(x, mask)
        run = functools.partial(layer, attention_mask=mask, training=True)
        weights = layer.trainable_weights
        return value_and_gradients(run, [x], tf.ones_like(x), in_graph, weights)

    assert_equal(results(False), results(True), atol=1e-5)
