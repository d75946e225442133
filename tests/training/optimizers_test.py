# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.optimizers import AdamW, Lamb, Muon, WarmupDecay
from tests.toy.checkpoints import assert_equal


@pytest.fixture(params=["TensorFlow", "other backends"])
def kernels(request, monkeypatch):
    """Runs a test with the fused kernels and with the code for other backends."""
    fused = request.param == "TensorFlow"
    monkeypatch.setattr("bert_tf.keras_private.is_tensorflow", lambda: fused)


def reference_updates(
    weights, gradients_per_step, rates, bias_correction=True, clip=1.0, lamb=False
):
    """The optimizer of google-research/bert (optimization.py) in NumPy, float64.

    The original has no bias correction. The one here is the efficient form of Kingma
    and Ba, section 2. With `lamb`, algorithm 2 of arXiv 1904.00962, where phi(x) = x.
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
            if lamb:
                deviation = np.sqrt(v[i] / (1 - 0.999**step))
                update = m[i] / (1 - 0.9**step) / (deviation + 1e-6)
            if weights[i].ndim > 1:  # LayerNorm parameters and biases are vectors.
                update = update + 0.01 * weights[i]
                if lamb:
                    update *= np.linalg.norm(weights[i]) / np.linalg.norm(update)
            weights[i] = weights[i] - rate * update
    return weights


@pytest.mark.parametrize(
    ("optimizer_class", "bias_correction", "jit_compile"),
    [(AdamW, True, True), (AdamW, False, False), (Lamb, True, False)],
)
@pytest.mark.usefixtures("kernels")
def test_weights_equal_numpy_reference(optimizer_class, bias_correction, jit_compile):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=s).astype("float32") for s in [(5, 3), (3,), (3, 2)]]

    def draw_gradient(w, size):  # That of the vector is so small that epsilon matters.
        return (rng.normal(size=w.shape) * size * 1e-4 ** (w.ndim == 1)).astype("f4")

    # The first gradients are clipped, the last are not.
    gradients = [
        [draw_gradient(w, size) for w in start] for size in (3.0, 0.5, 0.01, 0.001)
    ]
    schedule = WarmupDecay(0.1, warmup_steps=2, total_steps=5)
    variables = [keras.Variable(w) for w in start]
    optimizer = optimizer_class(schedule, bias_correction=bias_correction)
    optimizer.build(variables)

    apply = tf.function(lambda g: optimizer.apply(g), jit_compile=jit_compile)
    for step_gradients in gradients:
        apply([tf.constant(g) for g in step_gradients])

    rates, lamb = [float(schedule(step)) for step in range(4)], optimizer_class is Lamb
    expected = reference_updates(start, gradients, rates, bias_correction, lamb=lamb)
    for variable, value in zip(variables, expected):
        # TensorFlow's kernel computes 1 - 0.999 in float32, which limits the relative
        # accuracy of updates to 7e-6. The weights moved by about 1.
        np.testing.assert_allclose(variable.numpy(), value, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("kernels")
def test_no_momentum():
    variable = keras.Variable(np.ones(2, "float32"))
    optimizer = AdamW(0.1, weight_decay=0.0, beta_1=0.0)
    optimizer.build([variable])
    optimizer.apply([tf.constant([0.5, -2.0])])
    np.testing.assert_allclose(variable, [0.9, 1.1], rtol=1e-4)


@pytest.mark.usefixtures("kernels")
def test_lamb_updates_weights_that_are_zero():
    variable = keras.Variable(np.zeros((2, 3), "float32"))
    optimizer = Lamb(0.1)
    optimizer.build([variable])
    optimizer.apply([tf.fill((2, 3), 0.3)])
    np.testing.assert_allclose(variable.numpy(), np.full((2, 3), -0.1), rtol=1e-4)


SHAPES = {
    "encoder_layer_0/query/kernel": (6, 6),
    "encoder_layer_0/intermediate/kernel": (6, 10),
    "encoder_layer_0/output/kernel": (10, 6),
    "encoder_layer_1/query/kernel": (6, 6),
    "encoder_layer_1/query/bias": (6,),
    "embeddings/token_embedding/embeddings": (12, 6),
}


def make_encoder_variables():
    rng, variables = np.random.default_rng(0), []
    for path, shape in SHAPES.items():
        variable = keras.Variable(rng.normal(size=shape).astype("float32"))
        variable._path = path
        variables.append(variable)
    return variables


def make_encoder_gradients():
    """Returns the gradients of three steps."""
    rng, shapes = np.random.default_rng(1), SHAPES.values()
    return [[rng.normal(size=shape).astype("f4") for shape in shapes] for _ in "123"]


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


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("float32", 0, 2e-6), ("bfloat16", 1e-5, 0.01)]
)
def test_muon_of_encoder_matrices_equals_numpy_reference(dtype, least, most):
    variables, gradients = make_encoder_variables(), make_encoder_gradients()
    start = [variable.numpy() for variable in variables]
    optimizer = Muon(0.1, global_clipnorm=None, orthogonalization_dtype=dtype)
    optimizer.build(variables)

    apply = tf.function(lambda g: optimizer.apply(g))
    for step in gradients:
        apply([tf.constant(g) for g in step])

    for i, path in enumerate(SHAPES):
        if "kernel" in path:
            expected = reference_muon(start[i], [step[i] for step in gradients], 0.1)
            error = np.abs(variables[i].numpy() - expected).max()
            assert least < error < most


def test_muon_of_other_weights_equals_adamw():
    muon, adamw = make_encoder_variables(), make_encoder_variables()
    for variables, optimizer in ((muon, Muon(0.1)), (adamw, AdamW(0.1))):
        optimizer.build(variables)
        for step in make_encoder_gradients():
            optimizer.apply([tf.constant(g) for g in step])
    for path, ours, theirs in zip(SHAPES, muon, adamw, strict=True):
        equal = np.array_equal(ours.numpy(), theirs.numpy())
        assert equal == ("kernel" not in path), path


@pytest.mark.parametrize("optimizer_class", [AdamW, Lamb, Muon])
@pytest.mark.usefixtures("kernels")
def test_step_with_infinite_gradients_only_increments_iterations(optimizer_class):
    variables = [keras.Variable(np.ones((2, 3), "float32")), keras.Variable([1.0])]
    variables[0]._path = "encoder_layer_0/query/kernel"
    optimizer = optimizer_class(0.1)
    optimizer.build(variables)
    gradient = np.full((2, 3), 0.3, "float32")
    optimizer.apply([tf.constant(gradient), tf.constant([0.4])])
    norm = np.sqrt(6 * 0.09 + 0.16)
    np.testing.assert_allclose(optimizer.gradient_norm, norm, rtol=1e-6)
    state = [*variables, *(v for v in optimizer.variables if len(v.shape))]
    before = [variable.numpy() for variable in state]
    gradient[0, 0] = np.inf
    optimizer.apply([tf.constant(gradient), tf.constant([0.4])])
    assert int(optimizer.iterations.numpy()) == 2
    assert np.isinf(optimizer.gradient_norm.numpy())
    assert_equal([variable.numpy() for variable in state], before)


@pytest.mark.parametrize("optimizer_class", [AdamW, Lamb, Muon])
@pytest.mark.usefixtures("kernels")
def test_arguments_of_keras(optimizer_class):
    """`exclude_from_weight_decay` (keras-team/keras#16201) and `loss_scale_factor`."""
    results = []
    for decay, factor in ((0.0, None), (0.5, 8.0)):
        variable = keras.Variable(np.ones((2, 3), "float32"))
        variable._path = "encoder_layer_0/query/kernel"
        optimizer = optimizer_class(0.1, weight_decay=decay, loss_scale_factor=factor)
        optimizer.exclude_from_weight_decay(var_list=[variable] if factor else [])
        optimizer.build([variable])
        optimizer.apply([tf.fill((2, 3), optimizer.scale_loss(0.3))])
        results += [variable.numpy(), optimizer.gradient_norm.numpy()]
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)
    np.testing.assert_allclose(results[1], results[3], rtol=1e-6)
    for name in ("amsgrad", "clipnorm", "clipvalue"):
        with pytest.raises(ValueError, match=f"`{name}` is not supported"):
            optimizer_class(**{name: True})


