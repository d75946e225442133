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

import copy
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.finetuning.task import Task
from bert_tf.modeling import BertBackbone
from bert_tf.training import strategy


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
    """Trains a student with a teacher. Its outputs are those of the student.

    Args:
        task: The task, whose options name the teacher.
        model: The student, the result of `task.model`.
        trainable: Its compiled `task.trainable_model`.
    """

    def __init__(self, task: Task, model: keras.Model, trainable: keras.Model):
        super().__init__()
        strategy.create_training_variables(trainable)
        self.student = trainable
        self._options = task.options
        self._target_kind = task.target_kind
        checkpoint = open_checkpoint(task.options.teacher)
        task, head = copy.copy(task), task.head  # `model` may set attributes.
        task.head = checkpoint.head
        backbone = BertBackbone(checkpoint.architecture, dtype=task.options.precision)
        teacher = task.model(backbone)
        checkpoint.load_into(teacher)
        teacher = task.trainable_model(teacher)

        def teach(inputs):
            outputs = keras.tree.flatten(teacher(inputs, training=False))
            return [_align(checkpoint.head, head, output) for output in outputs]

        # A function, because Keras would train and save an attribute that is a model.
        self._teach = teach
        if self._options.hidden_loss:
            self._states = _record_states(backbone), _record_states(model.backbone)
        self.built = True

    @property
    def trainable_variables(self):
        return self.student.trainable_variables

    @property
    def trainable_weights(self):
        return self.student.trainable_weights

    def call(self, inputs, training=None):
        return self.student(inputs, training=training)

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        options = self._options
        weights = keras.tree.flatten(sample_weight)[0]  # Equal for all outputs.
        pairs = zip(self._teach(x), keras.tree.flatten(y_pred), strict=True)
        losses = tf.stack([self._difference(*pair) for pair in pairs], axis=-1)
        loss = (1 - options.teacher_share) * self.student.compute_loss(
            x, y, y_pred, sample_weight
        )
        loss += options.teacher_share * _weighted_sum(weights, losses)
        if options.hidden_loss:
            rows = self._hidden_difference(x["padding_mask"])
            weights = tf.reduce_sum(tf.reshape(weights, [tf.shape(rows)[0], -1]), 1)
            loss += options.hidden_loss * _weighted_sum(weights, rows)
        return loss

    def _difference(self, target, output):
        """Returns the differences of outputs [..., C], without their last axis."""
        if self._target_kind == "values":
            return tf.reduce_sum(tf.square(target - output), axis=-1)
        temperature = self._options.teacher_temperature
        target, output = target / temperature, output / temperature
        if self._target_kind == "classes":  # A sigmoid is the softmax with a 0.
            target, output = (
                tf.stack([x, tf.zeros_like(x)], axis=-1) for x in (target, output)
            )
        entropy = tf.nn.softmax_cross_entropy_with_logits
        soft = tf.nn.softmax(target)
        # The factor keeps the size of the gradients.
        return (entropy(soft, output) - entropy(soft, target)) * temperature**2

    def _hidden_difference(self, padding_mask):
        """Returns the mean squared error over layers and tokens [B, R / B]."""
        teacher, student = (states() for states in self._states)
        batch, length = tf.shape(padding_mask)[0], tf.shape(padding_mask)[-1]
        mask = tf.cast(tf.reshape(padding_mask, [-1, length]), tf.float32)  # [R, S]
        layers, error = len(student) - 1, 0.0
        for index in range(1, layers + 1):
            target = teacher[index * (len(teacher) - 1) // layers]
            difference = tf.cast(student[index] - target, tf.float32)  # [R, S, H]
            error += tf.reduce_mean(tf.square(difference), axis=2) / layers
        error = tf.reduce_sum(mask * error, axis=1)
        error = tf.math.divide_no_nan(error, tf.reduce_sum(mask, axis=1))
        return tf.reshape(error, [batch, -1])


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


def _record_states(backbone: BertBackbone) -> Callable[[], list[tf.Tensor]]:
    """Returns a function that returns the hidden states of the encoder's last call.

    The models of tasks call their encoder, whose outputs do not include them.
    """
    encoder = keras.Model(backbone.input, [backbone.output, backbone.hidden_states])
    recorded = {}

    def call(inputs, training=None, mask=None):
        outputs, recorded["states"] = encoder(inputs, training=training)
        return outputs

    backbone.call = call
    return lambda: recorded["states"]
