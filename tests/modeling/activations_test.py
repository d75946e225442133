# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import activations
from bert_tf.modeling import config as bert_config
from tests.modeling.fusion_test import in_graph
from tests.modeling.gradients_test import kept, value_and_gradients


def test_every_form_of_the_config_is_there():
    assert activations.INFERENCE.keys() == set(bert_config.ACTIVATIONS)
    assert activations.TRAINING.keys() == set(bert_config.ACTIVATIONS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", ["gelu_tanh", "gelu_erf"])
@pytest.mark.parametrize("run", [lambda f: f, in_graph], ids=["eager", "graph"])
def test_gradient_is_that_of_the_function(run, form, dtype):
    x = tf.cast(tf.concat([tf.linspace(-9.0, 9.0, 2001), [-1e4, 1e4]], 0), dtype)
    upstream = tf.cast(tf.linspace(-2.0, 3.0, 2003), dtype)

    value, gradient = value_and_gradients(
        activations.TRAINING[form], [x], upstream, run
    )
    same, expected = value_and_gradients(
        activations.INFERENCE[form], [x], upstream, run
    )

    assert gradient.dtype == dtype
    exact = dtype == "float32"
    size = abs(tf.cast(x, "float32"))  # XLA's erf stops 1.8e-7 before one.
    for a, b, tolerance in ((value, same, 2e-6), (gradient, expected, 1e-5)):
        a, b = (tf.cast(tensor, "float32") for tensor in (a, b))
        tolerance = np.maximum(tolerance if exact else 0.05, 1e-7 * size)
        np.testing.assert_array_less(abs(a - b), tolerance + 1e-6 * abs(b))


@pytest.mark.parametrize("form", ["gelu_tanh", "gelu_erf"])
def test_only_the_input_is_kept(form):
    x = tf.ones([8, 16])
    (only,) = kept(activations.TRAINING[form], x)
    assert only.op.type == "Placeholder"
    assert len(kept(activations.INFERENCE[form], x)) > 1
