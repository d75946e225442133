# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What people do with Keras models, where it depends on code of this package.

docs/migration.md lists what cannot work.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import data, heads
from tests.toy.checkpoints import assert_equal

ROWS, LENGTH = 8, 6
IDS = np.random.default_rng(0).integers(5, 40, (ROWS, LENGTH)).astype("int32")
MASK = np.ones_like(IDS)
MASK[1::2, 4:] = 0
X = {"token_ids": IDS, "segment_ids": IDS % 2, "padding_mask": MASK}
Y = np.arange(ROWS) % 2
CONFIG = bert_tf.BertConfig.from_size(
    "2/8/2", 40, dropout=0.0, attention_dropout=0.0, max_sequence_length=8
)
close = np.testing.assert_allclose


@pytest.fixture(autouse=True)
def eagerly_unless_slow(request):
    """Tracing would take most of the time."""
    tf.config.run_functions_eagerly(not request.node.get_closest_marker("slow"))
    yield
    tf.config.run_functions_eagerly(False)


def encoder():
    keras.utils.set_random_seed(1)
    return bert_tf.BertBackbone(CONFIG)


def classifier(optimizer=None, classes=2, model=heads.SequenceClassifier, **compiled):
    model = model(encoder(), classes)
    model.compile(optimizer or keras.optimizers.SGD(0.1), **compiled)
    return model


def fit(model, x=X, y=Y, **options):
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, **options).history


def trained(model=None, **options):
    model = model or classifier()
    fit(model, **options)
    return model


# --- Training ------------------------------------------------------------------------


class OwnStep(heads.SequenceClassifier):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"own": loss}


def assert_trains_alike(model, /, **options):
    expected = trained(**options).get_weights()
    assert_equal(trained(model).get_weights(), expected, atol=1e-5)


def test_custom_train_step():
    model = classifier(model=OwnStep)
    assert_trains_alike(model)
    assert "own" in model.history.history


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jit_compile", "steps_per_execution"])
def test_arguments_of_compile(name):
    value = {"jit_compile": True, "steps_per_execution": 2}[name]
    assert_trains_alike(classifier(**{name: value}))


@pytest.mark.slow
def test_accumulated_gradients():
    accumulating = bert_tf.AdamW(0.1, gradient_accumulation_steps=2)
    plain = classifier(bert_tf.AdamW(0.1))
    assert_trains_alike(classifier(accumulating), model=plain, batch_size=8)


def test_custom_compute_loss():
    class Distilled(heads.SequenceClassifier):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean((y_pred - y) ** 2)

    student, target = classifier(model=Distilled), np.array(classifier()(X)) + 1
    losses = fit(student, y=target, epochs=2)["loss"]
    assert losses[1] < losses[0]


def test_learning_rates_of_keras():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model = trained(classifier(bert_tf.AdamW(schedule)))
    close(model.optimizer.learning_rate, schedule(2))
    model = classifier(bert_tf.AdamW(0.1))
    halve = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    fit(model, epochs=2, callbacks=[halve])
    close(model.optimizer.learning_rate, 0.05)


def test_moving_average_of_weights():
    model = classifier(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5))
    weight, values = model.trainable_variables[0], []
    for rows in (slice(4), slice(4, 8)):
        model.train_on_batch({name: x[rows] for name, x in X.items()}, Y[rows])
        values.append(np.array(weight))
    model.optimizer.finalize_variable_values(model.trainable_variables)
    close(weight, np.mean(values, axis=0), atol=1e-6)


def test_early_stopping_and_loggers(tmp_path):
    callbacks, file = keras.callbacks, tmp_path / "log.csv"
    model = classifier(keras.optimizers.SGD(10.0))
    stop = callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    board = callbacks.TensorBoard(str(tmp_path), write_graph=False)
    given = [stop, callbacks.CSVLogger(str(file)), board]
    history = fit(model, epochs=5, callbacks=given, validation_data=(X, Y))
    assert len(history["loss"]) < 5
    assert model.evaluate(X, Y, verbose=0)[0] == pytest.approx(min(history["val_loss"]))
    logged = [float(row["loss"]) for row in data.read_table(file)]
    assert logged == pytest.approx(history["loss"])
    assert [*tmp_path.rglob("events.*")]


def test_frozen_layers_stay_the_same():
    model = classifier()
    layers = model.backbone.embeddings, model.backbone.encoder_layers[0]
    for layer in layers:
        layer.trainable = False
    model.compile(keras.optimizers.SGD(0.1))
    before = [layer.get_weights() for layer in layers]
    others = np.array(model.backbone.encoder_layers[1].query.kernel)
    fit(model)
    assert_equal([layer.get_weights() for layer in layers], before)
    assert np.abs(others - model.backbone.encoder_layers[1].query.kernel).max() > 0


def test_lora():
    model = classifier()
    model.backbone.trainable = False
    for layer in model.backbone.encoder_layers:
        layer.query.enable_lora(2)
        layer.value.enable_lora(2)
    model.compile(keras.optimizers.SGD(0.5))
    layer = model.backbone.encoder_layers[0].query
    kernel, logits = np.array(layer._kernel), np.array(model(X))
    fit(model, epochs=2)
    np.testing.assert_array_equal(kernel, layer._kernel)
    assert np.abs(model(X) - logits).max() > 1e-4
    product = np.array(layer.lora_kernel_a) @ np.array(layer.lora_kernel_b)
    close(layer.kernel, kernel + product, atol=1e-6)  # lora_alpha is the rank.


# --- Models --------------------------------------------------------------------------


def test_names_lead_to_layers_and_weights():
    model = classifier()
    query = model.get_layer(model.backbone.name)
    assert query.get_layer("encoder_layer_1").query.kernel.shape == (8, 8)
    paths = [weight.path for weight in model.weights]
    assert len(paths) == len(set(paths))


def test_weights_for_another_number_of_classes(tmp_path):
    a, b = trained(), classifier(classes=5)
    head = b.get_layer("logits").get_weights()
    a.save_weights(tmp_path / "a.weights.h5")
    with pytest.warns(UserWarning, match="object <Dense name=logits"):
        b.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True)
    assert_equal(a.backbone.get_weights(), b.backbone.get_weights())
    close(b.get_layer("logits").get_weights()[0], head[0])


def test_clone_of_a_model_on_the_encoder():
    backbone = encoder()
    pooled = backbone(backbone.input)["pooled_output"]
    model = keras.Model(backbone.input, keras.layers.Dense(1)(pooled))
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    close(clone(X), model(X), atol=1e-6)


@pytest.mark.slow
def test_export_of_keras(tmp_path):
    model = classifier()
    model.export(tmp_path / "saved", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "saved")
    answer = loaded.serve({name: tf.constant(x) for name, x in X.items()})
    close(answer, model(X), atol=1e-6)
