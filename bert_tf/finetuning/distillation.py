# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Distillation: a student learns from the outputs of a teacher.

The loss of a training step is (arXiv 1503.02531)

    (1 - teacher_share) * loss of the labels
        + teacher_share * difference to the outputs of the teacher

The teacher runs within the step, without dropout, on the inputs of the student. The
difference of scores and vectors is the squared distance. That of logits is the
Kullback-Leibler divergence of the probabilities, after a division of the logits by
`teacher_temperature`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.checkpoints import Checkpoint, open_checkpoint
from bert_tf.finetuning.task import Task


def open_teacher(task: Task) -> Checkpoint | None:
    """Opens `--teacher`; returns None without.

    Args:
        task: The task of the student, whose options name the teacher.

    Raises:
        ValueError: Its inputs or outputs are not those of the student.
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
    ours = traits(task.encoder, {"kind": task.kind, **task.settings})
    for name, value in ours.items():
        if theirs[name] != value:
            raise ValueError(
                f"--teacher={path} must have the same {name} as the student. Received: "
                f"{theirs[name]}, not {value}"
            )
    return teacher


class Distiller(keras.Model):
    """Trains a student with a teacher.

    Args:
        task: The task.
        teacher: The result of `open_teacher`.
        student: The result of `task.training_model`. Compile it before the first step.

    Outputs: those of the student.

    Raises:
        ValueError: The teacher lacks weights.
    """

    def __init__(self, task: Task, teacher: Checkpoint, student: keras.Model):
        super().__init__()
        self._student = student
        self._task = task
        self.built = True
        backbone = teacher.build_backbone(task.options.precision)
        head = task.build_head(teacher.head)
        model = head.build(backbone)
        if missing := {*teacher.load_into(model)} - {*head.unused_layers}:
            raise ValueError(
                f"--teacher={teacher.path} has no weights for "
                f"{', '.join(sorted(missing))}, so its answers would be random."
            )
        model = task.training_model(model)
        settings, labels = task.settings, list(teacher.head.get("labels", ()))
        order = [labels.index(label) for label in settings.get("labels", ())]
        activation = keras.activations.get(teacher.head.get("activation"))
        standardize = task.scale.standardize if task.scale else lambda scores: scores

        # A function, because Keras would train and save an attribute that is a model.
        def teach(inputs):
            outputs = keras.tree.flatten(model(inputs, training=False))
            if order:
                return [ops.take(x, order, axis=-1) for x in outputs]
            # The scores that it serves, standardized as those of the student.
            return [standardize(activation(x)) for x in outputs]

        self._teach = teach

    def call(self, inputs, training=None):
        return self._student(inputs, training=training)

    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        weights = keras.tree.flatten(sample_weight)[0]  # Equal for all outputs.
        options = self._task.options
        losses = [
            difference(target, output, self._task.problem, options.teacher_temperature)
            for target, output in zip(self._teach(x), keras.tree.flatten(y_pred))
        ]
        # The mean over axes that `weights` lacks, such as the labels of a text.
        axes = list(range(len(weights.shape), len(losses[0].shape) + 1))
        loss = ops.sum(weights * ops.mean(ops.stack(losses, axis=-1), axes))
        own_loss = self._student.compute_loss(x, y, y_pred, sample_weight)
        return (1 - options.teacher_share) * own_loss + options.teacher_share * loss


def difference(target, output, problem, temperature):
    """Returns the differences of outputs [..., C], without their last axis.

    Args:
        target: The outputs of the teacher.
        output: Those of the student.
        problem: See `Task.problem`.
        temperature: Divides logits.
    """
    if problem == "regression":
        return ops.sum(ops.square(target - output), axis=-1)
    target, output = target / temperature, output / temperature
    soft, entropy = ops.softmax(target), ops.categorical_crossentropy
    if problem == "multi_label":
        soft, entropy = ops.sigmoid(target), ops.binary_crossentropy
    # The factor keeps the size of the gradients.
    entropy = functools.partial(entropy, soft, from_logits=True)
    return (entropy(output) - entropy(target)) * temperature**2