def test_loss_scale_halves_on_overflow_and_keeps_updates(monkeypatch):
    monkeypatch.setattr("bert_tf.training.optimizers._GOOD_STEPS", 2)
    plain, scaled = (keras.Variable(np.ones((2, 3), "float32")) for _ in "ab")
    one, other = AdamW(0.1), AdamW(0.1, dynamic_loss_scale=True)
    one.build([plain])
    other.build([scaled])
    scales = []
    for gradient in (0.3, np.inf, 0.7, 0.1):
        scale = float(other.scale_loss(1.0))
        one.apply([tf.fill((2, 3), gradient)])
        other.apply([tf.fill((2, 3), gradient * scale)])
        scales.append(scale)
        np.testing.assert_allclose(scaled.numpy(), plain.numpy(), rtol=1e-6)
        np.testing.assert_allclose(other.gradient_norm, one.gradient_norm, rtol=1e-6)
    assert scales == [2.0**15, 2.0**15, 2.0**14, 2.0**14]
    assert float(other.scale_loss(1.0)) == 2.0**15  # Doubled after two good steps.


@pytest.mark.parametrize("optimizer_class", [AdamW, Lamb, Muon])
@pytest.mark.usefixtures("kernels")
def test_accumulated_gradients_take_the_steps_of_whole_batches(optimizer_class):
    results = []
    for parts in (None, 2):
        variable = keras.Variable(np.ones((2, 3), "float32"))
        variable._path = "encoder_layer_0/query/kernel"
        schedule = WarmupDecay(0.1, warmup_steps=1, total_steps=4)
        optimizer = optimizer_class(schedule, gradient_accumulation_steps=parts)
        optimizer.build([variable])
        for gradient in (0.3, -0.1, 0.2):
            for change in (0.0,) if parts is None else (0.05, -0.05):
                optimizer.apply([tf.fill((2, 3), gradient + change)])
        results.append([variable.numpy(), optimizer.learning_rate.numpy()])
        assert int(optimizer.iterations) == 3
    for whole, accumulated in zip(*results):
        np.testing.assert_allclose(whole, accumulated, rtol=1e-5)


