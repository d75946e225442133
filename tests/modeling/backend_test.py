# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.modeling import attention, backend
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


# --- Attention -------------------------------------------------------------------


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX has the kernel.")
@pytest.mark.parametrize("packed", [False, True])
def test_attention_kernel_equals_plain_attention(monkeypatch, packed):
    """With XLA's attention in the place of cuDNN's, which needs a GPU."""
    import jax

    calls = []

    def kernel(*arguments):
        calls.append(arguments)
        return backend._cudnn_attention(*arguments, implementation="xla")

    rng = np.random.default_rng(0)
    tensors = rng.normal(size=(4, 2, 3, 8, 16)).astype("float32")
    *inputs, dy = (keras.ops.cast(x, "bfloat16") for x in tensors)
    mask = np.arange(8) < np.array([[8], [5]])
    if packed:
        row = np.array([[1, 1, 1, 2, 2, 2, 0, 0], [1] * 8])
        mask = row[:, :, None] == row[:, None]
    bias = attention.attention_bias(mask)

    def run(rate=0.0, dtype="bfloat16"):
        x = [keras.ops.cast(tensor, dtype) for tensor in inputs]
        y, gradient = jax.vjp(
            lambda *x: attention.attend_in_training(*x, bias, rate, jax.random.key(0)),
            *x,
        )
        values = y, *gradient(keras.ops.cast(dy, dtype))
        return [np.asarray(value, "float32") for value in values]

    expected = run()
    monkeypatch.setattr(backend, "_has_cudnn", lambda: True)
    monkeypatch.setattr(
        attention, "attention_kernel", lambda x: backend.attention_kernel(x) and kernel
    )
    for value, other in zip(run(), expected, strict=True):
        np.testing.assert_allclose(value, other, atol=0.03, rtol=0.03)
    assert len(calls) == 1
    run(rate=0.5), run(dtype="float32")  # Not possible with the kernel.
    assert len(calls) == 1


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
