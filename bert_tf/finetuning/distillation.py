# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Knowledge distillation: a student learns from the outputs of a teacher.

The loss of a training step is (arXiv 1503.02531; hidden states: arXiv 1909.10351)

    (1 - teacher_share) * loss of the labels
        + teacher_share * difference to the outputs of the teacher
        + hidden_loss * difference to its hidden states

The teacher runs within the step, without dropout, on the inputs of the student. The
difference of scores and vectors is the squared distance. That of logits is the
Kullback-Leibler divergence of the probabilities, after a division of the logits by
`teacher_temperature`. The difference of hidden states is the mean squared error over
tokens and layers; each layer of the student is compared with the teacher's layer at the
same share of the depth.

Letters: B batch, S sequence, H hidden, R sequences of a batch (B, or B * C choices).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.finetuning.task import Task
from bert_tf.modeling import BertBackbone


def check_teacher(task: Task, student: Checkpoint) -> None:
    """Checks that `--teacher` has the inputs and outputs of the student.

    Args:
        task: The task, whose options name the teacher.
        student: The initial weights of the student.

    Raises:
        ValueError: They differ, or a setting requires a teacher.
    """
    path, hidden_loss = task.options.teacher, task.options.hidden_loss
    if not path:
        if hidden_loss:
            raise ValueError("--hidden_loss requires --teacher.")
        return

    def traits(checkpoint: Checkpoint, head: Mapping[str, Any]) -> dict[str, Any]:
        config, limit = checkpoint.architecture, task.options.max_sequence_length
        same_size = hidden_loss or "pooling" in head
        head = {"problem": "classification", **head}
        keys = ("kind", "problem", "pooling", "dense_dim")
        return {
            **{key: head.get(key) for key in keys},
            "labels": sorted(head.get("labels") or ()),
            "hidden size": config.hidden_dim if same_size else None,
            "vocabulary": checkpoint.vocabulary,
            "lowercase": checkpoint.lowercase,
            "tokenizer rules": checkpoint.rules,
            "number of positions": min(config.max_sequence_length, limit),
        }

    teacher = open_checkpoint(path)
    theirs = traits(teacher, teacher.head)
    for name, value in traits(student, {"kind": task.kind, **task.head}).items():
        if theirs[name] != value:
            raise ValueError(
                f"--teacher={path} must have the same {name} as the student. Received: "
                f"{theirs[name]}, not {value}"
            )


