# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training state, which an interrupted training resumes from.

A state is three files in `training_state/` of the model directory:

    ckpt-<step>.json                        progress: history, metrics of the epoch
    ckpt-<step>.data-00000-of-00001, .index TensorFlow checkpoint

The index is written last. Without it, a state is incomplete and ignored.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf import storage
from bert_tf.checkpoints import ModelDirectory
from bert_tf.modeling import Dropout
from bert_tf.training.strategy import create_training_variables

_TRAINING_STATES = "training_state"
_STATES_KEPT = 2

# TensorFlow raises any of these for a state that is truncated or of another model.
_UNREADABLE = (tf.errors.OpError, AssertionError, LookupError, OSError)
_UNREADABLE += (RuntimeError, ValueError)


class TrainingState:
    """Saves and restores everything that bit-equal resuming needs.

    The state consists of the weights, the optimizer moments, the step, the seed
    generators of the dropout layers, and `progress`. The position in the data follows
    from the step.

    Keras' `BackupAndRestore` is no replacement: it lacks the seed generators
    (keras-team/keras#19796) and the position in the data, and overwrites its only copy.

    Create the object in the scope of the strategy.

    Args:
        directory: The model directory.
        model: The compiled model. `model.optimizer` is saved too.
        write: Whether to write files. With several workers, only one writes.

    Attributes:
        directory, model, write: See above.
        path: The folder of the states.
        progress: JSON values that are saved and restored too.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        model: keras.Model,
        *,
        write: bool = True,
    ):
        self.directory = directory
        self.write = write
        self.model = model
        self.path = directory.path / _TRAINING_STATES
        self.progress: dict[str, Any] = {}
        create_training_variables(model)
        seeds = [
            layer.seed_generator.state
            for layer in model._flatten_layers()
            if isinstance(layer, (keras.layers.Dropout, Dropout)) and layer.rate
        ]
        self._variables = [*model.weights, *seeds, *model.optimizer.variables]
        # In order, not by name, so that both backends can resume from a state.
        self._saved = [_tensorflow_variable(variable) for variable in self._variables]
        self._checkpoint = tf.train.Checkpoint(variables=self._saved)

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))

    def save(self, *, weights: bool = False) -> None:
        """Saves the state of the current step; does nothing unless `write`.

        Args:
            weights: Whether to update the weights in the model directory too.

        Raises:
            OSError: Writing failed, e.g. because the disk is full. The states that
                were saved before remain.
        """
        if not self.write:
            return
        if weights:
            self.directory.save_weights(self.model)
        self.path.mkdir(exist_ok=True)
        name = str(self.path / f"ckpt-{self.step}")
        storage.write_json(f"{name}.json", self.progress)
        for variable, saved in self._copies():
            saved.assign(tf.cast(keras.ops.convert_to_numpy(variable), saved.dtype))
        try:
            self._checkpoint.write(name)
        except tf.errors.OpError as error:
            raise OSError(
                f"The training state of step {self.step:,} cannot be written to "
                f"{self.path}; the previous one is kept. Free some space and rerun the "
                f"same command to resume from it. TensorFlow reports: {error.message}"
            ) from error
        storage.sync(self.path)
        # Newer states are damaged: this training did not resume from them.
        steps = [step for step in self._steps() if step <= self.step]
        self._remove_all_but(steps[-_STATES_KEPT:])

    def _copies(self) -> Iterable[tuple[keras.Variable, tf.Variable]]:
        """Returns the variables that TensorFlow does not share with the backend."""
        pairs = zip(self._variables, self._saved, strict=True)
        return () if keras.backend.backend() == "tensorflow" else pairs

    def _steps(self) -> list[int]:
        """Returns the steps of all complete states, in order."""
        # Not from TensorFlow's file `checkpoint`, which may be lost or damaged.
        names = (path.name for path in self.path.glob("ckpt-*.index"))
        return sorted(int(m[1]) for m in map(re.compile(r"ckpt-(\d+)\.").match, names))

    def _remove_all_but(self, steps: Collection[int]) -> None:
        """Removes the other states, and what killed processes left."""
        for path in self.path.glob("*"):
            if not any(path.name.startswith(f"ckpt-{step}.") for step in steps):
                (shutil.rmtree if path.is_dir() else storage.remove)(str(path))

    def restore(self) -> int:
        """Restores the newest readable state, if any, and returns its step.

        Raises:
            ValueError: There are states, but none is readable.
        """
        steps = self._steps()
        for step in reversed(steps):
            path = self.path / f"ckpt-{step}"
            try:
                status = self._checkpoint.read(str(path))
                status.assert_existing_objects_matched()
                for variable, saved in self._copies():
                    variable.assign(saved.numpy())
                self.progress |= storage.read_json(f"{path}.json")
                break
            except _UNREADABLE as error:
                reason = str(error).splitlines()[0]
                logging.warning("%s is damaged; trying an older one: %s", path, reason)
        else:
            if steps:
                raise ValueError(
                    f"{self.path} has no readable training state. Remove the folder to "
                    "start over, or pass the weights to --init_from."
                )
        if self.write:
            self._remove_all_but(steps)
        return self.step

    def remove(self) -> None:
        """Removes all states, after the training is finished."""
        if self.write:
            shutil.rmtree(self.path, ignore_errors=True)


def _tensorflow_variable(variable: keras.Variable) -> tf.Variable:
    """Returns the variable of TensorFlow, on other backends a copy of equal dtype."""
    if keras.backend.backend() == "tensorflow":
        return variable.value
    # The dtypes of seeds and steps differ among the backends.
    dtype = variable.dtype if "float" in variable.dtype else "int64"
    return tf.Variable(tf.zeros(variable.shape, dtype))
