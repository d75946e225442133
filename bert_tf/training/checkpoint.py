# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training state, from which a training resumes."""

from __future__ import annotations

import math
import shutil

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints.model_directory import ModelDirectory

_TRAINING_STATES = "training_state"
_STATES_KEPT = 2

# What TensorFlow raises, here and there, for a state that is truncated or another's.
_UNREADABLE = (
    tf.errors.OpError,
    AssertionError,
    LookupError,
    RuntimeError,
    ValueError,
)


class TrainingState:
    """Everything that a training needs to go on as if it had not stopped.

    Weights, optimizer moments and step, and the states of the dropout generators,
    which no stock Keras callback saves (keras issue 19796), go to `training_state/`
    in the model directory. The position in the data follows from the step.

    Args:
        directory: The model directory.
        model: The compiled model; `model.optimizer` is saved with it.
        seed_generators: The random states of its dropout layers.
        keep_all: Whether to keep the model of each step that is saved, as the model
            directory `steps/<step>` in `directory`.

    Attributes:
        directory: See above.
        path: The folder of the states.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        model: keras.Model,
        seed_generators,
        *,
        keep_all: bool = False,
    ):
        self.directory = directory
        self._model = model
        self._keep_all = keep_all
        self.path = directory.path / _TRAINING_STATES
        model.optimizer.build(model.trainable_variables)
        self._manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(
                model=model,
                optimizer=model.optimizer,
                seeds=[generator.state.value for generator in seed_generators],
            ),
            str(self.path),
            max_to_keep=_STATES_KEPT,
        )

    @property
    def step(self) -> int:
        """Steps done so far."""
        return int(keras.ops.convert_to_numpy(self._model.optimizer.iterations))

    def save(self, *, weights: bool = True) -> None:
        """Saves the state under its step.

        Args:
            weights: Whether `model.weights.h5` is to become that of this step, too.

        Raises:
            OSError: They can't be written, e.g. as the disk is full. What was saved
                before stays.
        """
        self._check_space()
        if weights:
            self.directory.save_weights(self._model)
        if self._keep_all:
            self.directory.copy(self.directory.path / "steps" / str(self.step))
        try:
            self._manager.save(checkpoint_number=self.step)
        except tf.errors.OpError as error:
            raise OSError(
                f"The training state of step {self.step:,} could not be written; the "
                f"one before it is kept. TensorFlow says: {error.message}"
            ) from error

    def _check_space(self) -> None:
        # HDF5 may crash the process when a file can't be completed.
        weights = sum(
            4 * math.prod(variable.shape) for variable in self._model.variables
        )
        needed = weights * (5 if self._keep_all else 4)  # Adam has two moments.
        free = shutil.disk_usage(self.directory.path).free
        if free < needed:
            raise OSError(
                f"The disk of {self.directory.path} is full: step {self.step:,} needs "
                f"{needed / 1e6:,.0f} MB, and {free / 1e6:,.0f} MB are free. What was "
                "saved before is kept; the same command continues from there."
            )

    def restore(self) -> int:
        """Takes up the newest readable state, if there is one, and returns its step.

        Raises:
            ValueError: There are states, and none is readable.
        """
        for path in reversed(self._manager.checkpoints):
            try:
                status = self._manager.checkpoint.restore(path)
                status.assert_existing_objects_matched()
                return self.step
            except _UNREADABLE as error:
                reason = str(error).splitlines()[0]
                logging.warning("%s is damaged and left out: %s", path, reason)
        if self._manager.checkpoints:
            raise ValueError(
                f"{self.path} has no state that can be read. Remove it to begin anew, "
                "or --init_from the weights."
            )
        return self.step

    def remove(self) -> None:
        """Removes the states of a training that is finished."""
        shutil.rmtree(self.path, ignore_errors=True)
