# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The random choices of dropout."""

from __future__ import annotations

from collections.abc import Sequence

import keras

from bert_tf.modeling import fusion


def draw_kept(shape: Sequence[int], rate: float, seed: keras.random.SeedGenerator):
    """Returns which numbers of a tensor dropout keeps, a bool tensor of `shape`.

    Args:
        shape: Of the tensor; sizes may be scalar tensors.
        rate: Share that is dropped. On CPUs, where random numbers are dear, it is
            rounded to a multiple of 2**-16, and two numbers share 32 random bits.
        seed: Gives the seed, and moves on.
    """
    if not fusion.on_cpu():
        return keras.random.uniform(shape, seed=seed) >= rate
    import tensorflow as tf

    size = tf.reduce_prod(shape)
    words = tf.random.stateless_uniform(
        [(size + 1) // 2],
        tf.cast(seed.next() % tf.int32.max, tf.int32),
        minval=None,
        maxval=None,
        dtype=tf.uint32,
    )
    halves = tf.reshape(tf.bitcast(words, tf.uint16), [-1])[:size]
    least = min(round(rate * 2**16), 2**16 - 1)
    return tf.reshape(halves, shape) >= tf.constant(least, tf.uint16)
