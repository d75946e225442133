# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import fusion


def in_graph(function):
    """`function` in a graph, where what is fused is compiled."""
    return tf.function(function, autograph=False)


@fusion.fused
def scaled_sum(x, y, scale):
    return tf.reduce_sum(x if y is None else x * y) * scale


def is_compiled(*signature):
    """Whether a graph of inputs of these shapes has a function for XLA."""
    specs = [tf.TensorSpec(shape) for shape in signature]
    graph = in_graph(lambda x, y: scaled_sum(x, y, 0.5)).get_concrete_function(*specs)
    return any(
        "_XlaMustCompile" in op.node_def.attr for op in graph.graph.get_operations()
    )


def test_known_shapes_are_compiled(monkeypatch):
    assert is_compiled([3], [3])
    assert not is_compiled([None], [3])
    monkeypatch.setattr(fusion, "on_cpu", lambda: False)
    assert not is_compiled([3], [3])


def test_outside_of_graphs_nothing_is_compiled():
    called = []
    counted = fusion.fused(lambda x: called.append(x) or 2 * x)
    for _ in range(3):
        counted(tf.constant(1.0))
    assert [float(x) for x in called] == [1.0] * 3


@pytest.mark.parametrize("factor", [None, tf.constant([1.0, -1.0, 2.0])])
def test_the_values_are_the_same(factor):
    x = tf.constant([1.0, 2.0, 3.0])
    expected = scaled_sum(x, factor, 0.5)
    np.testing.assert_allclose(expected, 3.0 if factor is None else 2.5)
    compiled = in_graph(lambda x: scaled_sum(x, factor, 0.5))
    np.testing.assert_allclose(compiled(x), expected)
