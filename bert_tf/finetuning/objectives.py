# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that train with another loss than that of a head.

**Distillation.** A student learns from the outputs of a teacher. The loss of a training
step is (arXiv 1503.02531)

    (1 - teacher_share) * loss of the labels
        + teacher_share * difference to the outputs of the teacher

The teacher runs within the step, without dropout, on the inputs of the student. The
difference of scores and vectors is the squared distance. That of logits is the
Kullback-Leibler divergence of the probabilities, after a division of the logits by
`teacher_temperature`.

**Sentence encoders.** An example is C texts: a pair, or a pair and its hard negatives.
All losses compare cosine similarities, and most compare texts of different examples, so
they are functions of the whole batch:

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

import functools
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.finetuning.task import Task
from bert_tf.modeling import MASKED_SCORE

# --- Distillation ----------------------------------------------------------------


def check_teacher(task: Task) -> Checkpoint | None:
    """Checks that `--teacher` has the inputs and outputs of the student.

    Args:
        task: The task of the student, whose options name the teacher.

    Returns:
        The teacher; None without.

    Raises:
        ValueError: They differ.
    """
    if not (path := task.options.teacher):
        return None

    def traits(checkpoint: Checkpoint, head: Mapping[str, Any]) -> dict[str, Any]:
        config, limit = checkpoint.architecture, task.options.max_sequence_length
        head = {"problem": "classification", **head}
        keys = ("kind", "problem", "pooling", "dense_dim")
        return {
            **{key: head.get(key) for key in keys},
            "labels": sorted(head.get("labels") or ()),
            "hidden size": config.hidden_dim if "pooling" in head else None,
            "vocabulary": checkpoint.vocabulary,
            "lowercase": checkpoint.lowercase,
            "tokenizer rules": checkpoint.rules,
            "number of positions": min(config.max_sequence_length, limit),
        }

    teacher = open_checkpoint(path)
    theirs = traits(teacher, teacher.head)
    for name, value in traits(task.encoder, {"kind": task.kind, **task.head}).items():
        if theirs[name] != value:
            raise ValueError(
                f"--teacher={path} must have the same {name} as the student. Received: "
                f"{theirs[name]}, not {value}"
            )
    return teacher


class Distiller(keras.Model):
    """Trains a student with a teacher.

    Args:
        task: The task, whose options name the teacher.
        student: The result of `task.training_model`. Compile it before the first step.

    Outputs: those of the student.
    """

    def __init__(self, task: Task, student: keras.Model):
        super().__init__()
        self._student = student
        self._task = task
        self.built = True
        checkpoint = open_checkpoint(task.options.teacher)
        backbone = checkpoint.build_backbone(task.options.precision)
        teacher = task.served_head(checkpoint.head).build(backbone)
        checkpoint.load_into(teacher)
        teacher = task.training_model(teacher)
        labels = list(checkpoint.head.get("labels", ()))
        order = [labels.index(label) for label in task.head.get("labels", ())]
        activation = keras.activations.get(checkpoint.head.get("activation"))
        mean, deviation = task.head.get("mean", 0.0), task.head.get("deviation", 1.0)

        # A function, because Keras would train and save an attribute that is a model.
        def teach(inputs):
            outputs = keras.tree.flatten(teacher(inputs, training=False))
            if order:
                return [ops.take(x, order, axis=-1) for x in outputs]
            # The scores that it serves, standardized as those of the student.
            return [(activation(x) - mean) / deviation for x in outputs]

        self._teach = teach

    def call(self, inputs, training=None):
        return self._student(inputs, training=training)

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        weights = keras.tree.flatten(sample_weight)[0]  # Equal for all outputs.
        pairs = zip(self._teach(x), keras.tree.flatten(y_pred), strict=True)
        losses = ops.stack([self._difference(*pair) for pair in pairs], axis=-1)
        # The mean over axes that `weights` lacks, such as the labels of a text.
        axes = list(range(len(weights.shape), len(losses.shape)))
        difference = ops.sum(weights * ops.mean(losses, axes))
        share = self._task.options.teacher_share
        own_loss = self._student.compute_loss(x, y, y_pred, sample_weight)
        return (1 - share) * own_loss + share * difference

    def _difference(self, target, output):
        """Returns the differences of outputs [..., C], without their last axis."""
        if self._task.target_kind == "score":
            return ops.sum(ops.square(target - output), axis=-1)
        temperature = self._task.options.teacher_temperature
        target, output = target / temperature, output / temperature
        soft, entropy = ops.softmax(target), ops.categorical_crossentropy
        if self._task.target_kind == "labels":
            soft, entropy = ops.sigmoid(target), ops.binary_crossentropy
        # The factor keeps the size of the gradients.
        entropy = functools.partial(entropy, soft, from_logits=True)
        return (entropy(output) - entropy(target)) * temperature**2


# --- Losses of sentence encoders --------------------------------------------------


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
