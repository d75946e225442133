# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras layers on hidden states do not see padding."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import heads, text
from bert_tf.modeling import BertBackbone, BertPretrainer
from tests.toy.models import encoder_inputs, randomize_weights

layers = keras.layers
SHORT, LONG = [2, 7, 8, 3], [2, 7, 9, 8, 9, 7, 9, 3]
ALONE, PADDED = encoder_inputs([SHORT]), encoder_inputs([[*SHORT, 0, 0, 0, 0], LONG])


def attention(x):
    x = layers.MultiHeadAttention(2, 8)(x, x)
    return layers.GlobalAveragePooling1D()(x)


POOLING = {
    "average": lambda x: layers.GlobalAveragePooling1D()(x),
    "lstm": lambda x: layers.LSTM(3)(x),
    "bidirectional": lambda x: layers.Bidirectional(layers.GRU(3))(x),
    "attention": attention,
}


@pytest.fixture(scope="module")
def backbone(one_layer):
    return randomize_weights(BertBackbone(one_layer))


def largest_change(model, inputs=(ALONE, PADDED)):
    """Returns how much the output for a text depends on the length of its batch."""
    outputs = [np.array(model(x))[0] for x in inputs]
    return np.abs(outputs[0] - outputs[1]).max()


@pytest.mark.parametrize("pooling", POOLING)
def test_answer_does_not_depend_on_the_batch(backbone, pooling, tmp_path):
    x = backbone(backbone.input)["sequence_output"]
    model = keras.Model(backbone.input, POOLING[pooling](x))
    assert largest_change(model) < 1e-5
    if pooling != "lstm":
        return
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    archive = keras.export.ExportArchive()  # `export` of Keras 3.8 passes lists.
    archive.track(model)
    specs = {k: tf.TensorSpec(x.shape, x.dtype, k) for k, x in model.input.items()}
    archive.add_endpoint("serve", lambda inputs: model(inputs), [specs])
    archive.write_out(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    for other in (loaded, clone, exported.serve, tf.function(model)):
        assert largest_change(other) < 1e-5
        np.testing.assert_allclose(other(PADDED), model(PADDED), atol=1e-5)


def test_hidden_states_of_each_layer_have_the_mask(backbone):
    for x in backbone.hidden_states:
        model = keras.Model(backbone.input, layers.GlobalAveragePooling1D()(x))
        assert largest_change(model) < 1e-5


def test_models_that_start_with_strings(backbone, vocabulary):
    texts = keras.Input((), dtype="string")
    x = backbone(text.Tokenizer(vocabulary)(texts))["sequence_output"]
    model = keras.Model(texts, layers.GlobalAveragePooling1D()(x))
    batches = [tf.constant(["a cat"]), tf.constant(["a cat", "the cats sat on mats."])]
    assert largest_change(model, batches) < 1e-5


def test_packed_rows_have_the_mask(backbone):
    model = BertPretrainer(backbone)
    row = {"mask_positions": [[1]], "first_positions": [[0, 4, 0]]}
    inputs = {name: np.array(x, "int32") for name, x in row.items()}
    inputs |= encoder_inputs([[*SHORT, *SHORT, 0, 0]])
    unpack = keras.saving.get_registered_object("bert_tf>UnpackRows")()
    mask, positions = unpack(inputs["padding_mask"], inputs["first_positions"])
    x = backbone.encode(inputs["token_ids"], inputs["segment_ids"], mask, positions)[-1]
    pooled = layers.GlobalAveragePooling1D()(x)
    np.testing.assert_allclose(pooled[0], np.mean(x[0, :8], axis=0), atol=1e-5)
    np.testing.assert_allclose(x[0, :4], x[0, 4:8], atol=1e-5)
    assert all(np.isfinite(value).all() for value in model(inputs).values())


def test_outputs_of_heads_have_no_mask(backbone):
    """Keras would ignore padding in their losses, and divide by the tokens."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Nor does a layer warn that it loses the mask.
        embedding = heads.EmbeddingConfig(max_sequence_length=8)
        models = [
            heads.TokenClassifier(backbone, 3),
            heads.SpanPredictor(backbone),
            heads.SentenceEncoder(backbone, embedding),
            heads.SequenceClassifier(backbone, 3),
        ]
        for model in models:
            for output in keras.tree.flatten(model(PADDED)):
                assert getattr(output, "_keras_mask", None) is None