@pytest.mark.parametrize("optimizer_class", [AdamW, Lamb, Muon])
def test_variables_may_lack_a_gradient_in_any_step(optimizer_class):
    """Tasks that take turns train different heads of a model."""
    variables = [keras.Variable(np.ones(2, "float32")) for _ in "abc"]
    optimizer = optimizer_class(0.1)
    for used in ([0, 1], [0, 2], [0, 1]):
        gradients = [tf.ones(2) if n in used else None for n in range(3)]
        optimizer.apply_gradients(zip(gradients, variables))
    assert [float(v[0]) < 0.95 for v in variables] == [True] * 3
    again = optimizer_class(0.1)
    again.build(variables)
    assert len(again.variables) == len(optimizer.variables)


@pytest.mark.parametrize("optimizer_class", [AdamW, Lamb, Muon])
def test_scales_the_loss_of_the_first_step(optimizer_class):
    variable = keras.Variable(np.ones((2, 3), "float32"))
    optimizer = optimizer_class(0.1, dynamic_loss_scale=True)
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(tf.reduce_sum(variable.value) * 1e-6)
    optimizer.apply(tape.gradient(loss, [variable.value]), [variable])
    np.testing.assert_allclose(optimizer.gradient_norm, 6**0.5 * 1e-6, rtol=1e-5)


def test_accumulation_on_several_replicas_is_refused():
    operations = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], operations)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        optimizer = AdamW(gradient_accumulation_steps=2)
        model.compile(optimizer, "mse", jit_compile=False)
    with pytest.raises(ValueError, match="cannot be accumulated on several replicas"):
        model.fit(np.ones((4, 3)), np.ones((4, 1)), verbose=0)


def test_gradients_of_repeated_token_ids_are_summed():
    table = np.ones((4, 2), "float32")
    rows = tf.constant([[0.1, 0.2], [0.1, 0.2], [0.3, 0.1]])
    sparse = tf.IndexedSlices(rows, tf.constant([1, 1, 2]), (4, 2))
    dense = np.array([[0, 0], [0.2, 0.4], [0.3, 0.1], [0, 0]], "float32")
    variable = keras.Variable(table)
    optimizer = AdamW(0.1)
    optimizer.build([variable])
    for _ in range(3):
        optimizer.apply([sparse])
    (expected,) = reference_updates([table], [[dense]] * 3, [0.1] * 3, True)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)


def test_two_replicas_take_the_same_steps_as_one():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(8, 4)).astype("float32") * 5
    targets = rng.normal(size=(8, 2)).astype("float32")

    def train(strategy):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            hidden = keras.layers.Dense(6, name="encoder_layer_0")
            model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(2)])
            loss = keras.losses.MeanSquaredError(reduction="sum")
            model.compile(Muon(0.1, global_clipnorm=0.5), loss, jit_compile=False)
        dataset = tf.data.Dataset.from_tensors((inputs, targets)).repeat(3)
        model.fit(dataset, verbose=0)
        assert "encoder_layer_0" in hidden.kernel.path  # Muon orthogonalizes it.
        return model.get_weights()

    one = train(tf.distribute.get_strategy())
    operations = tf.distribute.ReductionToOneDevice()
    two = train(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], operations))
    for a, b, tolerance in zip(one, two, (1e-5, 1e-6, 1e-6, 1e-6), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)


def test_weights_of_other_dtypes_are_refused():
    variable = keras.Variable(np.ones((2, 3)), dtype="bfloat16", name="kernel")
    with pytest.raises(ValueError, match=r"kernel of bfloat16\. Use .* 'mixed_bf"):
        AdamW(0.1).build([variable])


# --- Learning rate schedules -----------------------------------------------------


DECAYED = np.arange(1, 6) / 5


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2.0, 2, 6, "linear", 3), [1, 2, *2 * (1 - DECAYED)]),
        ((2.0, 2, 6, "cosine", 3), [1, 2, *1 + np.cos(np.pi * DECAYED)]),
        ((2.0, 2, 6, "polynomial", 3), [1, 2, *2 * np.sqrt(1 - DECAYED)]),
        ((2.0, 2, 6, "constant", 3), [1, 2, 2, 2, 2, 2, 2]),
        ((1.0, 0, 2), [2 / 3, 1 / 3, 0, 0]),  # Also after the last step.
    ],
)
def test_schedules(arguments, expected):
    schedule = WarmupDecay(*arguments)
    rates = [float(schedule(schedule.first_step + n)) for n in range(len(expected))]
    np.testing.assert_allclose(rates, expected, rtol=1e-6, atol=1e-6)


def test_unknown_decay_raises():
    with pytest.raises(ValueError, match=r"linear, cosine.* decay='log'"):
        WarmupDecay(1.0, 1, 3, "log")
