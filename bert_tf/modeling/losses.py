# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The loss of masked language modelling.

The logits, [B, P, V], are the largest tensor of a small model. Keras' cross-entropy
goes through them several times and keeps another tensor of their size.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import fusion, gradients


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMLoss(keras.losses.Loss):
    """Cross-entropy of logits [..., V] with token ids [...], by default summed.

    The same as `keras.losses.SparseCategoricalCrossentropy(from_logits=True)`.
    """

    def __init__(self, name="masked_lm_loss", reduction="sum", dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true, y_pred):
        token_ids = ops.cast(y_true, "int32")  # Keras makes floats of labels.

        @gradients.with_gradient
        def cross_entropy(logits):
            losses, normalizers = _cross_entropy(logits, token_ids)

            def gradient(of_losses):
                return _of_logits(logits, token_ids, normalizers, of_losses)

            return losses, gradient

        return cross_entropy(y_pred)


@fusion.fused
def _cross_entropy(logits, token_ids):
    """The losses, and the logarithms of the sums of exponentials, [...]."""
    chosen = ops.sum(ops.where(_is_label(logits, token_ids), logits, 0.0), axis=-1)
    largest = ops.max(logits, axis=-1)
    exponentials = ops.exp(logits - ops.expand_dims(largest, -1))
    normalizers = largest + ops.log(ops.sum(exponentials, axis=-1))
    return normalizers - chosen, normalizers


@fusion.fused
def _of_logits(logits, token_ids, normalizers, of_losses):
    normalizers, of_losses = (
        ops.expand_dims(tensor, -1) for tensor in (normalizers, of_losses)
    )
    labels = ops.cast(_is_label(logits, token_ids), logits.dtype)
    return (ops.exp(logits - normalizers) - labels) * of_losses


def _is_label(logits, token_ids):
    """[..., V] bool."""
    return ops.expand_dims(token_ids, -1) == ops.arange(logits.shape[-1], dtype="int32")
