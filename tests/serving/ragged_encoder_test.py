# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.serving.ragged_encoder against Keras models with equal weights."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import BertBackbone, BertConfig
from bert_tf.serving import ragged_encoder
from bert_tf.serving.ragged_encoder import optimize_for_inference
from tests.toy.checkpoints import assert_equal
from tests.toy.models import randomize_weights

IDS = ("token_ids", "segment_ids", "padding_mask")


def batch(*lengths: int, longest: int | None = None) -> dict[str, tf.Tensor]:
    """Random ids of rows with these lengths, padded to the longest."""
    rng = np.random.default_rng(3)
    shape = (len(lengths), longest or max(lengths, default=1))
    arrays = (rng.integers(5, 30, shape), rng.integers(0, 2, shape))
    mask = np.arange(shape[1]) < np.reshape(lengths, [-1, 1])
    return dict(zip(IDS, (tf.constant(x, tf.int32) for x in (*arrays, mask))))


def traced(
    model: tf.keras.Model, **options
) -> tf.types.experimental.PolymorphicFunction:
    """The model for inference as one graph for inputs of all sizes."""
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in IDS}
    return tf.function(optimize_for_inference(model, **options), [specs])


def assert_equals_model(model, inputs, fast):
    expected = model(inputs, training=False)
    outputs = fast(inputs)
    is_token = inputs["padding_mask"].numpy() != 0
    rows = {"sequence_output": is_token, "pooled_output": is_token[:, 0]}
    for name, valid in rows.items():
        found, wanted = outputs[name][valid], expected[name][valid]
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)
    assert not outputs["sequence_output"].numpy()[~is_token].any()
    assert np.isfinite(outputs["pooled_output"]).all()


@pytest.fixture(scope="module")
def backbone(tiny_config) -> BertBackbone:
    return randomize_weights(BertBackbone(tiny_config))


@pytest.fixture(scope="module")
def fast(backbone):
    """Has several chunks for a few texts, and additional layers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ragged_encoder, "_CHUNK_SIZE", 20)
        function = traced(backbone, layers=[0, -2, 2])
        function.get_concrete_function()
        return function


BATCHES = [(), (7,), (5, 32, 1, 9, 9, 3, 17), (32,) * 3, (4, 0, 6), (0, 0)]


@pytest.mark.parametrize("lengths", BATCHES)
def test_outputs_equal_the_model(backbone, fast, lengths):
    assert_equals_model(backbone, batch(*lengths, longest=32), fast)


def test_layers_equal_hidden_states_of_the_model(backbone, fast):
    inputs = batch(5, 32, 1, 9)
    expected = tf.keras.Model(backbone.input, backbone.hidden_states)(inputs)
    is_token = inputs["padding_mask"].numpy() != 0
    outputs = fast(inputs)
    for name, state in (("layer_0", 0), ("layer_-2", 1), ("layer_2", 2)):
        wanted = expected[state] * is_token[:, :, np.newaxis]
        np.testing.assert_allclose(outputs[name], wanted, atol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_batches_have_few_sizes(backbone, monkeypatch):
    """Servers keep a compiled kernel for each size of a matrix."""
    fast, sizes, dense = optimize_for_inference(backbone), [], ragged_encoder._dense

    def record(x, *weights):
        sizes.append(len(x))
        return dense(x, *weights)

    monkeypatch.setattr(ragged_encoder, "_dense", record)
    fast(batch(5, 32, 1, 9, 7))  # 22 and 32 tokens.
    *of_layers, of_pooler = sizes
    assert (set(of_layers), of_pooler) == ({32}, 5)


def test_padding_between_tokens(backbone, fast):
    inputs = batch(9, 9)
    inputs["padding_mask"] *= tf.constant([[1, 0, 1, 1, 0, 1, 1, 1, 1], [1] * 9])
    assert_equals_model(backbone, inputs, fast)


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("activation", ["gelu_erf", "relu"])  # The default is tanh.
def test_activations_and_lora_equal_the_model(activation):
    config = BertConfig.from_size("1/12/3", 30, activation=activation)
    model = BertBackbone(config)
    model.encoder_layers[0].value.enable_lora(2)
    randomize_weights(model)
    assert_equals_model(model, batch(3, 8), optimize_for_inference(model))


@pytest.mark.parametrize("wrong", ["token_ids", "segment_ids", "longer"])
def test_ids_and_positions_out_of_range_fail(fast, wrong):
    inputs = batch(9) if wrong != "longer" else batch(3, longest=33)
    if wrong != "longer":
        inputs[wrong] += 999
    with pytest.raises(tf.errors.InvalidArgumentError):
        fast(inputs)


def test_bfloat16_weights_are_stored_in_bfloat16(one_layer):
    model = randomize_weights(BertBackbone(one_layer))
    half = BertBackbone(one_layer, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    run = traced(half).get_concrete_function()
    kernels = [v.dtype for v in run.variables if v.shape.rank in (2, 4)]
    assert set(kernels) == {tf.bfloat16}
    inputs = batch(5, 32, 9)
    pooled = run(inputs)["pooled_output"]
    assert pooled.dtype == tf.bfloat16
    expected = model(inputs)["pooled_output"]
    np.testing.assert_allclose(tf.cast(pooled, tf.float32), expected, atol=0.15)


def test_graph_does_not_grow_with_layers():
    """It would slow down the first request of servers."""
    sizes = set()
    for num_layers in (2, 4):
        config = BertConfig.from_size(f"{num_layers}/8/2", 30)
        graph = traced(BertBackbone(config)).get_concrete_function().graph
        functions = graph.as_graph_def().library.function
        sizes.add(sum(len(function.node_def) for function in functions))
    assert len(sizes) == 1


@pytest.mark.usefixtures("eagerly")
def test_encoder_of_a_model_is_replaced_and_a_subclass_is_not(backbone, tiny_config):
    class Shallow(BertBackbone):
        def encode(self, *inputs):
            return super().encode(*inputs)[:-1]

    for encoder in (backbone, randomize_weights(Shallow(tiny_config))):
        head = tf.keras.layers.Dense(3)
        pooled = encoder(encoder.input)["pooled_output"]
        model = tf.keras.Model(encoder.input, head(pooled))
        fast, inputs = optimize_for_inference(model), batch(8, 8)
        assert list(fast.input) == list(IDS)
        assert head in fast.layers
        assert (encoder in fast.layers) == (encoder is not backbone)
        np.testing.assert_allclose(fast(inputs), model(inputs), atol=1e-5)


@pytest.mark.usefixtures("eagerly")
def test_keras_layers_on_hidden_states_ignore_padding(backbone):
    states = backbone(backbone.input)["sequence_output"]
    layers = tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.LSTM(3)
    model = tf.keras.Model(backbone.input, [layer(states) for layer in layers])
    inputs = batch(3, 9)
    outputs = optimize_for_inference(model)(inputs)
    assert_equal(outputs, model(inputs), atol=1e-5)
