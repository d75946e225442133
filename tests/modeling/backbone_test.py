# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0


import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import keras_private
from bert_tf.heads import SequenceClassifier, TokenClassifier
from bert_tf.modeling import BertBackbone, BertPretrainer
from bert_tf.training import AdamW, Muon, WarmupDecay
from tests.toy.checkpoints import assert_equal
from tests.toy.models import encoder_inputs

INPUTS = encoder_inputs([[2, 7, 8, 3]])
PRETRAINING_INPUTS = INPUTS | {
    "mask_positions": np.array([[1, 2]]),
    "first_positions": np.array([[0]]),
}


@pytest.fixture(scope="module")
def classifier(one_layer):
    return SequenceClassifier(BertBackbone(one_layer), num_classes=3)


@pytest.mark.parametrize(
    "build", [lambda x: SequenceClassifier(x, 2), BertPretrainer, None]
)
def test_loss_of_a_float16_encoder_is_scaled(one_layer, build):
    """Without scaling, small gradients are 0. The global policy is float32."""
    backbone = BertBackbone(one_layer, dtype="mixed_float16")
    model = build(backbone) if build else backbone
    model.compile("sgd")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    if build:  # Once.
        model.compile(AdamW(dynamic_loss_scale=True))
        assert isinstance(model.optimizer, AdamW)


def test_gradients_of_keys_in_float16(one_layer):
    def key_after_a_step(dtype):
        keras.utils.set_random_seed(1)
        model = SequenceClassifier(BertBackbone(one_layer, dtype=dtype), 2)
        model.compile(keras.optimizers.SGD(1e3), run_eagerly=True)
        kernel = model.backbone.encoder_layers[0].key.kernel
        before = kernel.numpy()
        model.train_on_batch(INPUTS, np.ones(1))
        return before - kernel.numpy()

    expected, found = map(key_after_a_step, ("float32", "mixed_float16"))
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error < 0.05


def test_frozen_layers_stay_frozen(one_layer):
    """keras-team/keras#12470: layers that are frozen before the model is saved."""
    backbone = BertBackbone(one_layer)
    layer, backbone.trainable = backbone.encoder_layers[0], False
    layer.trainable, layer.query.trainable = True, False
    pooled = backbone.output["pooled_output"]
    own = keras.Model(backbone.input, keras.layers.Dense(2)(pooled))
    models = own, SequenceClassifier(backbone, 2), BertPretrainer(backbone), backbone
    for model, trained in zip(models, (14 + 2, 14 + 2, 14 + 7, 0), strict=True):
        config = model.get_config()
        again = type(model).from_config(config)
        assert model is own or config == model.get_config()  # Keras empties its own.
        names = [[v.path for v in m.trainable_variables] for m in (model, again)]
        assert names[0] == names[1]
        assert len(names[1]) == trained


def test_keras_does_not_quantize_the_encoder(one_layer):
    """The masked-LM head, and training, would misread int8 weights."""
    model = BertPretrainer(BertBackbone(one_layer))
    with pytest.warns(UserWarning, match="quantize"):
        model.quantize("int8")
    layers = keras_private.nested_layers(model)
    assert {layer.quantization_mode for layer in layers} == {None}


def test_masked_lm_head_is_saved_with_its_pretrainer_only(one_layer, tmp_path):
    model = BertPretrainer(BertBackbone(one_layer))
    layers = keras.Model(model.input, model.output["mlm"])
    with pytest.raises(NotImplementedError, match="Call the pre-trainer"):
        layers.save(tmp_path / "layers.keras")
    keras.Model(model.input, model(model.input)["mlm"]).save(tmp_path / "model.keras")
    keras.saving.load_model(tmp_path / "model.keras")


# --- Inputs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "received"),
    [
        (INPUTS | {"start_offsets": np.ones((1, 4))}, "_mask, start_offsets. Pass"),
        ({"token_ids": np.ones((1, 4))}, "Missing data for input|Received: "),
        (list(INPUTS.values()), "the keys .* Received: <class 'list'>"),
    ],
)
def test_only_the_named_inputs_are_taken(classifier, inputs, received):
    classifier.compile()
    for model in (classifier, classifier.backbone):
        with pytest.raises(ValueError, match=received):
            model(inputs)
    if isinstance(inputs, dict):
        with pytest.raises(ValueError, match=received):
            classifier.predict(inputs, verbose=0)
        with pytest.raises(ValueError, match=received):
            classifier.fit(inputs, np.ones(1), verbose=0)


