# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses of sentence encoders.

An example is C texts: a pair, or a pair and its hard negatives. All losses compare
cosine similarities, and most compare texts of different examples, so they are functions
of the whole batch:

    embeddings   [B, C, E] float32, of length 1
    targets      scores [B] float32, or text ids [B, C] int32: equal ids are equal
                 texts, and -1 marks a missing text
    weights      [B] float32; they sum to one over the batch, and rows of weight 0 are
                 padding

On TensorFlow with several replicas, each compares the texts of its part of the batch;
on JAX, all compare the texts of the whole batch.

Letters: B batch, C texts of an example, S sequence, E size of an embedding.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.modeling import MASKED_SCORE


def cosent(embeddings, scores, weights, temperature):
    """Returns the CoSENT loss, which learns the order of the scores only.

    That is log(1 + sum(exp((cosine_j - cosine_i) / temperature))) over all pairs of
    examples with score_i > score_j (DOI 10.1109/TASLP.2024.3402087).

    Args:
        embeddings, scores, weights: See the module. C is 2.
        temperature: Divides the cosines.
    """
    cosines = ops.sum(embeddings[:, 0] * embeddings[:, 1], axis=1) / temperature
    is_example = weights > 0
    counts = (scores[:, None] > scores) & is_example[:, None] & is_example
    exponents = ops.where(counts, cosines - cosines[:, None], MASKED_SCORE)
    exponents = ops.pad(ops.reshape(exponents, (-1,)), [[1, 0]])  # log(1 + ...)
    return ops.sum(weights) * ops.logsumexp(exponents)


def in_batch_negatives(embeddings, text_ids, weights, temperature):
    """Returns the cross-entropy of finding the second text of each example.

    The candidates are all texts of the batch but the first of each example (multiple
    negatives ranking, arXiv 1705.00652). Not counted as negatives of an example are
    texts that equal one of its own two, and the second texts of examples with the same
    first text. If both texts of an example are equal, dropout makes their embeddings
    differ: this is unsupervised SimCSE (arXiv 2104.08821).

    Args:
        embeddings, text_ids, weights: See the module.
        temperature: Divides the cosines.
    """
    logits = ops.einsum("ie,jce->ijc", embeddings[:, 0], embeddings[:, 1:])
    first, ids = text_ids[:, 0], text_ids[:, 1:]
    rows, others = ops.shape(ids)
    row, is_second = ops.arange(rows), ops.arange(others) == 0
    # For each example [B, 1, 1], the candidates [B, C - 1] that are not negatives.
    no_negative = (ids < 0) | (weights == 0)[:, None]
    no_negative = no_negative | (ids == first[:, None, None])
    no_negative = no_negative | (ids == ids[:, :1, None])
    no_negative = no_negative | ((first[:, None] == first)[:, :, None] & is_second)
    is_target = (row[:, None] == row)[:, :, None] & is_second
    logits = ops.where(no_negative & ~is_target, MASKED_SCORE, logits / temperature)
    losses = ops.sparse_categorical_crossentropy(
        row * others, ops.reshape(logits, (rows, rows * others)), from_logits=True
    )
    return ops.sum(weights * losses)


LOSSES = {"cosent": cosent, "in_batch_negatives": in_batch_negatives}


class SiameseEncoder(keras.Model):
    """Embeds the C texts of an example with one encoder, to train it.

    Args:
        encoder: A `SentenceEncoder`; its inputs are [B, S].
        loss: `"cosent"` or `"in_batch_negatives"`.
        temperature: Divides the cosines in the loss.

    Inputs: those of the encoder, but [B, C, S]. Outputs: embeddings [B, C, E].
    """

    def __init__(self, encoder, loss, temperature):
        super().__init__()
        self._encoder = encoder
        self._loss_function = LOSSES[loss]
        self._temperature = temperature
        self.built = True

    def call(self, inputs, training=None):
        batch, texts, length = ops.shape(inputs["token_ids"])
        inputs = {k: ops.reshape(x, (-1, length)) for k, x in inputs.items()}
        embeddings = self._encoder(inputs, training=training)  # [B * C, E]
        return ops.reshape(embeddings, (batch, texts, embeddings.shape[-1]))

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        embeddings = ops.normalize(y_pred, axis=2)
        return self._loss_function(embeddings, y, sample_weight, self._temperature)
