# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs models of the JAX backend of Keras in signatures.

The signatures run eagerly: TensorFlow tokenizes the texts and computes the answers from
logits. Between them, XLA compiles the model for each of a few shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone

jax = lazy_import("jax")

_TOKENS = 32  # Lengths are padded to a multiple, rows to a power of two.


class JaxModel:
    """A model with the inputs of an encoder as a function of eager TensorFlow tensors.

    Outputs [N, S, ...] of a `BertBackbone` are 0 at padding, as in `ragged_encoder`.

    Args:
        model: A functional model. Its inputs are [N, S], or [N, C, S].
        layers: See `optimize_for_inference`.
    """

    def __init__(self, model: keras.Model, layers: Sequence[int] = ()):
        config = getattr(getattr(model, "backbone", model), "config", None)
        self._limit = config.max_sequence_length if config else 0
        if type(model) is BertBackbone:
            is_token = model.input["padding_mask"][:, :, None] != 0
            states = {f"layer_{n}": n for n in layers} | {"sequence_output": -1}
            outputs = model.output | {
                name: ops.where(is_token, model.hidden_states[n], 0)
                for name, n in states.items()
            }
            model = keras.Model(model.input, outputs, name=model.name)
        self.input, self._model = model.input, model
        self._variables = model.trainable_variables, model.non_trainable_variables

        def run(variables, inputs):
            outputs, _ = model.stateless_call(*variables, inputs, training=False)
            return outputs

        # Not Keras' `predict`: it donates the weights, which threads share.
        self._run = jax.jit(run)

    def __call__(self, inputs: Mapping[str, Any], training: bool = False) -> Any:
        rows, *choices, length = inputs["token_ids"].shape
        padded = max(length, min(-(-length // _TOKENS) * _TOKENS, self._limit))
        empty = (1 << max(rows - 1, 0).bit_length()) - rows, *(0 for _ in choices)
        widths = [(0, size) for size in (*empty, padded - length)]
        variables = [[each.value for each in part] for part in self._variables]
        inputs = {name: np.pad(inputs[name], widths) for name in self.input}
        outputs = keras.tree.map_structure(np.asarray, self._run(variables, inputs))

        def cut(x: np.ndarray, spec: keras.KerasTensor) -> tf.Tensor:
            has_tokens = not choices and len(spec.shape) > 1 and spec.shape[1] is None
            return tf.convert_to_tensor(x[:rows, :length] if has_tokens else x[:rows])

        return keras.tree.map_structure(cut, outputs, self._model.output)
