# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The private names of Keras and TensorFlow still do what `keras_private` needs."""

import contextlib
import gc
import pathlib
import re
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import keras_private, text
from bert_tf.modeling import EncoderLayer
from tests.toy.gradients import in_graph


@contextlib.contextmanager
def needed_by(name: str):
    """Names the function that needs an update, if the block fails."""
    try:
        yield
    except Exception as error:
        pytest.fail(
            f"`keras_private.{name}` does not fit Keras {keras.__version__} and "
            f"TensorFlow {tf.__version__}: {type(error).__name__}: {error}"
        )


def test_nested_layers():
    inner = keras.layers.Dense(2, name="inner")
    outer = keras.layers.TimeDistributed(inner, name="outer")
    model = keras.Sequential([keras.Input((3, 4)), outer])
    with needed_by("nested_layers"):
        names = [layer.name for layer in keras_private.nested_layers(model)]
        first = [*keras_private.nested_layers(model, recursive=False)]
        assert names[-2:] == ["outer", "inner"]
        assert first[-1] is outer


def test_build_metrics():
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(2)(inputs))
    model.compile("sgd", "mse", metrics=["mae"])
    with needed_by("build_metrics"):
        keras_private.build_metrics(model)
        count = len(model.metrics_variables)
        model.train_on_batch(np.ones((4, 3)), np.ones((4, 2)))
        assert len(model.metrics_variables) == count > 2


class Sgd(keras_private.OptimizerHooks):
    """Gradient descent with a rate of half the learning rate."""

    def prepare_step(self, gradients, variables, learning_rate):
        self.seen = len(variables), float(gradients[0][0])
        self.rate = learning_rate / 2
        return [2 * gradient for gradient in gradients], self

    def update_step(self, gradient, variable, learning_rate):
        first, second = self.moments(variable)
        assert first.shape == second.shape == variable.shape
        step = learning_rate * gradient * self.has_weight_decay(variable)
        self.assign_sub(variable, step)


def test_optimizer_hooks():
    with needed_by("OptimizerHooks"):
        used, excluded, unused = (keras.Variable(np.ones(1)) for _ in range(3))
        optimizer = Sgd(0.5, weight_decay=0.1, global_clipnorm=1e-9)
        optimizer.exclude_from_weight_decay([excluded])
        optimizer.build([used, excluded, unused])
        gradients = [tf.constant([3.0]), tf.constant([3.0]), None]
        optimizer.apply(gradients, [used, excluded, unused])
        assert optimizer.seen == (2, 3.0)  # Neither clipped nor without a gradient.
        assert [float(v[0]) for v in (used, excluded, unused)] == [-0.5, 1, 1]
        assert optimizer.step is None
        optimizer.apply(gradients)  # Of the variables that it was built for.
        assert optimizer.seen == (2, 3.0)
    with pytest.raises(ValueError, match="No gradients"):
        optimizer.apply([None] * 3)


@pytest.mark.usefixtures("without_fusion")
@pytest.mark.parametrize("recompute", [False, True])
def test_free_with_graph(one_layer, recompute):
    """Each `fit` of a search over settings traces a graph."""
    with needed_by("free_with_graph"):
        layer, x = EncoderLayer(one_layer, recompute), tf.ones([2, 8, 16])
        step = in_graph(lambda x: layer(x, tf.ones([2, 8]), training=True))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = step(x)
        # The gradient of a graph comes from the registry, if the graph is alive.
        gc.collect()
        assert tape.gradient(y, x).shape == x.shape
        graph = weakref.ref(step.get_concrete_function(x).graph)
        del step, tape, y
        gc.collect()
        assert graph() is None


def test_allow_strings(vocabulary):
    operations = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], operations)
    with needed_by("allow_strings"), strategy.scope():
        texts = keras.Input((), dtype="string")
        mask = text.Tokenizer(vocabulary)(texts)["padding_mask"]
        length = keras.ops.sum(mask, axis=1, keepdims=True)
        outputs = keras.layers.Dense(1)(keras.ops.cast(length, "float32"))
        model = keras.Model(texts, outputs)
        model.compile("sgd", "mse", jit_compile=False)
        model.evaluate(tf.constant(["a", "b"]), np.ones((2, 1)), verbose=0)


def test_no_other_module_uses_private_names():
    names = r"keras\.src|tensorflow\.python|\._layers|_flatten_layers|_compile_"
    private = re.compile(names + "|_loss_tracker|_(clip|all_reduce_sum)_gradients")
    files = pathlib.Path(keras_private.__file__).parent.rglob("*.py")
    using = [f.name for f in files if private.search(f.read_text(encoding="utf-8"))]
    assert using == ["keras_private.py"]
