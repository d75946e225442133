# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.muon import Muon
from bert_tf.training.optimizers import AdamW

SHAPES = {
    "encoder_layer_0/query/kernel": (6, 6),
    "encoder_layer_0/intermediate/kernel": (6, 10),
    "encoder_layer_0/output/kernel": (10, 6),
    "encoder_layer_1/query/kernel": (6, 6),
    "encoder_layer_1/query/bias": (6,),
    "embeddings/token_embedding/embeddings": (12, 6),
}


def make_variables(seed=0):
    rng = np.random.default_rng(seed)
    variables = []
    for path, shape in SHAPES.items():
        variable = keras.Variable(rng.normal(size=shape).astype("float32"))
        variable._path = path
        variables.append(variable)
    return variables


def make_gradients(steps, seed=1):
    rng = np.random.default_rng(seed)
    return [
        [rng.normal(size=shape).astype("float32") for shape in SHAPES.values()]
        for _ in range(steps)
    ]


def newton_schulz(matrix):
    """The iteration of Keller Jordan's Muon, for one matrix, in float64."""
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def reference_muon(weight, gradients, rate, momentum=0.95, decay=0.01):
    weight, m = weight.astype("float64"), np.zeros_like(weight, "float64")
    for gradient in gradients:
        m = momentum * m + gradient
        update = newton_schulz(gradient + momentum * m)
        update = 0.2 * np.sqrt(max(weight.shape)) * update
        weight = weight - rate * (update + decay * weight)
    return weight


@pytest.mark.parametrize("jit_compile", [True, False])
def test_matrices_of_encoder_layers_equal_numpy_reference(jit_compile):
    variables, gradients = make_variables(), make_gradients(3)
    start = [variable.numpy() for variable in variables]
    optimizer = Muon(0.1, orthogonalization_dtype="float32", global_clipnorm=None)
    optimizer.build(variables)

    apply = tf.function(lambda g: optimizer.apply(g), jit_compile=jit_compile)
    for step in gradients:
        apply([tf.constant(g) for g in step])

    for i, path in enumerate(SHAPES):
        if "kernel" in path:
            expected = reference_muon(start[i], [step[i] for step in gradients], 0.1)
            np.testing.assert_allclose(variables[i].numpy(), expected, atol=2e-6)


def test_other_weights_equal_adamw():
    muon, adamw = make_variables(), make_variables()
    for variables, optimizer in ((muon, Muon(0.1)), (adamw, AdamW(0.1))):
        optimizer.build(variables)
        for step in make_gradients(3):
            optimizer.apply([tf.constant(g) for g in step])
    for path, ours, theirs in zip(SHAPES, muon, adamw, strict=True):
        equal = np.array_equal(ours.numpy(), theirs.numpy())
        assert equal == ("kernel" not in path), path


def test_updates_are_nearly_orthogonal():
    gradient = np.random.default_rng(0).normal(size=(1, 32, 64)).astype("float32")
    for dtype, tolerance in (("float32", 0.0), ("bfloat16", 0.02)):
        update = Muon(orthogonalization_dtype=dtype)._orthogonalize(gradient)[0]
        values = np.linalg.svd(update, compute_uv=False)
        assert values.min() > 0.65 - tolerance
        assert values.max() < 1.25 + tolerance


def test_orthogonalization_uses_its_dtype():
    gradient = np.random.default_rng(0).normal(size=(1, 4, 6)).astype("float32")
    for dtype in ("float32", "bfloat16"):
        update = Muon(orthogonalization_dtype=dtype)._orthogonalize(gradient)
        assert update.dtype == "float32"
        rounded = tf.cast(tf.cast(update, "bfloat16"), "float32")
        assert np.array_equal(update, rounded) == (dtype == "bfloat16")
    assert Muon()._orthogonalize(gradient.astype("float64")).dtype == "float64"


def test_non_finite_step_changes_nothing():
    variables = make_variables()
    optimizer = Muon(0.1)
    optimizer.build(variables)
    first, second = make_gradients(2)
    optimizer.apply([tf.constant(g) for g in first])
    before = [v.numpy() for v in (*variables, *optimizer._momentums)]
    second[0][0, 0] = np.inf
    optimizer.apply([tf.constant(g) for g in second])
    after = [v.numpy() for v in (*variables, *optimizer._momentums)]
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


def test_two_replicas_take_the_same_steps_as_one():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(8, 4)).astype("float32")
    targets = rng.normal(size=(8, 2)).astype("float32")

    def train(strategy):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            hidden = keras.layers.Dense(6, name="encoder_layer_0")
            model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(2)])
            loss = keras.losses.MeanSquaredError(reduction="sum")
            optimizer = Muon(0.1, orthogonalization_dtype="float32")
            model.compile(optimizer, loss, jit_compile=False)
        dataset = tf.data.Dataset.from_tensors((inputs, targets)).repeat(3)
        model.fit(dataset, verbose=0)
        assert optimizer._is_orthogonalized(hidden.kernel)
        return model.get_weights()

    one = train(tf.distribute.get_strategy())
    two = train(
        tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
        )
    )
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_config_round_trip():
    config = Muon(1e-3, momentum=0.9, orthogonalization_dtype="float32").get_config()
    copy = Muon.from_config(config)
    assert (copy.momentum, copy.orthogonalization_dtype) == (0.9, "float32")


def test_orthogonalized_matrices_have_no_second_moments():
    optimizer = Muon()
    optimizer.build(make_variables())
    missing = [velocity is None for velocity in optimizer._velocities]
    assert missing == ["kernel" in path for path in SHAPES]
    names = {variable.name for variable in optimizer.variables}
    assert "encoder_layer_0_query_kernel_momentum" in names
    assert "encoder_layer_0_query_kernel_velocity" not in names
