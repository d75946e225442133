# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training state, which an interrupted training resumes from."""

from __future__ import annotations

import math
import shutil

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import ModelDirectory
from bert_tf.modeling import Dropout
from bert_tf.training.strategy import create_training_variables

_TRAINING_STATES = "training_state"
_STATES_KEPT = 2

# TensorFlow raises any of these for a state that is truncated or of another model.
_UNREADABLE = (
    tf.errors.OpError,
    AssertionError,
    LookupError,
    RuntimeError,
    ValueError,
)


class TrainingState:
    """Saves and restores everything that bit-equal resuming needs.

    The state consists of the weights, the optimizer moments, the step, and the seed
    generators of the dropout layers. No stock Keras callback saves the last ones
    (keras-team/keras#19796). The position in the data follows from the step. The files
    are in `training_state/` in the model directory.

    Create the object in the scope of the strategy.

    Args:
        directory: The model directory.
        model: The compiled model. `model.optimizer` is saved too.
        keep_all: Whether to keep the model of every saved step, as the model
            directory `steps/<step>` in `directory`.

    Attributes:
        directory: See above.
        path: The folder of the states.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        model: keras.Model,
        *,
        keep_all: bool = False,
    ):
        self.directory = directory
        self._model = model
        self._keep_all = keep_all
        self.path = directory.path / _TRAINING_STATES
        create_training_variables(model)
        self._manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(
                model=model,
                optimizer=model.optimizer,
                seeds=[
                    layer.seed_generator.state.value
                    for layer in model._flatten_layers()
                    if isinstance(layer, (keras.layers.Dropout, Dropout)) and layer.rate
                ],
            ),
            str(self.path),
            max_to_keep=_STATES_KEPT,
        )

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(keras.ops.convert_to_numpy(self._model.optimizer.iterations))

    def save(self, *, weights: bool = True) -> None:
        """Saves the state of the current step.

        Args:
            weights: Whether to update `model.weights.h5` too.

        Raises:
            OSError: Writing failed, e.g. because the disk is full. The states that
                were saved before remain.
        """
        self._check_disk_space()
        if weights:
            self.directory.save_weights(self._model)
        if self._keep_all:
            self.directory.copy(self.directory.path / "steps" / str(self.step))
        try:
            self._manager.save(checkpoint_number=self.step)
        except tf.errors.OpError as error:
            raise OSError(
                f"The training state of step {self.step:,} cannot be written; the "
                f"previous one is kept. TensorFlow reports: {error.message}"
            ) from error

    def _check_disk_space(self) -> None:
        # HDF5 may crash the process if the disk fills up while it writes.
        weights = sum(4 * math.prod(v.shape) for v in self._model.variables)
        needed = weights * (5 if self._keep_all else 4)  # Adam has two moments.
        free = shutil.disk_usage(self.directory.path).free
        if free < needed:
            raise OSError(
                f"Not enough disk space in {self.directory.path}: step {self.step:,} "
                f"needs {needed / 1e6:,.0f} MB, but only {free / 1e6:,.0f} MB are "
                "free. The previous checkpoint is kept. Free some space and rerun the "
                "same command to resume from it."
            )

    def restore(self) -> int:
        """Restores the newest readable state, if any, and returns its step.

        Raises:
            ValueError: There are states, but none is readable.
        """
        for path in reversed(self._manager.checkpoints):
            try:
                status = self._manager.checkpoint.restore(path)
                status.assert_existing_objects_matched()
                return self.step
            except _UNREADABLE as error:
                reason = str(error).splitlines()[0]
                logging.warning("%s is damaged; trying an older one: %s", path, reason)
        if self._manager.checkpoints:
            raise ValueError(
                f"{self.path} has no readable training state. Remove the folder to "
                "start over, or pass the weights to --init_from."
            )
        return self.step

    def remove(self) -> None:
        """Removes all states, after the training is finished."""
        shutil.rmtree(self.path, ignore_errors=True)
