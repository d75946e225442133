# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions, and the tensors that they keep in memory."""

import tensorflow as tf


def in_graph(function):
    """Runs `function` in a graph, where `xla_fused` compiles."""
    return tf.function(function, autograph=False)


def value_and_gradients(function, inputs, upstream, run=lambda f: f, weights=()):
    """Returns `function(*inputs)` and its gradients w.r.t. inputs and `weights`."""

    def both_passes(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = function(*inputs)
        sources = [*inputs, *(weight.value for weight in weights)]
        return y, *tape.gradient(y, sources, upstream)

    return run(both_passes)(inputs, upstream)


def kept_tensors(function, *inputs):
    """Returns the tensors that stay in memory from the forward to the backward pass.

    Those are the inputs of ops that depend on the upstream gradient, unless they depend
    on it themselves.
    """

    @tf.function(autograph=False)
    def both_passes(inputs, upstream):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        return tape.gradient(output, inputs, upstream)

    output = function(*inputs)
    graph = both_passes.get_concrete_function(inputs, output).graph
    backward = {graph.inputs[len(inputs)].op}  # The upstream gradient.
    kept = {}
    for op in graph.get_operations():
        parents = {*op.control_inputs, *(tensor.op for tensor in op.inputs)}
        if op in backward or backward & parents:
            backward.add(op)
            found = {t.name: t for t in op.inputs if t.op not in backward}
            kept |= {n: t for n, t in found.items() if t.op.type != "Const"}
    return list(kept.values())
