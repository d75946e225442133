# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains sentence encoders: losses over the texts of a batch, and gradient caching.

An example is C texts: a pair, or a pair and its hard negatives. All losses compare
cosine similarities, and most compare texts of different examples, so they are functions
of the whole batch:

    embeddings   [B, C, E] float32, of length 1
    targets      scores [B] float32, or text ids [B, C] int32: equal ids are equal
                 texts, and -1 marks a missing text
    weights      [B] float32; they sum to one over the batch, and rows of weight 0 are
                 padding

With several replicas, each compares the texts of its part of the batch.

Letters: B batch, C texts of an example, S sequence, E size of an embedding, M examples
of a micro-batch, K micro-batches.
"""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops

from bert_tf.modeling import MASKED_SCORE, Dropout

# --- Losses ----------------------------------------------------------------------


def cosine_error(embeddings, scores, weights, temperature):
    """Returns the squared error of the cosine of each pair (arXiv 1908.10084).

    Args:
        embeddings, weights: See the module docstring. C is 2.
        scores: Cosines to learn, from -1 to 1.
        temperature: Not used.
    """
    return tf.reduce_sum(weights * tf.square(_pair_cosines(embeddings) - scores))


def cosent(embeddings, scores, weights, temperature):
    """Returns the CoSENT loss, which learns the order of the scores only.

    That is log(1 + sum(exp((cosine_j - cosine_i) / temperature))) over all pairs of
    examples with score_i > score_j (DOI 10.1109/TASLP.2024.3402087).

    Args:
        embeddings, scores, weights: See the module docstring. C is 2.
        temperature: Divides the cosines.
    """
    cosines = _pair_cosines(embeddings) / temperature
    is_example = weights > 0
    counts = (scores[:, tf.newaxis] > scores) & is_example[:, tf.newaxis] & is_example
    exponents = tf.where(counts, cosines - cosines[:, tf.newaxis], MASKED_SCORE)
    exponents = tf.concat([[0.0], tf.reshape(exponents, [-1])], axis=0)
    return tf.reduce_sum(weights) * tf.reduce_logsumexp(exponents)


def in_batch_negatives(embeddings, text_ids, weights, temperature):
    """Returns the cross-entropy of finding the second text of each example.

    The candidates are all texts of the batch but the first of each example (multiple
    negatives ranking, arXiv 1705.00652). Not counted as negatives of an example are
    texts that equal one of its own two, and the second texts of examples with the same
    first text. If both texts of an example are equal, dropout makes their embeddings
    differ: this is unsupervised SimCSE (arXiv 2104.08821).

    Args:
        embeddings, text_ids, weights: See the module docstring.
        temperature: Divides the cosines.
    """
    logits = tf.einsum("ie,jce->ijc", embeddings[:, 0], embeddings[:, 1:])
    first, ids = text_ids[:, 0], text_ids[:, 1:]
    is_second = tf.range(tf.shape(ids)[1]) == 0
    # For each example [B, 1, 1], the candidates [B, C - 1] that are not negatives.
    no_negative = (ids < 0) | (weights == 0)[:, tf.newaxis]
    no_negative |= ids == first[:, tf.newaxis, tf.newaxis]
    no_negative |= ids == ids[:, :1, tf.newaxis]
    no_negative |= (first[:, tf.newaxis] == first)[:, :, tf.newaxis] & is_second
    is_target = tf.eye(tf.size(first), dtype=tf.bool)[:, :, tf.newaxis] & is_second
    logits = tf.where(no_negative & ~is_target, MASKED_SCORE, logits / temperature)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.range(tf.size(first)) * tf.size(is_second),
        tf.reshape(logits, [tf.size(first), -1]),
    )
    return tf.reduce_sum(weights * losses)


def _pair_cosines(embeddings):
    """[B, 2, E] -> [B]"""
    return tf.reduce_sum(embeddings[:, 0] * embeddings[:, 1], axis=1)


LOSSES = {
    "cosine": cosine_error,
    "cosent": cosent,
    "in_batch_negatives": in_batch_negatives,
}


# --- The model -------------------------------------------------------------------


class SiameseEncoder(keras.Model):
    """Embeds the C texts of an example with one encoder, to train it.

    With `micro_batch_size`, a step computes the embeddings of the whole batch in
    micro-batches without keeping activations, then the gradient of the loss w.r.t. the
    embeddings, then each micro-batch again with its gradient (GradCache, arXiv
    2101.06983). The gradients are the same. Activations take the memory of one
    micro-batch, the step about a third more time.

    Args:
        encoder: A `SentenceEncoder`; its inputs are [B, S].
        loss: `"cosent"`, `"cosine"` or `"in_batch_negatives"`.
        temperature: Divides the cosines in the loss.
        micro_batch_size: Examples to compute at once, M; divides the batch of a
            replica. 0: the whole batch.

    Inputs: those of the encoder, but [B, C, S]. Outputs: embeddings [B, C, E]; all
    outputs of the encoder if there are more.
    """

    def __init__(self, encoder, loss, temperature, micro_batch_size=0):
        super().__init__()
        self.encoder = encoder
        self._loss_function = LOSSES[loss]
        self._temperature = temperature
        self._micro_batch_size = micro_batch_size
        self.built = True

    @property
    def trainable_variables(self):
        return self.encoder.trainable_variables

    @property
    def trainable_weights(self):
        return self.encoder.trainable_weights

    def call(self, inputs, training=None):
        batch, texts, length = ops.shape(inputs["token_ids"])
        inputs = {k: ops.reshape(x, (-1, length)) for k, x in inputs.items()}
        outputs = self.encoder(inputs, training=training)  # [B * C, ...]
        return keras.tree.map_structure(
            lambda x: ops.reshape(x, (batch, texts, *ops.shape(x)[1:])), outputs
        )

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        embeddings = tf.math.l2_normalize(y_pred, axis=2)
        return self._loss_function(embeddings, y, sample_weight, self._temperature)

    def train_step(self, data):
        if not self._micro_batch_size:
            return super().train_step(data)
        x, y, weights = data
        parts = keras.tree.map_structure(self._split, x)
        seeds = [
            layer.seed_generator.state
            for layer in self._flatten_layers()
            if isinstance(layer, Dropout) and layer.rate
        ]
        states = [tf.identity(seed.value) for seed in seeds]
        embeddings = tf.map_fn(
            lambda part: self(part, training=True),
            parts,
            parallel_iterations=1,
            fn_output_signature=tf.float32,
        )  # [K, M, C, E]
        embeddings = tf.reshape(embeddings, [-1, *ops.shape(embeddings)[2:]])
        with tf.GradientTape() as tape:
            tape.watch(embeddings)
            loss = self.compute_loss(x, y, embeddings, weights)
        upstream = self._split(tape.gradient(loss, embeddings))
        for seed, state in zip(seeds, states):
            seed.assign(state)  # The same dropout masks as before.
        variables = self.trainable_variables
        gradients = tf.foldl(
            self._add_gradients,
            (parts, upstream),
            [tf.zeros_like(variable.value) for variable in variables],
            parallel_iterations=1,
        )
        replicas = self.distribute_strategy.num_replicas_in_sync
        self._loss_tracker.update_state(loss * replicas, ops.shape(weights)[0])
        self.optimizer.apply_gradients(zip(gradients, variables))
        return self.get_metrics_result()

    def _split(self, x):
        """[B, ...] -> [K, M, ...]"""
        return tf.reshape(x, [-1, self._micro_batch_size, *ops.shape(x)[1:]])

    def _add_gradients(self, sums, part):
        """Adds the gradients w.r.t. the weights of one micro-batch to `sums`."""
        inputs, upstream = part
        variables = [variable.value for variable in self.trainable_variables]
        with tf.GradientTape() as tape:
            embeddings = self(inputs, training=True)
        gradients = tape.gradient(embeddings, variables, output_gradients=upstream)
        return [a + tf.convert_to_tensor(b) for a, b in zip(sums, gradients)]
