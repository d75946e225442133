# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.optimization import AdamW, WarmupLinearDecay


def reference_updates(weights, gradients_per_step, rates, bias_correction, clip=1.0):
    """The optimizer of google-research/bert (optimization.py) in numpy, float64.

    There the moments are not corrected; the correction is that of Kingma and Ba,
    section 2, in its efficient form.
    """
    weights = [w.astype("float64") for w in weights]
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for step, (gradients, rate) in enumerate(zip(gradients_per_step, rates), start=1):
        norm = np.sqrt(sum(np.sum(g.astype("float64") ** 2) for g in gradients))
        for i, gradient in enumerate(gradients):
            gradient = gradient * (clip / max(norm, clip))
            m[i] = 0.9 * m[i] + 0.1 * gradient
            v[i] = 0.999 * v[i] + 0.001 * gradient**2
            scale = 1.0
            if bias_correction:
                scale = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
            update = scale * m[i] / (np.sqrt(v[i]) + 1e-6)
            if weights[i].ndim > 1:  # LayerNorm parameters and biases are vectors.
                update = update + 0.01 * weights[i]
            weights[i] = weights[i] - rate * update
    return weights


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("jit_compile", [True, False])
def test_equals_the_numpy_transcription(bias_correction, jit_compile):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=s).astype("float32") for s in [(5, 3), (3,), (3, 2)]]
    # The first gradients are longer than the clipping norm, the last are shorter.
    gradients = [
        [(rng.normal(size=w.shape) * size).astype("float32") for w in start]
        for size in (3.0, 0.5, 0.01, 0.001)
    ]
    schedule = WarmupLinearDecay(0.1, warmup_steps=2, total_steps=5)
    variables = [keras.Variable(w) for w in start]
    optimizer = AdamW(schedule, bias_correction=bias_correction)
    optimizer.build(variables)

    apply = tf.function(lambda g: optimizer.apply(g), jit_compile=jit_compile)
    for step_gradients in gradients:
        apply([tf.constant(g) for g in step_gradients])

    rates = [float(schedule(step)) for step in range(4)]
    expected = reference_updates(start, gradients, rates, bias_correction)
    for variable, value in zip(variables, expected):
        # TensorFlow's kernel takes 1 - 0.999 in float32, so that an update is good to
        # 7e-6 of its size; the weights moved by about one.
        np.testing.assert_allclose(variable.numpy(), value, rtol=0, atol=1e-5)


def test_repeated_ids_of_an_embedding_count_as_one_gradient():
    table = np.ones((4, 2), "float32")
    sparse = tf.IndexedSlices(
        tf.constant([[0.1, 0.2], [0.1, 0.2], [0.3, 0.1]]),
        tf.constant([1, 1, 2]),
        (4, 2),
    )
    dense = np.array([[0, 0], [0.2, 0.4], [0.3, 0.1], [0, 0]], "float32")
    variable = keras.Variable(table)
    optimizer = AdamW(0.1)
    optimizer.build([variable])
    for _ in range(3):
        optimizer.apply([sparse])
    (expected,) = reference_updates([table], [[dense]] * 3, [0.1] * 3, True)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)


def test_two_replicas_equal_one():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(8, 4)).astype("float32") * 5
    targets = rng.normal(size=(8, 2)).astype("float32")

    def train(strategy):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            loss = keras.losses.MeanSquaredError(reduction="sum")
            model.compile(AdamW(0.1, global_clipnorm=0.5), loss, jit_compile=False)
        dataset = tf.data.Dataset.from_tensors((inputs, targets)).repeat(3)
        model.fit(dataset, verbose=0)
        return model.get_weights()

    one = train(tf.distribute.get_strategy())
    two = train(
        tf.distribute.MirroredStrategy(
            ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
        )
    )
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_schedule_rises_then_falls_to_zero():
    schedule = WarmupLinearDecay(1.0, warmup_steps=4, total_steps=10)
    rates = [float(schedule(step)) for step in range(12)]
    np.testing.assert_allclose(rates[:4], [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(np.diff(rates[4:10]), -1 / 7, rtol=1e-5)
    np.testing.assert_allclose(rates[9:], [1 / 7, 0, 0], atol=1e-6)
    without_warmup = WarmupLinearDecay(1.0, warmup_steps=0, total_steps=2)
    np.testing.assert_allclose(
        [float(without_warmup(s)) for s in range(2)], [2 / 3, 1 / 3]
    )


def test_schedule_refuses_a_warmup_as_long_as_the_training():
    with pytest.raises(ValueError, match="warmup_steps=10, total_steps=10"):
        WarmupLinearDecay(1.0, warmup_steps=10, total_steps=10)


def test_optimizer_and_schedule_survive_serialisation():
    optimizer = AdamW(WarmupLinearDecay(1e-4, 10, 100), bias_correction=False)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(copy, AdamW)
    assert copy.get_config() == optimizer.get_config()