def test_padding_masks_of_all_types_are_equal(classifier):
    mask = np.array([[1, 1, 1, 0]])
    expected, *others = (
        classifier({**INPUTS, "padding_mask": mask.astype(dtype)}).numpy()
        for dtype in ("int32", "bool", "uint8", "int64", "float64")
    )
    assert_equal(others, [expected] * 4)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            INPUTS | {"padding_mask": np.array([[0, 0, 0, -1e4]])},
            "must be 1 for tokens",
        ),
        (dict.fromkeys(INPUTS, np.ones((1, 33), "int32")), "_length` = 32 tokens.*33"),
    ],
    ids=["additive mask", "too long"],
)
def test_invalid_values_are_refused_in_graphs_too(classifier, inputs, message):
    specs = {name: tf.TensorSpec([None, None], x.dtype) for name, x in inputs.items()}
    errors = ValueError, tf.errors.InvalidArgumentError
    for call in (classifier, tf.function(classifier, input_signature=[specs])):
        with pytest.raises(errors, match=message):
            call(inputs)


# --- Training --------------------------------------------------------------------


def test_compile_takes_the_arguments_of_keras(one_layer):
    classifier = SequenceClassifier(BertBackbone(one_layer), num_classes=3)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for arguments, options, names in (
        (("adam", loss), {}, ["loss"]),  # First: Keras keeps earlier metrics.
        (("adam", loss, None, ["accuracy"]), {}, ["accuracy", "loss"]),
        (("adam",), {"metrics": []}, ["loss"]),
        ((), {}, ["accuracy", "loss"]),
    ):
        classifier.compile(*arguments, **options, run_eagerly=True)
        result = classifier.evaluate(INPUTS, np.ones(1), verbose=0, return_dict=True)
        assert sorted(result) == names
    for wrong in ("sparse_categorical_crossentropy", keras.losses.BinaryCrossentropy()):
        with pytest.raises(ValueError, match="returns logits"):
            classifier.compile("sgd", wrong)
    classifier.compile("sgd")
    assert not classifier.jit_compile  # XLA is slower on CPUs.
    classifier.compile("sgd", jit_compile=True)
    assert classifier.jit_compile


def test_training_without_the_pooler_continues(one_layer, tmp_path):
    """From a file of Keras, and after an interruption with BackupAndRestore."""
    folder, labels = tmp_path / "backup", np.ones((1, 4), "int32")

    def build():
        model = TokenClassifier(BertBackbone(one_layer), num_tags=3)
        schedule = WarmupDecay(1e-2, warmup_steps=0, total_steps=9)
        model.compile(Muon(schedule), run_eagerly=True)
        return model

    def interrupt(epoch, logs):
        if epoch == 2:
            model.save(tmp_path / "model.keras")
            raise KeyboardInterrupt

    model, resumed = build(), build()
    stop = keras.callbacks.LambdaCallback(on_epoch_begin=interrupt)
    backup = keras.callbacks.BackupAndRestore(folder)
    with pytest.raises(KeyboardInterrupt):
        model.fit(INPUTS, labels, epochs=3, verbose=0, callbacks=[backup, stop])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    model.fit(INPUTS, labels, verbose=0)
    loaded.fit(INPUTS, labels, verbose=0)
    resumed.fit(INPUTS, labels, epochs=3, verbose=0, callbacks=[backup])
    for other in (loaded, resumed):
        assert int(other.optimizer.iterations) == 3
        assert_equal(model.get_weights(), other.get_weights())


def test_hdf5_is_refused_and_its_weights_load(one_layer, tmp_path):
    model = TokenClassifier(BertBackbone(one_layer), num_tags=3)
    callback = keras.callbacks.ModelCheckpoint(tmp_path / "model.h5")
    callback.set_model(model)
    with pytest.raises(ValueError, match=r"\.keras, or in \.weights\.h5"):
        callback.on_epoch_end(0, {})
    model.save_weights(tmp_path / "x.weights.h5")
    other = TokenClassifier(BertBackbone(one_layer), num_tags=3)
    other.load_weights(tmp_path / "x.weights.h5")
    assert_equal(other.get_weights(), model.get_weights())


def test_training_continues_from_a_keras_file(one_layer, tmp_path):
    model, inputs = BertPretrainer(BertBackbone(one_layer)), PRETRAINING_INPUTS
    labels = {"mlm": np.array([[7, 8]]), "nsp": np.array([[1]])}
    optimizer = AdamW(WarmupDecay(1e-2, warmup_steps=0, total_steps=9))
    model.compile(optimizer, run_eagerly=True)
    model.fit(inputs, labels, epochs=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")

    model.fit(inputs, labels, verbose=0)
    again.fit(inputs, labels, verbose=0)

    assert again.optimizer.iterations == 3
    assert_equal(model.get_weights(), again.get_weights())
