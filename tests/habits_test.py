# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What people do with Keras models: each habit, compared with a plain computation.

docs/migration.md lists what cannot work.
"""

import copy
import csv
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
    fields = {name: getattr(CONFIG, name) for name in CONFIG.__dataclass_fields__}
    return bert_tf.BertBackbone(bert_tf.BertConfig(**fields | changes))


def classifier(optimizer=None, classes=2, **compiled):
    model = bert_tf.SequenceClassifier(encoder(), classes)
    model.compile(optimizer or keras.optimizers.SGD(0.1), **compiled)
    return model


def fit(model, x=X, y=Y, **options):
    options = {"batch_size": 4, "shuffle": False, "verbose": 0, **options}
    return model.fit(x, y, **options).history


def take(rows):
    return {name: values[rows] for name, values in X.items()}


def assert_same_weights(a, b, **tolerance):
    for x, y in zip(a.weights, b.weights, strict=True):
        close(x, y, **{"atol": 1e-6, **tolerance})


def dataset(x=X, y=Y, batch=4):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)


# --- Data --------------------------------------------------------------------------


def test_datasets_equal_arrays():
    a, b = classifier(), classifier()
    close(fit(a)["loss"], fit(b, dataset(), None, batch_size=None)["loss"], rtol=1e-6)
    assert_same_weights(a, b)


def test_py_dataset():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, i):
            rows = slice(4 * i, 4 * i + 4)
            return take(rows), Y[rows]

    a, b = classifier(), classifier()
    fit(a)
    fit(b, Batches(), None, batch_size=None)
    assert_same_weights(a, b)


def test_generator():
    def batches():
        while True:
            for rows in (slice(4), slice(4, 8)):
                yield take(rows), Y[rows]

    a, b = classifier(), classifier()
    fit(a)
    fit(b, batches(), None, batch_size=None, steps_per_epoch=2)
    assert_same_weights(a, b)


def test_class_weight_equals_sample_weight():
    a, b = classifier(), classifier()
    fit(a, class_weight={0: 0.5, 1: 2.0})
    fit(b, sample_weight=np.where(Y == 1, 2.0, 0.5))
    assert_same_weights(a, b)


def test_rows_of_weight_zero_do_not_count():
    a, b = classifier(), classifier()
    weights = np.array([1.0, 1, 1, 1, 0, 0, 0, 0])
    fit(a, sample_weight=weights, batch_size=8)
    # Keras divides by the number of rows.
    fit(b, take(slice(4)), Y[:4], sample_weight=np.full(4, 0.5))
    assert_same_weights(a, b)


def test_validation_split_equals_evaluate():
    model = classifier(metrics=["accuracy"])
    history = fit(model, validation_split=0.25)
    loss, accuracy = model.evaluate(take(slice(6, 8)), Y[6:], verbose=0)
    close([history["val_loss"][0], history["val_accuracy"][0]], [loss, accuracy])


def test_predict_equals_call():
    model = classifier()
    close(model.predict(X, batch_size=3, verbose=0), model(X), atol=1e-6)
    close(model.predict_on_batch(X), model(X), atol=1e-6)


def test_train_on_batch_equals_fit():
    a, b = classifier(), classifier()
    fit(a, batch_size=8)
    b.train_on_batch(X, Y)
    assert_same_weights(a, b)
    assert b.test_on_batch(X, Y, return_dict=True)["loss"] > 0


def test_trailing_padding_changes_nothing():
    model = classifier()
    longer = {name: np.pad(x, ((0, 0), (0, 2))) for name, x in X.items()}
    close(model(longer), model(X), atol=1e-6)


# --- Callbacks ---------------------------------------------------------------------


def test_model_checkpoint(tmp_path):
    file = tmp_path / "best.keras"
    model = classifier()
    saving = keras.callbacks.ModelCheckpoint(file, "loss", save_best_only=True)
    fit(model, epochs=2, callbacks=[saving])
    close(keras.saving.load_model(file)(X), model(X), atol=1e-6)


@pytest.mark.slow
def test_backup_and_restore(tmp_path):
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    def optimizer():
        return bert_tf.AdamW(bert_tf.WarmupDecay(0.01, 2, 8))

    whole = classifier(optimizer())
    fit(whole, epochs=4)
    backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    with pytest.raises(KeyboardInterrupt):
        fit(classifier(optimizer()), epochs=4, callbacks=[backup, Interrupt()])
    resumed = classifier(optimizer())
    resumed.build({name: x.shape for name, x in X.items()})
    resumed.optimizer.build(resumed.trainable_variables)
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    assert len(fit(resumed, epochs=4, callbacks=[backup])["loss"]) == 2
    assert_same_weights(whole, resumed)


def test_early_stopping_restores_the_best_weights():
    model = classifier(keras.optimizers.SGD(10.0))
    stop = keras.callbacks.EarlyStopping("val_loss", restore_best_weights=True)
    history = fit(model, epochs=5, callbacks=[stop], validation_data=(X, Y))
    assert len(history["loss"]) < 5
    close(model.evaluate(X, Y, verbose=0)[0], min(history["val_loss"]), rtol=1e-5)


def test_learning_rate_callbacks():
    model = classifier(bert_tf.AdamW(0.1))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    fit(model, epochs=2, callbacks=[schedule])
    close(model.optimizer.learning_rate, 0.05)
    plateau = keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=0, min_delta=9)
    fit(model, epochs=2, callbacks=[plateau])
    close(model.optimizer.learning_rate, 0.025)


def test_loggers(tmp_path):
    model = classifier()
    file, seen = tmp_path / "log.csv", []
    callbacks = [
        keras.callbacks.CSVLogger(str(file)),
        keras.callbacks.TensorBoard(str(tmp_path), write_graph=False),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append(logs)
        ),
    ]
    (loss,) = fit(model, callbacks=callbacks)["loss"]
    (row,) = csv.DictReader(file.read_text().splitlines())
    assert float(row["loss"]) == pytest.approx(loss)
    assert seen[0]["loss"] == loss


# --- Saving ------------------------------------------------------------------------


def test_weights_file(tmp_path):
    a, b = classifier(), classifier()
    fit(a)
    a.save_weights(tmp_path / "a.weights.h5")
    b.load_weights(tmp_path / "a.weights.h5")
    assert_same_weights(a, b, atol=0)


def test_weights_file_for_another_number_of_classes(tmp_path):
    a, b = classifier(), classifier(classes=5)
    fit(a)
    head = b.get_layer("logits").get_weights()
    a.save_weights(tmp_path / "a.weights.h5")
    with pytest.warns(UserWarning, match="object <Dense name=logits"):
        b.load_weights(tmp_path / "a.weights.h5", skip_mismatch=True)
    assert_same_weights(a.backbone, b.backbone, atol=0)
    close(b.get_layer("logits").get_weights()[0], head[0])


@pytest.mark.slow
def test_keras_file_keeps_optimizer_and_training_continues(tmp_path):
    a = classifier(bert_tf.AdamW(0.01))
    fit(a)
    a.save(tmp_path / "a.keras")
    b = keras.saving.load_model(tmp_path / "a.keras")
    close(fit(a)["loss"], fit(b)["loss"], rtol=1e-5)
    assert_same_weights(a, b)


def test_clone_model_and_set_weights():
    a = classifier()
    inputs = a.backbone.input
    score = keras.layers.Dense(1)(a.backbone(inputs)["pooled_output"])
    own = keras.Model(inputs, score)
    for model in (own, a.backbone):
        clone = keras.models.clone_model(model)
        clone.set_weights(model.get_weights())
        for x, y in zip(
            *(keras.tree.flatten(m(X)) for m in (model, clone)), strict=True
        ):
            close(x, y, atol=1e-6)


def test_pickle_and_deepcopy():
    model = classifier()
    close(pickle.loads(pickle.dumps(model))(X), model(X), atol=1e-6)
    close(
        copy.deepcopy(model.backbone)(X)["pooled_output"],
        model.backbone(X)["pooled_output"],
        atol=1e-6,
    )


def test_from_config():
    model = classifier()
    again = type(model).from_config(model.get_config())
    again.set_weights(model.get_weights())
    close(again(X), model(X), atol=1e-6)
    assert again.backbone.config == CONFIG


def test_subclassed_model_with_an_encoder(tmp_path):
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

    model = Scorer(encoder())
    model.compile("sgd", "mse")
    fit(model, y=Y.astype("float32"))
    model.save(tmp_path / "own.keras")
    close(keras.saving.load_model(tmp_path / "own.keras")(X), model(X), atol=1e-6)


@pytest.mark.slow
def test_export(tmp_path):
    model = classifier()
    model.export(tmp_path / "saved", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "saved")
    outputs = loaded.serve({name: tf.constant(x) for name, x in X.items()})
    close(outputs, model(X), atol=1e-6)


# --- Layers and weights ------------------------------------------------------------


def test_names_lead_to_layers_and_weights():
    model = classifier()
    query = model.get_layer(model.backbone.name)
    assert query.get_layer("encoder_layer_1").query.kernel.shape == (8, 8)
    paths = [weight.path for weight in model.weights]
    assert len(paths) == len(set(paths))
    assert model.count_params() == sum(np.prod(w.shape) for w in model.weights)


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
    before = [[np.array(w) for w in layer.weights] for layer in layers]
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
    kernel = np.array(model.backbone.encoder_layers[0].query._kernel)
    logits = np.array(model(X))
    fit(model, epochs=2)
    layer = model.backbone.encoder_layers[0].query
    np.testing.assert_array_equal(kernel, layer._kernel)
    assert np.abs(model(X) - logits).max() > 1e-4
    merged = kernel + layer.lora_alpha / layer.lora_rank * (
        np.array(layer.lora_kernel_a) @ np.array(layer.lora_kernel_b)
    )
    close(layer.kernel, merged, atol=1e-6)


def test_weights_of_another_model():
    a, b = classifier(), classifier(classes=3)
    fit(a)
    b.backbone.set_weights(a.backbone.get_weights())
    close(b.backbone(X)["pooled_output"], a.backbone(X)["pooled_output"], atol=1e-6)


def test_summary_and_plot():
    lines = []
    classifier().summary(expand_nested=True, print_fn=lines.append)
    assert "encoder_layer_1" in "\n".join(map(str, lines))
    pytest.importorskip("pydot")
    assert keras.utils.model_to_dot(classifier())


def test_hidden_states():
    backbone = encoder()
    model = keras.Model(backbone.input, backbone.hidden_states[1])
    shorter = encoder(num_layers=1)
    weights = {weight.path: weight for weight in backbone.weights}
    for weight in shorter.weights:
        weight.assign(weights[weight.path])
    close(model(X), shorter(X)["sequence_output"], atol=1e-6)


# --- Models on an encoder ----------------------------------------------------------


def test_bidirectional_lstm_with_a_mask():
    backbone = encoder()
    hidden = backbone.output["sequence_output"]
    mask = backbone.input["padding_mask"] != 0
    lstm = keras.layers.Bidirectional(keras.layers.LSTM(3))
    model = keras.Model(backbone.input, lstm(hidden, mask=mask))
    shorter = {name: x[1:2, :4] for name, x in X.items()}
    close(model(take(slice(1, 2))), model(shorter), atol=1e-6)


def test_average_pooling_with_a_mask():
    backbone = encoder()
    hidden, mask = backbone.output["sequence_output"], backbone.input["padding_mask"]
    pooled = keras.layers.GlobalAveragePooling1D()(hidden, mask=mask != 0)
    states = np.array(backbone(X)["sequence_output"]) * MASK[..., None]
    expected = states.sum(1) / MASK.sum(1, keepdims=True)
    close(keras.Model(backbone.input, pooled)(X), expected, atol=1e-6)


def test_time_distributed():
    backbone = encoder()
    ids = keras.Input((None,), dtype="int32")
    inputs = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids * 0 + 1}
    pooled = keras.Model(ids, backbone(inputs)["pooled_output"])
    outer = keras.Input((None, LENGTH), dtype="int32")
    model = keras.Model(outer, keras.layers.TimeDistributed(pooled)(outer))
    several = IDS.reshape(2, 4, LENGTH)
    close(model(several), np.reshape(pooled(IDS), (2, 4, -1)), atol=1e-6)


def test_two_towers_with_shared_and_with_own_weights():
    shared = encoder()
    fields = dict(CONFIG.__dict__)
    other = bert_tf.BertBackbone(fields, name="other")
    towers, inputs = [], []
    for prefix, tower in (("a", shared), ("b", shared), ("c", other)):
        x = {n: keras.Input((None,), dtype="int32", name=f"{prefix}_{n}") for n in X}
        towers.append(tower(x)["pooled_output"])
        inputs.append(x)
    model = keras.Model(
        inputs, keras.layers.Dot(1)([towers[0], towers[1]]) + 0 * towers[2][:, :1]
    )
    x = np.array(shared(X)["pooled_output"])
    close(model([X, X, X])[:, 0], (x * x).sum(1), atol=1e-5)


def test_several_outputs():
    backbone = encoder()
    tokens, pooled = (backbone.output[n] for n in ("sequence_output", "pooled_output"))
    outputs = {
        "tags": keras.layers.Dense(3, name="tags")(tokens),
        "score": keras.layers.Dense(1, name="score")(pooled),
    }
    model = keras.Model(backbone.input, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        "sgd", {"tags": loss, "score": "mse"}, loss_weights={"tags": 2, "score": 1}
    )
    targets = {"tags": IDS % 3, "score": Y.astype("float32")}
    tags, score = (model(X)[name] for name in ("tags", "score"))
    expected = 2 * loss(targets["tags"], tags) + np.mean((Y - score[:, 0]) ** 2)
    close(model.test_on_batch(X, targets)[0], expected, rtol=1e-5)


def test_add_loss_in_a_layer():
    class Penalty(keras.layers.Layer):
        def call(self, x):
            self.add_loss(0.1 * keras.ops.mean(x**2))
            return x

    backbone = encoder()
    pooled = Penalty()(backbone.output["pooled_output"])
    model = keras.Model(backbone.input, keras.layers.Dense(1)(pooled))
    model.compile("sgd", "mse")
    y = Y.astype("float32")
    expected = np.mean((y[:, None] - model(X)) ** 2)
    expected += 0.1 * np.mean(np.square(backbone(X)["pooled_output"]))
    close(model.test_on_batch(X, y), expected, rtol=1e-5)


# --- Training ----------------------------------------------------------------------


def test_custom_train_step_equals_fit():
    class Own(heads.SequenceClassifier):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"own": loss}

    own, plain = Own(encoder(), 2), classifier()
    own.set_weights(plain.get_weights())
    own.compile(keras.optimizers.SGD(0.1))
    assert "own" in fit(own)
    fit(plain)
    assert_same_weights(own, plain)


def test_gradient_tape_equals_fit():
    own, plain = classifier(), classifier()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        value = loss(Y, own(X, training=True))
    gradients = tape.gradient(value, own.trainable_variables)
    own.optimizer.apply_gradients(zip(gradients, own.trainable_variables))
    fit(plain, batch_size=8)
    assert_same_weights(own, plain)


def test_custom_compute_loss():
    class Distilled(heads.SequenceClassifier):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            return keras.ops.mean((y_pred - y) ** 2)

    teacher = classifier()
    student = Distilled(encoder(), 2)
    student.compile(keras.optimizers.SGD(0.1))
    target = np.array(teacher(X)) + 1
    losses = fit(student, y=target, epochs=3)["loss"]
    assert losses[2] < losses[0]


@pytest.mark.parametrize(
    "optimizer",
    [keras.optimizers.SGD, pytest.param(bert_tf.AdamW, marks=pytest.mark.slow)],
)
def test_gradient_accumulation_equals_a_large_batch(optimizer):
    a = classifier(optimizer(0.1, gradient_accumulation_steps=2))
    b = classifier(optimizer(0.1))
    fit(a, batch_size=4)
    fit(b, batch_size=8)
    assert_same_weights(a, b, atol=1e-5)


def test_ema():
    model = classifier(keras.optimizers.SGD(0.5, use_ema=True, ema_momentum=0.5))
    values = []
    for rows in (slice(4), slice(4, 8)):
        model.train_on_batch(take(rows), Y[rows])
        values.append(np.array(model.trainable_variables[0]))
    model.optimizer.finalize_variable_values(model.trainable_variables)
    close(model.trainable_variables[0], np.mean(values, axis=0), atol=1e-6)


def test_clipped_gradients():
    model = classifier(keras.optimizers.SGD(1.0, global_clipnorm=1e-3))
    before = model.get_weights()
    model.train_on_batch(X, Y)
    steps = [a - b for a, b in zip(before, model.get_weights(), strict=True)]
    # Keras counts a token once per occurrence, so the norm is smaller with SGD.
    assert 5e-4 < np.sqrt(sum((step**2).sum() for step in steps)) < 1.001e-3


@pytest.mark.slow
def test_schedule_of_keras():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model = classifier(bert_tf.AdamW(schedule))
    fit(model)
    close(model.optimizer.learning_rate, schedule(2))


@pytest.mark.slow
def test_compiling_twice_changes_the_optimizer():
    model = classifier()
    fit(model)
    model.compile(bert_tf.AdamW(0.01), metrics=["accuracy"])
    assert "accuracy" in fit(model)


@pytest.mark.slow
def test_seed_makes_dropout_reproducible():
    def train():
        keras.utils.set_random_seed(3)
        model = bert_tf.SequenceClassifier(encoder(dropout=0.5), 2)
        model.compile(keras.optimizers.SGD(0.1))
        fit(model, epochs=2)
        return model

    assert_same_weights(train(), train(), atol=0)


@pytest.mark.slow
def test_search_that_builds_many_models():
    """As KerasTuner does: build, fit, compare, again with `clear_session`."""
    losses = []
    for rate in (0.1, 0.01, 0.1):
        keras.backend.clear_session()
        losses.append(fit(classifier(keras.optimizers.SGD(rate)), epochs=2)["loss"][-1])
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)
    assert losses[0] != losses[1]


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
    table = model.backbone.embeddings.token_embedding.embeddings
    with tf.GradientTape() as tape:
        score = keras.ops.sum(model(X)[:, 1])
    gradient = tf.convert_to_tensor(tape.gradient(score, table.value))
    used = np.unique(IDS[MASK > 0])
    assert (np.abs(gradient).sum(1) > 0).nonzero()[0].tolist() == used.tolist()


def test_metrics():
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(1, name="top")]
    model = classifier(metrics=metrics, weighted_metrics=["accuracy"])
    values = model.evaluate(X, Y, verbose=0, return_dict=True)
    accuracy = np.mean(np.argmax(model(X), 1) == Y)
    close([values["accuracy"], values["top"]], [accuracy, accuracy])


def test_stateless_call():
    model = classifier()
    outputs, _ = model.stateless_call(
        [w.value for w in model.trainable_variables],
        [w.value for w in model.non_trainable_variables],
        X,
    )
    close(outputs, model(X), atol=1e-6)


@pytest.mark.slow
def test_jit_compile():
    a, b = classifier(jit_compile=True), classifier(jit_compile=False)
    close(fit(a)["loss"], fit(b)["loss"], rtol=1e-5)
    assert_same_weights(a, b, atol=1e-5)


@pytest.mark.slow
def test_steps_per_execution():
    a, b = classifier(steps_per_execution=2), classifier()
    fit(a)
    fit(b)
    assert_same_weights(a, b)


@pytest.mark.slow
def test_tf_function():
    model = classifier()
    close(
        tf.function(model)({n: tf.constant(x) for n, x in X.items()}),
        model(X),
        atol=1e-6,
    )


# --- What cannot work, and says so -------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([IDS, IDS, MASK], "takes a dictionary with the keys token_ids"),
        (X | {"labels": Y}, "takes a dictionary .*labels"),
        ({**X, "padding_mask": (MASK - 1) * 10000}, "must be 1 for tokens"),
    ],
)
def test_inputs_that_would_be_misread_raise(inputs, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        classifier()(inputs)


def test_losses_of_probabilities_raise():
    with pytest.raises(ValueError, match="from_logits=True"):
        classifier(loss="sparse_categorical_crossentropy")


def test_layers_of_the_pretrainer_must_be_called_as_a_whole():
    model = bert_tf.BertPretrainer(encoder())
    with pytest.raises(NotImplementedError, match="Call the pre-trainer"):
        keras.models.clone_model(keras.Model(model.input, model.output["mlm"]))
