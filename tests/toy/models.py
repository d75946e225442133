# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny models with random weights."""

from typing import TypeVar

import tensorflow as tf

_Model = TypeVar("_Model", bound=tf.keras.Model)


def randomize_weights(model: _Model, stddev: float = 0.3) -> _Model:
    """Adds noise to all weights, biases included, so that a missing one shows."""
    tf.keras.utils.set_random_seed(7)
    for weight in model.weights:
        weight.assign(weight + tf.random.normal(weight.shape, stddev=stddev))
    return model
