# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import backend
from tests.toy.gradients import in_graph

# --- Fusion ----------------------------------------------------------------------


@backend.xla_fused
def scaled_sum(x, y, scale):
    return tf.reduce_sum(x if y is None else x * y) * scale


def is_compiled(*shapes):
    """Whether a graph with inputs of these shapes contains an XLA-compiled function."""
    specs = [tf.TensorSpec(shape) for shape in shapes]
    run = in_graph(lambda x, y: scaled_sum(x, y, 0.5)).get_concrete_function(*specs)
    return any(
        "_XlaMustCompile" in op.node_def.attr for op in run.graph.get_operations()
    )


def test_xla_fused_compiles_static_shapes_on_cpu(monkeypatch):
    assert is_compiled([3], [3])
    assert not is_compiled([None], [3])
    monkeypatch.setattr(backend, "cpu_only", lambda: False)
    assert not is_compiled([3], [3])


# --- Dropout ---------------------------------------------------------------------


@pytest.mark.parametrize("cpu_only", [True, False])
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_mask_has_the_rate_and_independent_elements(
    monkeypatch, rate, cpu_only
):
    monkeypatch.setattr(backend, "cpu_only", lambda: cpu_only)
    seed = backend.Dropout(rate, seed=1).next_seed()
    mask = np.array(backend.dropout_mask((401, 501), rate, seed))
    assert mask.shape == (401, 501)  # An odd number of elements.
    assert mask.dtype == bool
    # Five standard deviations.
    tolerance = 5 * (rate * (1 - rate) / mask.size) ** 0.5
    assert abs(mask.mean() - (1 - rate)) < tolerance
    # Neighbors, or on JAX the halves of the rows, share 32 random bits.
    for distance in (1, 251):
        both = (mask[:, distance:] & mask[:, :-distance]).mean()
        assert abs(both - (1 - rate) ** 2) < 3 * tolerance


def test_dropout_masks_differ_and_are_reproducible():
    def draw(dropout):
        return np.array(backend.dropout_mask((9, 11), 0.5, dropout.next_seed()))

    dropout, copy = (backend.Dropout(0.5, seed=1) for _ in range(2))
    first, second, again = draw(dropout), draw(dropout), draw(copy)
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_dropout_layer_equals_that_of_keras():
    x = tf.ones((5, 40))
    ours, theirs = backend.Dropout(0.3, seed=7), keras.layers.Dropout(0.3, seed=7)
    np.testing.assert_array_equal(ours(x, training=True), theirs(x, training=True))
    copy = backend.Dropout.from_config(ours.get_config())
    assert (copy.rate, copy.seed, copy.name) == (0.3, 7, ours.name)
