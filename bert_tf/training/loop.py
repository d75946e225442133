# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop, which saves its state periodically and resumes at any step.

Pre-training and fine-tuning share `TrainingLoop`. It replaces `fit` of Keras, which
saves after whole epochs only, reads metrics in each step, and fails on several workers
(Keras 3.15, keras-team/keras#20585, #20329).

A state is the file `training_state/ckpt-<step>.npz` of the model directory: the arrays
`0`, `1`, ... of NumPy, and `progress.json`, the history and the current metrics.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import pathlib
import shutil
import signal
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
import tqdm
from absl import logging

from bert_tf import storage
from bert_tf.checkpoints import ModelDirectory
from bert_tf.training.distribution import Devices, create_training_variables

# A scheduler that sends SIGTERM expects a normal end; a shell, 128 + the signal.
_EXIT_STATUS = {signal.SIGTERM: 0, signal.SIGINT: 130}
_SECONDS_PER_LINE = 60  # Between lines about a long interval, without a progress bar.
_TRAINING_STATES = "training_state"
_STATES_KEPT = 2

# Errors of a file that is truncated, changed, or of another model.
_UNREADABLE = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)


class DivergedError(ValueError):
    """The loss, the gradients or the weights became NaN or infinite."""


class TrainingLoop:
    """Trains a model; saves, stops and resumes at any step.

    It evaluates after each interval of steps; in fine-tuning, after each epoch.

    Args:
        devices: See `create_devices`; the model was built in their scope.
        state: The training state of the compiled model, restored.
        total_steps: Steps of the whole training, for the progress bar.
        save_every: Minutes between two states.
        micro_batch_size: See `Devices.steps`.
        report_steps: Whether TensorBoard gets the loss of each step, too.

    Attributes:
        step: The number of finished steps.
        progress: `state.progress`, in which the caller keeps its results.
    """

    def __init__(
        self,
        devices: Devices,
        state: TrainingState,
        total_steps: int,
        save_every: float = 10,
        micro_batch_size: int = 0,
        report_steps: bool = False,
    ):
        self.model, self.devices = state.model, devices
        self.state, self.progress = state, state.progress
        self.step = self._saved_step = state.step
        self._received_signal = 0
        self._report_steps = report_steps
        self._micro_batch_size = micro_batch_size
        self._seconds_between_states = 60 * save_every
        self._saved_time = self._line_time = time.monotonic()
        self._bar = tqdm.tqdm(
            total=total_steps,
            initial=self.step,
            unit="step",
            dynamic_ncols=True,
            disable=None if state.write else True,  # Only on terminals.
        )

    def intervals(
        self,
        batches: Callable[[int], tf.data.Dataset],
        evaluate: Callable[[], dict[str, float]],
        *,
        first_step: int = 0,
        steps: int,
        interval_steps: int,
        evaluate_start: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Trains from the step of the training state to `first_step + steps`.

        SIGTERM or SIGINT stop the training after the current step.

        Args:
            batches: Returns the batches from a step on, counted from `first_step`.
            evaluate: Returns the metrics of the evaluation after an interval.
            first_step: Steps of the training before this phase.
            steps: Steps of this phase.
            interval_steps: Steps between evaluations; the last may be fewer.
            evaluate_start: Whether to evaluate the initial weights, too.

        Yields:
            After each evaluation: `logs`, the means of the metrics and those of the
            evaluation; `steps` of the interval, their `seconds`, and the finite ones of
            their `gradient_norms`. The caller records them and calls `save`.

        Raises:
            DivergedError: A loss or a gradient is not finite.
        """
        last, iterator = first_step + steps, None
        # New ones for each phase: for other shapes, `tf.function` would make the shapes
        # dynamic, and these round differently. Resuming would not be bit-equal.
        self._steps = self.devices.steps(self.model, self._micro_batch_size)
        with self._signal_handlers():
            if evaluate_start and not self.step:
                self.progress["start"] = evaluate()
            while "interval" in self.progress or self.step < last:
                # Part of the state, which may be at the end of an interval that is
                # not yet evaluated.
                new = {"logs": {}, "steps": 0, "seconds": 0.0, "gradient_norms": []}
                interval = self.progress.setdefault("interval", new)
                begin = self.step - interval["steps"]
                # A multiple of `interval_steps`, also if they have changed.
                past = (begin - first_step) % interval_steps
                end = min(begin + interval_steps - past, last)
                while self.step < end:
                    start = time.perf_counter()
                    if iterator is None:
                        dataset = batches(self.step - first_step)
                        iterator = self._steps.distribute(dataset)
                    count = min(end - self.step, self.devices.steps_per_call)
                    self._steps.reset_metrics()
                    norms = self._steps.run(iterator, count)
                    self._add(interval, self._metrics(), norms)
                    interval["seconds"] += time.perf_counter() - start
                    self.check_signals()
                    seconds = time.monotonic() - self._saved_time
                    if seconds >= self._seconds_between_states:
                        self.save()
                try:
                    interval["logs"] |= evaluate()
                except Exception:  # An error of a task does not lose the interval.
                    self.save()
                    raise
                del self.progress["interval"]
                yield interval

    def _metrics(self) -> dict[str, float]:
        return {k: float(v) for k, v in self._steps.metrics().items()}

    def _add(
        self, interval: dict[str, Any], logs: Mapping[str, float], norms: np.ndarray
    ) -> None:
        """Checks the metrics and gradient norms of some steps, and adds them."""
        finite, count = np.isfinite(norms), len(norms)
        first = self.step + 1 + int(finite.argmin())
        self.step += count
        if not math.isfinite(logs["loss"]):
            self._fail(f"The loss of step {first:,} is not finite ({logs['loss']}).")
        # Overflows are normal while the optimizer searches its loss scale.
        if not (finite.all() or self.model.optimizer.dynamic_loss_scale):
            self._fail(f"The gradients of step {first:,} are not finite.")
        before, total = interval["steps"], interval["steps"] + count
        for name, value in logs.items():
            mean = interval["logs"].get(name, 0.0)
            interval["logs"][name] = (before * mean + count * value) / total
        interval["steps"] = total
        interval["gradient_norms"] += norms[finite].tolist()
        if self._report_steps:
            with self._writer.as_default():
                tf.summary.scalar("step_loss", logs["loss"], self.step)
        self._bar.update(count)
        self._bar.set_postfix_str(f"loss {logs['loss']:.3f}", refresh=False)
        is_due = time.monotonic() > self._line_time + _SECONDS_PER_LINE
        if self._bar.disable and self.state.write and is_due:
            self._line_time = time.monotonic()
            mean = interval["logs"]["loss"]
            line = f"Step {self.step:,} of {self._bar.total:,}: loss {mean:.4f}"
            print(line, flush=True)

    def _fail(self, reason: str) -> NoReturn:
        kept = "No checkpoint was saved yet in"
        if self._saved_step:
            kept = f"The checkpoint of step {self._saved_step:,} is kept in"
        raise DivergedError(
            f"{reason} {kept} {self.state.directory.path}. Try a lower "
            "--learning_rate or a longer warm-up."
        )

    def save(self, *, weights: bool = False) -> None:
        """Saves the state, unless weights are NaN or infinite."""
        finite = [keras.ops.all(keras.ops.isfinite(w)) for w in self.model.weights]
        if not keras.ops.all(keras.ops.stack(finite)):
            self._fail(f"The weights after step {self.step:,} are not finite.")
        self.state.save(weights=weights)
        self._saved_step, self._saved_time = self.step, time.monotonic()

    def evaluate(self, dataset: tf.data.Dataset) -> dict[str, float]:
        """Returns the model's metrics on a dataset; stops if a signal was received."""
        self._steps.reset_metrics()
        for batch in self._steps.distribute(dataset):
            self._steps.test(*batch)
            self.check_signals()
        return {f"val_{name}": value for name, value in self._metrics().items()}

    def report(self, logs: Mapping[str, float], step: int, text: str) -> None:
        """Prints `text`, and writes `logs` for TensorBoard.

        Args:
            logs: Metrics by name.
            step: Where TensorBoard shows them: a step, or an epoch from 0.
            text: The line to print.
        """
        if not self.state.write:
            return
        self._bar.write(text)
        sys.stdout.flush()
        with self._writer.as_default():
            for name, value in logs.items():
                tf.summary.scalar(name, value, step)
        self._writer.flush()

    @functools.cached_property
    def _writer(self) -> Any:
        return tf.summary.create_file_writer(str(self.state.directory.path / "logs"))

    # --- Signals ---

    @contextlib.contextmanager
    def _signal_handlers(self) -> Iterator[None]:
        """Records SIGTERM and SIGINT, in the main thread only.

        Python calls the handlers between two operations of TensorFlow, so not during a
        step. A handler exits at once if the state is already saved, or on a second
        SIGINT. Otherwise the loop saves the state and exits after the step.
        """

        def receive(number: int, _: Any) -> None:
            is_second = self._received_signal and number == signal.SIGINT
            is_saved = self._saved_step == self.step
            if is_second or (is_saved and not self.devices.has_peers):
                print("\nStopped. Rerun the same command to resume.", flush=True)
                sys.exit(_EXIT_STATUS[number])
            self._received_signal = self._received_signal or number

        is_main = threading.current_thread() is threading.main_thread()
        handlers = {n: signal.signal(n, receive) for n in _EXIT_STATUS if is_main}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def check_signals(self) -> None:
        """Saves the state and ends the process if a signal was received."""
        if not (number := self._stop_requested()):
            return
        self.save()
        self._stop_requested()  # The others wait until the first worker has saved.
        if self.state.write:
            print(
                f"Stopped by {signal.Signals(number).name}. Step {self.step:,} is "
                f"saved in {self.state.path}. Rerun the same command to resume."
            )
        sys.exit(_EXIT_STATUS[number])

    def _stop_requested(self) -> int:
        """Returns the signal that this process or another worker received, or 0."""
        # All workers must stop at the same step.
        received = self._received_signal
        if self.devices.has_peers and self.devices.any(received > 0):
            return received or signal.SIGTERM
        return received


# --- State -----------------------------------------------------------------------


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
        change: See `ModelDirectory.save_weights`. The state has the weights themselves.

    Attributes:
        directory, model, write, change: See above.
        path: The folder of the states.
        progress: JSON values that are saved and restored too.
    """

    def __init__(
        self,
        directory: ModelDirectory,
        model: keras.Model,
        *,
        write: bool = True,
        change: Callable[[dict], dict] = dict,
    ):
        self.directory = directory
        self.write = write
        self.change = change
        self.model = model
        self.path = directory.path / _TRAINING_STATES
        self.progress: dict[str, Any] = {}
        create_training_variables(model)
        known = {id(v) for v in (*model.weights, *model.metrics_variables)}
        seeds = [v for v in model.variables if id(v) not in known]
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
            self.directory.save_weights(self.model, self.change)
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
