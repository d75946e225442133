# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import tensorflow as tf

from bert_tf.modeling import gradients


def kept(function, *inputs):
    """Tensors that the gradient of `function` takes and that do not wait for it.

    They are in memory between the two passes of training.
    """

    @tf.function(autograph=False)
    def both_passes(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return tape.gradient(output, inputs, upstream)

    output = function(*inputs)
    graph = both_passes.get_concrete_function(inputs, output).graph
    waiting = {graph.inputs[len(inputs)].op}  # For the gradient of the output.
    taken = {}
    for op in graph.get_operations():
        if op in waiting or waiting & {
            *op.control_inputs,
            *(tensor.op for tensor in op.inputs),
        }:
            waiting.add(op)
            found = {t.name: t for t in op.inputs if t.op not in waiting}
            taken |= {n: t for n, t in found.items() if t.op.type != "Const"}
    return list(taken.values())


def value_and_gradients(function, inputs, upstream, run=lambda f: f, weights=()):
    """`function(*inputs)`, and the gradients of `inputs` and of variables `weights`."""

    def both_passes(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = function(*inputs)
        sources = [*inputs, *(weight.value for weight in weights)]
        return y, *tape.gradient(y, sources, upstream)

    return run(both_passes)(inputs, upstream)


@gradients.with_gradient
def sine_of_product(x, y):
    def of_inputs(upstream):
        slope = upstream * tf.cos(gradients.after(upstream, x) * y)
        return slope * y, slope * x

    return tf.sin(x * y), of_inputs


def test_each_input_gets_its_gradient():
    x, y = tf.constant([0.5, 2.0]), tf.constant([1.5, -1.0])
    upstream = tf.constant([1.0, 3.0])
    z, of_x, of_y = value_and_gradients(sine_of_product, [x, y], upstream)
    np.testing.assert_allclose(z, np.sin(x * y))
    slope = np.cos(x * y) * [1.0, 3.0]
    np.testing.assert_allclose(of_x, slope * y, rtol=1e-6)
    np.testing.assert_allclose(of_y, slope * x, rtol=1e-6)


def test_what_is_computed_after_waits():
    x, y = tf.ones(3), tf.ones(3)
    assert {tensor.op.type for tensor in kept(sine_of_product, x, y)} == {"Placeholder"}
    plain = kept(lambda x, y: tf.sin(x * y), x, y)
    assert len(plain) == 3  # The cosine's argument or itself, too.
