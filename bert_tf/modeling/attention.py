# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, for inference and for training.

Between the two passes of training, differentiation of its parts keeps three tensors of
the size of the scores, [B, N, S, S], the largest there are in long rows: probabilities,
those left by dropout, and which. Here the probabilities alone are kept, with the sign
that says which. The gradient is that of FlashAttention (arXiv 2205.14135, appendix B).

Letters as in `model`. The query comes scaled: that is fewer numbers than the scores.
"""

from __future__ import annotations

from keras import ops

from bert_tf.modeling import fusion, gradients
from bert_tf.modeling.dropout import draw_kept
from bert_tf.modeling.fusion import float32

# Finite, so that a row of nothing but padding gives a uniform distribution and no NaN,
# also in bfloat16.
_MASKED_SCORE = -1e9


def bias_of(mask):
    """Returns what to add to the scores, [B, 1, 1 or S, S] float32.

    Args:
        mask: [B, S] or, row attends to column, [B, 1 or S, S]; 0 is what not to see.
    """
    if len(mask.shape) == 2:
        mask = ops.expand_dims(mask, 1)
    return ops.where(ops.cast(ops.expand_dims(mask, 1), "bool"), 0.0, _MASKED_SCORE)


def attend(query, key, value, bias=None):
    """Returns softmax(query keyᵀ + bias) value, [B, N, S, D].

    Args:
        query, key, value: [B, N, S, D].
        bias: As `bias_of` says, [B, 1, 1 or S, S] float32; None if all is seen.
    """
    return ops.matmul(_probabilities(query, key, bias), value)


def attend_in_training(query, key, value, bias, *, dropout=0.0, seed=None):
    """`attend` with dropout of probabilities, and a gradient that keeps little.

    Args:
        query, key, value: [B, N, S, D].
        bias: As `bias_of` says. It gets no gradient.
        dropout: Share of the probabilities that are set to 0.
        seed: `keras.random.SeedGenerator` for them.
    """
    kept = None
    if dropout:
        kept = draw_kept((*ops.shape(query)[:3], ops.shape(key)[2]), dropout, seed)
    scale = 1 / (1 - dropout)

    @gradients.with_gradient
    def attend_with_dropout(query, key, value):
        signed = _probabilities(query, key, bias)
        if kept is not None:
            signed = _negative_where_dropped(signed, kept)
        y = ops.matmul(_used(signed), value) * scale

        def gradient(of_y):
            of_scaled = of_y * scale
            later = gradients.after(of_y, signed)
            of_value = ops.matmul(_transposed(_used(later)), of_scaled)
            of_used = ops.matmul(of_scaled, _transposed(value))
            of_scores = _of_scores(later, of_used, of_y, y)
            of_query = ops.matmul(of_scores, key)
            of_key = ops.matmul(_transposed(of_scores), query)
            return of_query, of_key, of_value

        return y, gradient

    return attend_with_dropout(query, key, value)


@fusion.fused
def _negative_where_dropped(probabilities, kept):
    return ops.where(kept, probabilities, -probabilities)


@fusion.fused  # TensorFlow's own is slow in bfloat16.
def _used(signed):
    return ops.relu(signed)


@fusion.fused
def _of_scores(signed, of_used, of_y, y):
    """The gradient of the scores, of the type of `signed`."""
    signed = float32(signed)
    # What softmax takes off each row; a sum over D instead of over S.
    mean = ops.sum(float32(of_y) * float32(y), axis=-1, keepdims=True)
    of_scores = ops.relu(signed) * float32(of_used) - ops.abs(signed) * mean
    return ops.cast(of_scores, of_used.dtype)


def _probabilities(query, key, bias):
    """[B, N, S, S], of the type of `query`."""
    # In float32: bfloat16 would round small probabilities away.
    scores = float32(ops.matmul(query, _transposed(key)))
    scores = scores if bias is None else scores + bias
    return ops.cast(ops.softmax(scores), query.dtype)


def _transposed(matrices):
    return ops.transpose(matrices, (0, 1, 3, 2))
