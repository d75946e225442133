# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What people do with Keras models: each habit, compared with a plain computation.

docs/migration.md lists what cannot work.
"""

import copy
import csv
import dataclasses
import functools
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import heads

ROWS, LENGTH = 8, 6
RNG = np.random.default_rng(0)
IDS = RNG.integers(5, 40, (ROWS, LENGTH)).astype("int32")
MASK = np.ones_like(IDS)
MASK[1::2, 4:] = 0
X = {"token_ids": IDS, "segment_ids": IDS % 2, "padding_mask": MASK}
Y = np.arange(ROWS) % 2
SCORES = Y.astype("float32")
HALVES = (slice(4), slice(4, 8))
CONFIG = bert_tf.BertConfig(
    vocabulary_size=40,
    num_layers=2,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=16,
    dropout=0.0,
    attention_dropout=0.0,
    max_sequence_length=8,
)
close = np.testing.assert_allclose


@pytest.fixture(autouse=True)
def eagerly_unless_slow(request):
    """Tracing would take most of the time."""
    tf.config.run_functions_eagerly(not request.node.get_closest_marker("slow"))
    yield
    tf.config.run_functions_eagerly(False)


def encoder(**changes):
    keras.utils.set_random_seed(1)
    return bert_tf.BertBackbone(dataclasses.replace(CONFIG, **changes))


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


def take(rows):
    return {name: values[rows] for name, values in X.items()}


def assert_same_weights(a, b, **tolerance):
    for x, y in zip(a.weights, b.weights, strict=True):
        close(x, y, **{"atol": 1e-6, **tolerance})


# --- Training: equal weights after training in two ways ----------------------------


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, i):
        return take(HALVES[i]), Y[HALVES[i]]


def endless():
    while True:
        yield from Batches()


class OwnStep(heads.SequenceClassifier):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(loss, variables), variables)
        return {"own": loss}


def own_step():
    model = classifier(model=OwnStep)
    assert "own" in fit(model)
    return model


def gradient_tape():
    own = classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        value = loss(Y, own(X, training=True))
    gradients = tape.gradient(value, own.trainable_variables)
    own.optimizer.apply_gradients(zip(gradients, own.trainable_variables))
    return own


def train_on_batch():
    model = classifier()
    model.train_on_batch(X, Y)
    return model


def with_dropout():
    keras.utils.set_random_seed(3)
    model = bert_tf.SequenceClassifier(encoder(dropout=0.5), 2)
    model.compile(keras.optimizers.SGD(0.1))
    return trained(model, epochs=2)


def accumulated(optimizer):
    return trained(classifier(optimizer(0.1, gradient_accumulation_steps=2)))


def whole():
    return trained(batch_size=8)


DATASET = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
ENDLESS = {"y": None, "batch_size": None, "steps_per_epoch": 2}
NO_WEIGHT = {"sample_weight": np.repeat([1.0, 0.0], 4), "batch_size": 8}
# Keras divides by the number of rows, those of weight 0 included.
HALF_WEIGHT = {"x": take(slice(4)), "y": Y[:4], "sample_weight": np.full(4, 0.5)}
CLASSES = {"sample_weight": np.where(Y == 1, 2.0, 0.5)}

# Each habit, and a plain training.
TRAINING = {
    "dataset": (lambda: trained(x=DATASET, y=None, batch_size=None), trained),
    "PyDataset": (lambda: trained(x=Batches(), y=None, batch_size=None), trained),
    "generator": (lambda: trained(x=endless(), **ENDLESS), trained),
    "class_weight": (
        lambda: trained(class_weight={0: 0.5, 1: 2.0}),
        lambda: trained(**CLASSES),
    ),
    "weight 0": (lambda: trained(**NO_WEIGHT), lambda: trained(**HALF_WEIGHT)),
    "train_on_batch": (train_on_batch, whole),
    "GradientTape": (gradient_tape, whole),
    "train_step": (own_step, trained),
    "accumulation": (lambda: accumulated(keras.optimizers.SGD), whole),
    "accumulation, AdamW": (
        lambda: accumulated(bert_tf.AdamW),
        lambda: trained(classifier(bert_tf.AdamW(0.1)), batch_size=8),
    ),
    "jit_compile": (lambda: trained(classifier(jit_compile=True)), trained),
    "steps": (lambda: trained(classifier(steps_per_execution=2)), trained),
    "dropout with a seed": (with_dropout, with_dropout),
}
# The habits that need graphs.
SLOW = ("accumulation, AdamW", "jit_compile", "steps", "dropout with a seed")
SLOW += ("export", "tf.function")


def names(table):
    slow = pytest.mark.slow
    return [pytest.param(n, marks=slow) if n in SLOW else n for n in table]


@pytest.mark.parametrize("name", names(TRAINING))
def test_weights_equal_those_of_a_plain_training(name):
    habit, plain = TRAINING[name]
    assert_same_weights(habit(), plain(), atol=1e-5)


# --- Saving: equal outputs of a copy -------------------------------------------------


@keras.saving.register_keras_serializable("habits")
class Scorer(keras.Model):
    def __init__(self, backbone, **kwargs):
        super().__init__(**kwargs)
        self.backbone = backbone
        self.score = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        return self.score(self.backbone(inputs, training=training)["pooled_output"])

    def get_config(self):
        return {"backbone": keras.saving.serialize_keras_object(self.backbone)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["backbone"]))


def saved(model, path):
    model.save(path / "model.keras")
    return keras.saving.load_model(path / "model.keras")


def scorer():
    model = Scorer(encoder())
    model.compile("sgd", "mse")
    return trained(model, y=SCORES)


def own_model():
    backbone = encoder()
    pooled = backbone(backbone.input)["pooled_output"]
    return keras.Model(backbone.input, keras.layers.Dense(1)(pooled))


def cloned(model, path):
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def from_config(model, path):
    again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    return again


def weights_file(model, path):
    model.save_weights(path / "a.weights.h5")
    other = classifier()
    other.load_weights(path / "a.weights.h5")
    return other


def saved_by_callback(model, path):
    file = path / "best.keras"
    saving = keras.callbacks.ModelCheckpoint(file, "loss", save_best_only=True)
    fit(model, epochs=2, callbacks=[saving])
    return keras.saving.load_model(file)


def exported(model, path):
    model.export(path / "saved", verbose=False)
    loaded = tf.saved_model.load(path / "saved")
    return lambda x: on_tensors(loaded.serve)(x)  # Keeps `loaded` alive.


def on_tensors(function):
    return lambda x: function({name: tf.constant(v) for name, v in x.items()})


def padded(model, path):
    pad = ((0, 0), (0, 2))
    return lambda x: model({name: np.pad(v, pad) for name, v in x.items()})


def stateless(model, path):
    trainable, others = model.trainable_variables, model.non_trainable_variables
    values = [w.value for w in trainable], [w.value for w in others]
    return lambda x: model.stateless_call(*values, x)[0]


THREE = {"batch_size": 3, "verbose": 0}

# A model, and what must have the same outputs.
COPIES = {
    "ModelCheckpoint": (classifier, saved_by_callback),
    "save_weights": (trained, weights_file),
    "subclassed model": (scorer, saved),
    "clone_model": (encoder, cloned),
    "clone_model of an own model": (own_model, cloned),
    "pickle": (classifier, lambda m, _: pickle.loads(pickle.dumps(m))),
    "deepcopy": (encoder, lambda m, _: copy.deepcopy(m)),
    "from_config": (classifier, from_config),
    "export": (classifier, exported),
    "tf.function": (classifier, lambda m, _: on_tensors(tf.function(m))),
    "predict": (classifier, lambda m, _: functools.partial(m.predict, **THREE)),
    "predict_on_batch": (classifier, lambda m, _: m.predict_on_batch),
    "trailing padding": (classifier, padded),
    "stateless_call": (classifier, stateless),
}


@pytest.mark.parametrize("name", names(COPIES))
def test_outputs_of_a_copy_are_the_same(name, tmp_path):
    build, copied = COPIES[name]
    model = build()
    other = copied(model, tmp_path)
    outputs = (keras.tree.flatten(m(X)) for m in (model, other))
    for ours, theirs in zip(*outputs, strict=True):
        close(ours, theirs, atol=1e-6)


def test_weights_for_another_number_of_classes(tmp_path):
    a, b = trained(), classifier(classes=5)
    head = b.get_layer("logits").get_weights()
    a.save_weights(tmp_path / "a.weights.h5")
    with pytest.warns(UserWarning, match="object <Dense name=logits"):
        b.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True)
    assert_same_weights(a.backbone, b.backbone, atol=0)
    close(b.get_layer("logits").get_weights()[0], head[0])


# --- Models on an encoder: equal to a computation by hand ----------------------------


def bidirectional_lstm_with_a_mask():
    backbone = encoder()
    hidden = backbone.output["sequence_output"]
    mask = backbone.input["padding_mask"] != 0
    lstm = keras.layers.Bidirectional(keras.layers.LSTM(3))
    model = keras.Model(backbone.input, lstm(hidden, mask=mask))
    shorter = {name: x[1:2, :4] for name, x in X.items()}
    return model(take(slice(1, 2))), model(shorter)


def average_pooling_with_a_mask():
    backbone = encoder()
    hidden, mask = backbone.output["sequence_output"], backbone.input["padding_mask"]
    pooled = keras.layers.GlobalAveragePooling1D()(hidden, mask=mask != 0)
    states = np.array(backbone(X)["sequence_output"]) * MASK[..., None]
    expected = states.sum(1) / MASK.sum(1, keepdims=True)
    return keras.Model(backbone.input, pooled)(X), expected


def time_distributed():
    backbone = encoder()
    ids = keras.Input((None,), dtype="int32")
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
    pooled = keras.Model(ids, backbone(inputs)["pooled_output"])
    outer = keras.Input((None, LENGTH), dtype="int32")
    model = keras.Model(outer, keras.layers.TimeDistributed(pooled)(outer))
    return model(IDS.reshape(2, 4, LENGTH)), np.reshape(pooled(IDS), (2, 4, -1))


def hidden_states():
    backbone, shorter = encoder(), encoder(num_layers=1)
    model = keras.Model(backbone.input, backbone.hidden_states[1])
    weights = {weight.path: weight for weight in backbone.weights}
    for weight in shorter.weights:
        weight.assign(weights[weight.path])
    return model(X), shorter(X)["sequence_output"]


def towers_with_shared_and_with_own_weights():
    shared = encoder()
    other = bert_tf.BertBackbone(dataclasses.asdict(CONFIG), name="other")
    towers, inputs = [], []
    for prefix, tower in (("a", shared), ("b", shared), ("c", other)):
        x = {n: keras.Input((None,), dtype="int32", name=f"{prefix}_{n}") for n in X}
        towers.append(tower(x)["pooled_output"])
        inputs.append(x)
    scores = keras.layers.Dot(1)([towers[0], towers[1]]) + 0 * towers[2][:, :1]
    x = np.array(shared(X)["pooled_output"])
    return keras.Model(inputs, scores)([X, X, X])[:, 0], (x * x).sum(1)


def several_outputs():
    backbone = encoder()
    tokens, pooled = (backbone.output[n] for n in ("sequence_output", "pooled_output"))
    outputs = {
        "tags": keras.layers.Dense(3, name="tags")(tokens),
        "score": keras.layers.Dense(1, name="score")(pooled),
    }
    model = keras.Model(backbone.input, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    weights = {"tags": 2, "score": 1}
    model.compile("sgd", {"tags": loss, "score": "mse"}, loss_weights=weights)
    targets = {"tags": IDS % 3, "score": SCORES}
    tags, score = (model(X)[name] for name in ("tags", "score"))
    expected = 2 * loss(targets["tags"], tags) + np.mean((Y - score[:, 0]) ** 2)
    return model.test_on_batch(X, targets)[0], expected


def add_loss_in_a_layer():
    class Penalty(keras.layers.Layer):
        def call(self, x):
            self.add_loss(0.1 * keras.ops.mean(x**2))
            return x

    backbone = encoder()
    pooled = Penalty()(backbone.output["pooled_output"])
    model = keras.Model(backbone.input, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    expected = np.mean((SCORES[:, None] - model(X)) ** 2)
    expected += 0.1 * np.mean(np.square(backbone(X)["pooled_output"]))
    return model.test_on_batch(X, SCORES), expected


def validation_split():
    model = classifier(metrics=["accuracy"])
    history = fit(model, validation_split=0.25)
    expected = model.evaluate(take(slice(6, 8)), Y[6:], verbose=0)
    return [history["val_loss"][0], history["val_accuracy"][0]], expected


def metrics():
    top = keras.metrics.SparseTopKCategoricalAccuracy(1, name="top")
    model = classifier(metrics=["accuracy", top], weighted_metrics=["accuracy"])
    values = model.evaluate(X, Y, verbose=0, return_dict=True)
    accuracy = np.mean(np.argmax(model(X), 1) == Y)
    return [values["accuracy"], values["top"]], [accuracy, accuracy]


def exponential_moving_average():
    model = classifier(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5))
    values = []
    for rows in HALVES:
        model.train_on_batch(take(rows), Y[rows])
        values.append(np.array(model.trainable_variables[0]))
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return model.trainable_variables[0], np.mean(values, axis=0)


def schedule_of_keras():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model = trained(classifier(bert_tf.AdamW(schedule)))
    return model.optimizer.learning_rate, schedule(2)


def learning_rate_callbacks():
    callbacks = (
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
        keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=0, min_delta=9),
    )
    models = [classifier(bert_tf.AdamW(0.1)) for _ in callbacks]
    for model, callback in zip(models, callbacks):
        fit(model, epochs=2, callbacks=[callback])
    return [float(model.optimizer.learning_rate) for model in models], [0.05, 0.05]


def early_stopping_with_the_best_weights():
    model = classifier(keras.optimizers.SGD(10.0))
    stop = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    history = fit(model, epochs=5, callbacks=[stop], validation_data=(X, Y))
    assert len(history["loss"]) < 5
    return model.evaluate(X, Y, verbose=0)[0], min(history["val_loss"])


def search_that_builds_many_models():
    """As KerasTuner does: build, fit, compare, again with `clear_session`."""
    losses = []
    for rate in (0.1, 0.01, 0.1):
        keras.backend.clear_session()
        losses.append(fit(classifier(keras.optimizers.SGD(rate)), epochs=2)["loss"][-1])
    assert losses[0] != losses[1]
    return losses[0], losses[2]


@pytest.mark.parametrize(
    "habit",
    [
        *(bidirectional_lstm_with_a_mask, average_pooling_with_a_mask),
        *(time_distributed, hidden_states, towers_with_shared_and_with_own_weights),
        *(several_outputs, add_loss_in_a_layer, validation_split, metrics),
        *(exponential_moving_average, schedule_of_keras, learning_rate_callbacks),
        early_stopping_with_the_best_weights,
        pytest.param(search_that_builds_many_models, marks=pytest.mark.slow),
    ],
)
def test_values_equal_a_plain_computation(habit):
    close(*habit(), rtol=1e-5, atol=1e-5)


# --- Callbacks ---------------------------------------------------------------------


@pytest.mark.slow
def test_backup_and_restore(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def build():
        return classifier(bert_tf.AdamW(bert_tf.WarmupDecay(0.01, 2, 8)))

    whole, resumed = trained(build(), epochs=4), build()
    backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    with pytest.raises(KeyboardInterrupt):
        fit(build(), epochs=4, callbacks=[backup, Interrupt()])
    resumed.build({name: x.shape for name, x in X.items()})
    resumed.optimizer.build(resumed.trainable_variables)
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    assert len(fit(resumed, epochs=4, callbacks=[backup])["loss"]) == 2
    assert_same_weights(whole, resumed)


def test_loggers(tmp_path):
    file, seen = tmp_path / "log.csv", []
    callbacks = [
        keras.callbacks.CSVLogger(str(file)),
        keras.callbacks.TensorBoard(str(tmp_path), write_graph=False),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(logs)
        ),
    ]
    (loss,) = fit(classifier(), callbacks=callbacks)["loss"]
    (row,) = csv.DictReader(file.read_text().splitlines())
    assert float(row["loss"]) == pytest.approx(loss)
    assert seen[0]["loss"] == loss


# --- Layers and weights ------------------------------------------------------------


def test_names_lead_to_layers_and_weights():
    model, lines = classifier(), []
    query = model.get_layer(model.backbone.name)
    assert query.get_layer("encoder_layer_1").query.kernel.shape == (8, 8)
    paths = [weight.path for weight in model.weights]
    assert len(paths) == len(set(paths))
    assert model.count_params() == sum(np.prod(w.shape) for w in model.weights)
    model.summary(expand_nested=True, print_fn=lines.append)
    assert "encoder_layer_1" in "\n".join(map(str, lines))
    pytest.importorskip("pydot")
    assert keras.utils.model_to_dot(model)


@pytest.mark.parametrize("frozen", ["all", "embeddings and a layer"])
def test_frozen_layers_stay_the_same(frozen):
    model = classifier()
    backbone = model.backbone
    layers = [backbone]
    if frozen != "all":
        layers = [backbone.embeddings, backbone.encoder_layers[0]]
    for layer in layers:
        layer.trainable = False
    model.compile(keras.optimizers.SGD(0.1))
    before = [layer.get_weights() for layer in layers]
    others = np.array(model.get_layer("logits").kernel)
    fit(model)
    for layer, weights in zip(layers, before):
        for old, new in zip(weights, layer.weights):
            np.testing.assert_array_equal(old, new)
    assert np.abs(others - model.get_layer("logits").kernel).max() > 0


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
    merged = kernel + layer.lora_alpha / layer.lora_rank * product
    close(layer.kernel, merged, atol=1e-6)


# --- Training ----------------------------------------------------------------------


def test_custom_compute_loss():
    class Distilled(heads.SequenceClassifier):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean((y_pred - y) ** 2)

    student, target = classifier(model=Distilled), np.array(classifier()(X)) + 1
    losses = fit(student, y=target, epochs=3)["loss"]
    assert losses[2] < losses[0]


def test_clipped_gradients():
    model = classifier(keras.optimizers.SGD(1.0, global_clipnorm=1e-3))
    before = model.get_weights()
    model.train_on_batch(X, Y)
    steps = [a - b for a, b in zip(before, model.get_weights(), strict=True)]
    # Keras counts a token once per occurrence, so the norm is smaller with SGD.
    assert 5e-4 < np.sqrt(sum((step**2).sum() for step in steps)) < 1.001e-3


@pytest.mark.slow
def test_compiling_twice_changes_the_optimizer():
    model = trained()
    model.compile(bert_tf.AdamW(0.01), metrics=["accuracy"])
    assert "accuracy" in fit(model)


def test_policy_of_the_session():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = classifier()
    finally:
        keras.config.set_dtype_policy("float32")
    full = classifier()
    half.set_weights(full.get_weights())
    assert half.backbone.embeddings.compute_dtype == "bfloat16"
    assert half(X).dtype == tf.float32
    close(half(X), full(X), atol=0.03)


def test_saliency():
    """Gradients with respect to the embeddings of tokens."""
    model = classifier()
    embeddings = model.backbone.embeddings.token_embedding.embeddings
    with tf.GradientTape() as tape:
        score = keras.ops.sum(model(X)[:, 1])
    gradient = tf.convert_to_tensor(tape.gradient(score, embeddings.value))
    used = np.unique(IDS[MASK > 0])
    assert (np.abs(gradient).sum(1) > 0).nonzero()[0].tolist() == used.tolist()
