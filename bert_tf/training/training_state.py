# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training state, which an interrupted training resumes from.

A state is the file `training_state/ckpt-<step>.npz` of the model directory: the arrays
`0`, `1`, ... of NumPy, and `progress.json`, the history and the metrics of the epoch.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import zipfile
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf import storage
from bert_tf.checkpoints import ModelDirectory
from bert_tf.training.strategy import create_training_variables

_TRAINING_STATES = "training_state"
_STATES_KEPT = 2

# Errors of a file that is truncated, changed, or of another model.
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)


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
            if isinstance(layer, keras.layers.Dropout) and layer.rate
        ]
        # In order, not by name, so that both backends can resume from a state.
        self._variables = [*model.weights, *seeds, *model.optimizer.variables]

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
        path = self.path / f"ckpt-{self.step}.npz"
        try:
            with storage.atomic_path(path) as file, zipfile.ZipFile(file, "w") as state:
                for i, variable in enumerate(self._variables):
                    with state.open(f"{i}.npy", "w", force_zip64=True) as array:
                        np.save(array, keras.ops.convert_to_numpy(variable))
                state.writestr("progress.json", json.dumps(self.progress))
        except OSError as error:
            raise OSError(
                f"The training state of step {self.step:,} cannot be written to "
                f"{self.path}; the previous one is kept. Free some space and rerun the "
                f"same command to resume from it: {error}"
            ) from error
        # Newer states are damaged: this training did not resume from them.
        paths = self._paths()
        kept = paths[: paths.index(path) + 1][-_STATES_KEPT:]
        for other in self.path.iterdir():  # Also what killed processes left.
            if other.is_file() and other not in kept:
                other.unlink()
        storage.upload(self.directory.path)

    def _paths(self) -> list[pathlib.Path]:
        """Returns the files of all states, sorted by step."""
        paths = self.path.glob("ckpt-*.npz")
        return sorted(paths, key=lambda path: int(path.stem.removeprefix("ckpt-")))

    def restore(self) -> int:
        """Restores the newest readable state, if any, and returns its step.

        Raises:
            ValueError: There are states, but none is readable.
        """
        paths = self._paths()
        for path in reversed(paths):
            try:
                with np.load(path) as state:
                    for i, variable in enumerate(self._variables):
                        # The dtypes of seeds and steps differ among the backends.
                        variable.assign(state[str(i)].astype(variable.dtype))
                    self.progress |= json.loads(state["progress.json"])
                return self.step
            except _UNREADABLE as error:
                logging.warning("%s is damaged; trying an older one: %s", path, error)
        if paths:
            raise ValueError(
                f"{self.path} has no readable training state. Remove the folder to "
                "start over, or pass the weights to --init_from."
            )
        return self.step

    def remove(self) -> None:
        """Removes all states, after the training is finished."""
        if self.write:
            shutil.rmtree(self.path, ignore_errors=True)
