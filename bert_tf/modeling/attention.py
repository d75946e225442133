# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention (arXiv 1706.03762, section 3.2).

Letters: B batch, S sequence, N heads, D size of a head, H = N D.
"""

from __future__ import annotations

from keras import ops

from bert_tf.modeling.backend import (
    custom_gradient,
    delay_until,
    dropout_mask,
    xla_fused,
)

# Replaces the logits of masked elements, and is added to masked attention scores. It is
# finite, so that the softmax of a row of padding is uniform and not NaN.
MASKED_SCORE = -1e9


def split_heads(x, shape, num_heads: int):
    """Returns [B, N, S, D] from x [B*S, H] and the shape (B, S, ...)."""
    x = ops.reshape(x, (shape[0], shape[1], num_heads, x.shape[1] // num_heads))
    return ops.transpose(x, (0, 2, 1, 3))


def merge_heads(x):
    """[B, N, S, D] -> [B*S, H]."""
    x = ops.transpose(x, (0, 2, 1, 3))
    return ops.reshape(x, (-1, x.shape[2] * x.shape[3]))


def attention_bias(mask):
    """Returns what to add to attention scores, [B, 1, 1 or S, S] float32.

    Args:
        mask: [B, S] or [B, 1 or S, S] (query attends to key), any dtype; nonzero for
            tokens to attend to.
    """
    if len(mask.shape) == 2:
        mask = ops.expand_dims(mask, 1)
    return ops.where(ops.cast(ops.expand_dims(mask, 1), "bool"), 0.0, MASKED_SCORE)


def attention_probabilities(query, key, bias):
    """Returns softmax(query keyᵀ + bias), [B, N, S, S] of the dtype of `query`."""
    # In float32: bfloat16 would round small probabilities to 0.
    scores = ops.matmul(query, _transpose(key))
    scores = ops.cast(scores, "float32")
    scores = scores if bias is None else scores + bias
    return ops.cast(ops.softmax(scores), query.dtype)


def attend(query, key, value, bias=None):
    """Returns softmax(query keyᵀ + bias) value, [B, N, S, D].

    Args:
        query: [B, N, S, D], scaled, which takes fewer multiplications than scaling the
            scores.
        key: [B, N, S, D].
        value: [B, N, S, D].
        bias: See `attention_bias`; None for no mask.
    """
    return ops.matmul(attention_probabilities(query, key, bias), value)


def attend_in_training(query, key, value, bias, rate: float, seed):
    """Returns `attend` with dropout of the probabilities.

    Tensors of size [B, N, S, S] are the largest in long rows. Autodiff keeps three of
    them: the probabilities before and after dropout, and the mask. This function keeps
    one: the probabilities, negated where dropout sets them to 0. The gradient follows
    FlashAttention (arXiv 2205.14135, appendix B).

    Args:
        query, key, value, bias: As for `attend`; the bias gets no gradient.
        rate, seed: See `dropout_mask`.
    """
    mask = dropout_mask((*ops.shape(query)[:3], ops.shape(key)[2]), rate, seed)
    scale = 1 / (1 - rate)

    def kept(signed):
        return signed if mask is None else ops.relu(signed)

    @custom_gradient
    def attend_with_dropout(query, key, value):
        signed = attention_probabilities(query, key, bias)
        if mask is not None:
            signed = ops.where(mask, signed, -signed)
        y = ops.matmul(kept(signed), value) * scale

        def gradient(dy):
            d_scaled = dy * scale
            delayed = delay_until(dy, signed)
            d_value = ops.matmul(_transpose(kept(delayed)), d_scaled)
            d_dropped = ops.matmul(d_scaled, _transpose(value))
            d_scores = _d_scores(delayed, d_dropped)
            d_query = ops.matmul(d_scores, key)
            d_key = ops.matmul(_transpose(d_scores), query)
            return d_query, d_key, d_value

        return y, gradient

    return attend_with_dropout(query, key, value)


@xla_fused
def _d_scores(signed, d_dropped):
    """Returns the gradient w.r.t. the scores, of the dtype of `d_dropped`."""
    dtype, d_dropped = d_dropped.dtype, ops.cast(d_dropped, "float32")
    signed = ops.cast(signed, "float32")
    weighted = ops.relu(signed) * d_dropped
    # FlashAttention has sum(dy * y), over D instead of S. That is cheaper, but the
    # rounding errors of a bfloat16 y do not cancel where a probability is close to 1.
    mean = ops.sum(weighted, axis=-1, keepdims=True)
    return ops.cast(weighted - ops.abs(signed) * mean, dtype)


def _transpose(matrices):
    return ops.transpose(matrices, (0, 1, 3, 2))