class Distiller(keras.Model):
    """Trains a student with a teacher.

    Args:
        task: The task, whose options name the teacher.
        model: The student, the result of `task.model`.
        trainable: Its `task.training_model`. Compile it before the first step.

    Outputs: those of the student, and the hidden states [..., S, H] of its encoder.
    """

    def __init__(self, task: Task, model: keras.Model, trainable: keras.Model):
        super().__init__()
        self.student = trainable
        self._options = task.options
        self._target_kind = task.target_kind
        checkpoint = open_checkpoint(task.options.teacher)
        backbone = BertBackbone(checkpoint.architecture, dtype=task.options.precision)
        teacher = task.model(backbone, checkpoint.head)
        checkpoint.load_into(teacher)
        student = model
        if self._options.hidden_loss:
            teacher, student = map(_with_hidden_states, (teacher, model))
        teacher, student = map(task.training_model, (teacher, student))

        # Functions, because Keras would train and save attributes that are models.
        def teach(inputs):
            outputs, states = self._with_states(teacher(inputs, training=False))
            outputs = keras.tree.flatten(outputs)
            return [_align(checkpoint.head, task.head, x) for x in outputs], states

        self._teach = teach
        self._call_student = lambda *args, **kwargs: student(*args, **kwargs)
        self.built = True

    def _with_states(self, outputs):
        return outputs if self._options.hidden_loss else (outputs, [])

    @property
    def trainable_variables(self):
        return self.student.trainable_variables

    @property
    def trainable_weights(self):
        return self.student.trainable_weights

    def call(self, inputs, training=None):
        return self._with_states(self._call_student(inputs, training=training))

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        options, (outputs, states) = self._options, y_pred
        weights = keras.tree.flatten(sample_weight)[0]  # Equal for all outputs.
        targets, target_states = self._teach(x)
        pairs = zip(targets, keras.tree.flatten(outputs), strict=True)
        losses = tf.stack([self._difference(*pair) for pair in pairs], axis=-1)
        loss = (1 - options.teacher_share) * self.student.compute_loss(
            x, y, outputs, sample_weight
        )
        loss += options.teacher_share * _weighted_sum(weights, losses)
        if options.hidden_loss:
            mask = tf.cast(x["padding_mask"], tf.float32)
            rows = _hidden_difference(target_states, states, mask)
            weights = tf.reduce_sum(tf.reshape(weights, [tf.shape(mask)[0], -1]), 1)
            loss += options.hidden_loss * _weighted_sum(weights, rows)
        return loss

    def _difference(self, target, output):
        """Returns the differences of outputs [..., C], without their last axis."""
        if self._target_kind == "score":
            return tf.reduce_sum(tf.square(target - output), axis=-1)
        temperature = self._options.teacher_temperature
        target, output = target / temperature, output / temperature
        if self._target_kind == "labels":  # A sigmoid is the softmax with a 0.
            target, output = (
                tf.stack([x, tf.zeros_like(x)], axis=-1) for x in (target, output)
            )
        entropy = tf.nn.softmax_cross_entropy_with_logits
        soft = tf.nn.softmax(target)
        # The factor keeps the size of the gradients.
        return (entropy(soft, output) - entropy(soft, target)) * temperature**2


def _hidden_difference(
    teacher: Sequence[tf.Tensor], student: Sequence[tf.Tensor], mask: tf.Tensor
) -> tf.Tensor:
    """Returns the mean squared error over layers and tokens [...].

    Args:
        teacher, student: The outputs of the embeddings and of each layer [R, S, H].
        mask: 1 for tokens [..., S].
    """
    layers, error = len(student) - 1, 0.0
    for index in range(1, layers + 1):
        target = teacher[index * (len(teacher) - 1) // layers]
        difference = tf.cast(student[index] - target, tf.float32)
        error += tf.reduce_mean(tf.square(difference), axis=-1) / layers
    error = tf.reduce_sum(mask * tf.reshape(error, tf.shape(mask)), axis=-1)
    return tf.math.divide_no_nan(error, tf.reduce_sum(mask, axis=-1))


def _weighted_sum(weights, losses):
    """Returns the weighted sum of losses, averaged over axes that `weights` lacks."""
    axes = list(range(weights.shape.rank, losses.shape.rank))
    return tf.reduce_sum(weights * tf.reduce_mean(losses, axes))


def _align(teacher: Mapping[str, Any], student: Mapping[str, Any], outputs: tf.Tensor):
    """Converts outputs to the order of labels, or the scale of scores, of a student.

    Args:
        teacher, student: Their heads.
        outputs: The outputs of the teacher [..., C].
    """
    if labels := student.get("labels"):
        order = [list(teacher["labels"]).index(label) for label in labels]
        return tf.gather(outputs, order, axis=-1)
    if "deviation" not in student:
        return outputs
    return (outputs - student["mean"]) / student["deviation"]


def _with_hidden_states(model: keras.Model) -> keras.Model:
    """Returns a model with the outputs of `model` and the states of its encoder."""
    backbone, states = model.backbone, []
    encoder = keras.Model(backbone.input, [backbone.output, backbone.hidden_states])

    def call(layer, *args, **kwargs):
        if layer is not backbone:
            return layer(*args, **kwargs)
        outputs, states[:] = encoder(*args, **kwargs)
        return outputs

    same = keras.models.clone_model(
        model, clone_function=lambda layer: layer, call_function=call
    )
    return keras.Model(same.input, [same.output, states])
