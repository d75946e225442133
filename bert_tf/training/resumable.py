# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training that saves its state periodically and on SIGTERM, and resumes at any step.

`Resumable` is the base class of the callbacks that save states, and `fit` calls
`model.fit` from the step of a state. TensorFlow's `PreemptionCheckpointHandler` is no
replacement: it calls the training step itself, which `model.fit` does not allow.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf

from bert_tf.training.strategy import is_multi_worker
from bert_tf.training.training_state import TrainingState

# A scheduler that sends SIGTERM expects a normal end; a shell, 128 + the signal.
_EXIT_STATUS = {signal.SIGTERM: 0, signal.SIGINT: 130}
_STOPPED = "Stopped. Rerun the same command to resume."


class StopSignals(contextlib.AbstractContextManager):
    """Records SIGTERM and SIGINT, for a training that stops after the current step.

    A second SIGINT ends the process at once. Use it in the main thread; elsewhere it
    does nothing.

    Args:
        together: Whether several workers stop together, after a step. A single one
            stops at once if nothing is unsaved.

    Attributes:
        received: The first signal; 0 if there was none.
        together: See above.
        unsaved: Whether a step has finished since the last state was saved.
    """

    def __init__(self, *, together: bool = False) -> None:
        self.received = 0
        self.unsaved = False
        self.together = together

    def __enter__(self) -> StopSignals:
        self._handlers = {}
        if threading.current_thread() is threading.main_thread():
            # Python calls signal handlers between TensorFlow's steps only, which may
            # take minutes. This thread reads the numbers of the signals at once.
            self._reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            threading.Thread(target=self._watch, daemon=True).start()
            self._wakeup = signal.set_wakeup_fd(self._writer.fileno())
            for number in _EXIT_STATUS:
                self._handlers[number] = signal.signal(number, lambda *_: None)
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if self._handlers:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup)
            self._writer.close()
        if self.received and not error:  # After the last step.
            print(_STOPPED)
            sys.exit(_EXIT_STATUS[self.received])

    def _watch(self) -> None:
        while data := self._reader.recv(1):
            number = data[0]
            if number not in _EXIT_STATUS:
                continue
            is_saved = not self.unsaved and not self.together
            if is_saved or (self.received and number == signal.SIGINT):
                print(f"\n{_STOPPED}", flush=True)
                os._exit(_EXIT_STATUS[number])
            self.received = self.received or number
            print("\nStopping after this step. Ctrl-C stops at once.", flush=True)


def parse_save_every(text: str) -> tuple[float, float]:
    """Parses `--save_every`.

    Args:
        text: A number of steps, or of minutes with the suffix `m`.

    Returns:
        The steps and the seconds between two states; one of them is infinite.

    Raises:
        ValueError: The text has another form.
    """
    match = re.fullmatch(r"([1-9]\d*)(m?)", text)
    if not match:
        raise ValueError(
            "--save_every must be a number of steps, e.g. 500, or of minutes, e.g. 10m."
            f" Received: save_every={text!r}"
        )
    number, is_minutes = int(match[1]), bool(match[2])
    return (math.inf, 60 * number) if is_minutes else (number, math.inf)


class Resumable(keras.callbacks.Callback):
    """Base class of callbacks that evaluate at the end of each epoch and save states.

    Saves the state every `save_every` and when a signal stops the training, within an
    epoch, too: the metrics of its steps are part of the state. Subclasses implement
    `evaluate` and `fail`, and pass themselves to `model.evaluate` and `model.predict`,
    so that signals also stop the evaluation.

    Args:
        state: The training state, restored.
        signals: In use as a context manager.
        save_every: See `parse_save_every`.

    Attributes:
        step: The number of finished steps.
        progress: `state.progress`. Subclasses keep what they need to resume here.
    """

    def __init__(self, state: TrainingState, signals: StopSignals, save_every: str):
        super().__init__()
        self.state = state
        self.progress = state.progress
        self._signals = signals
        self._steps_between, self._seconds_between = parse_save_every(save_every)

    def evaluate(self, epoch: int, logs: dict[str, float]) -> None:
        """Evaluates after an epoch with the metrics `logs`, and saves the state."""
        raise NotImplementedError

    def fail(self, reason: str) -> NoReturn:
        """Raises the error that ends a diverged training."""
        raise NotImplementedError

    def save(self, *, weights: bool = False) -> None:
        """Saves the state, unless weights are NaN or infinite."""
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()  # `fit` passes the values on from step to step.
        for weight in self.model.trainable_weights:
            if not keras.ops.all(keras.ops.isfinite(weight)):
                self.fail(f"The weights after step {self.step:,} are not finite.")
        self.state.save(weights=weights)
        self._saved_time = time.monotonic()
        self._signals.unsaved = False

    def on_train_begin(self, logs=None):
        self.step = self.state.step
        self._saved_time = time.monotonic()

    def on_epoch_begin(self, epoch, logs=None):
        # Steps of this epoch before the training was interrupted, and their metrics.
        self._before = self.progress.pop("epoch", {"steps": 0, "logs": {}})
        self.epoch_steps = 0  # Since then.

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.epoch_steps += 1
        self._signals.unsaved = True
        stop = self._stop_requested()
        seconds = time.monotonic() - self._saved_time
        if (
            stop
            or self.step % self._steps_between == 0
            or seconds >= self._seconds_between
        ):
            self._save_within_epoch(self._epoch_logs(logs))
        if stop:
            self._stop(stop)

    def on_epoch_end(self, epoch, logs=None):
        logs.update(self._epoch_logs(logs))
        self._evaluated = dict(logs)
        self.evaluate(epoch, logs)

    def on_test_batch_end(self, batch, logs=None):
        if stop := self._stop_requested():
            self._save_within_epoch(self._evaluated)
            self._stop(stop)

    on_predict_batch_end = on_test_batch_end

    def _epoch_logs(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Returns the metrics of all steps of the epoch.

        Args:
            logs: The means over the steps that Keras has seen.
        """
        before, after = self._before["steps"], self.epoch_steps
        return self._before["logs"] | {
            name: (before * self._before["logs"].get(name, 0.0) + after * float(value))
            / (before + after)
            for name, value in logs.items()
        }

    def _save_within_epoch(self, logs: dict[str, float]) -> None:
        steps = self._before["steps"] + self.epoch_steps
        self.progress["epoch"] = {"steps": steps, "logs": logs}
        self.save()
        del self.progress["epoch"]

    def _stop_requested(self) -> int:
        """Returns the signal that this process or another worker received, or 0."""
        received = self._signals.received
        strategy = getattr(self.model, "distribute_strategy", None)
        if is_multi_worker(strategy):
            # All workers must stop at the same step.
            total = _sum_over_workers(strategy, tf.constant(float(received)))
            received = received or (float(total) > 0 and signal.SIGTERM)
        return received

    def _stop(self, number: int) -> NoReturn:
        self.on_train_end()
        self._stop_requested()  # The others wait until the first worker has saved.
        if self.state.write:
            print(
                f"Stopped by {signal.Signals(number).name}. Step {self.step:,} is "
                f"saved in {self.state.path}. Rerun the same command to resume."
            )
        sys.exit(_EXIT_STATUS[number])


@tf.function
def _sum_over_workers(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    value = strategy.run(tf.identity, args=(value,))
    return strategy.reduce("SUM", value, axis=None)


class _MultiWorkerModel(keras.Model):
    """Mixin for models whose `fit` and `evaluate` run on several workers.

    Keras 3.15 fails to do so (keras-team/keras#20585, #20329).
    """

    def train_step(self, data):
        return _as_vectors(super().train_step(data))

    def test_step(self, data):
        return _as_vectors(super().test_step(data))

    def _maybe_symbolic_build(self, *args, **kwargs):
        pass  # Keras' method fails on the distributed batch. The model is built.


def _as_vectors(logs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """With several workers, Keras averages the logs along axis 0."""
    return {name: tf.reshape(value, [1]) for name, value in logs.items()}


def fit(
    model: keras.Model,
    batches: Callable[[int], tf.data.Dataset],
    resumable: Resumable,
    *,
    first_step: int = 0,
    steps: int,
    steps_per_epoch: int,
    first_epoch: int = 0,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    verbose: int = 0,
) -> None:
    """Calls `model.fit` from the step of the training state, or does nothing.

    Args:
        model: The compiled model.
        batches: Returns the batches from a step on, counted from `first_step`.
        resumable: Evaluates and saves; the first callback.
        first_step: Steps of the training before this call.
        steps: Steps to train. The last epoch may be shorter.
        steps_per_epoch: Steps between evaluations.
        first_epoch: Number of the first epoch, for callbacks.
        callbacks: More callbacks.
        verbose: As in `model.fit`.
    """
    callbacks = [resumable, *callbacks]
    together = is_multi_worker(getattr(model, "distribute_strategy", None))
    if together and not isinstance(model, _MultiWorkerModel):
        bases = _MultiWorkerModel, type(model)
        model.__class__ = type(type(model).__name__, bases, {})
    # Trace each phase anew. Otherwise `tf.function` relaxes the shapes to dynamic ones,
    # which round differently: resuming would not be bit-equal.
    model.make_train_function(force=True)
    model.make_test_function(force=True)
    step = resumable.state.step - first_step
    model.stop_training = False
    at_end = step and (step % steps_per_epoch == 0 or step == steps)
    if at_end and "epoch" in resumable.progress:
        # During the evaluation.
        alone = keras.callbacks.CallbackList(callbacks, model=model)
        epoch = first_epoch + math.ceil(step / steps_per_epoch) - 1
        alone.on_train_begin()
        alone.on_epoch_begin(epoch)
        alone.on_epoch_end(epoch, {})
        alone.on_train_end()
    epochs = first_epoch + math.ceil(steps / steps_per_epoch)
    while step < steps and not model.stop_training:
        epoch, done = divmod(step, steps_per_epoch)
        model.fit(
            batches(step),
            steps_per_epoch=steps_per_epoch - done,  # The callback may stop before.
            initial_epoch=first_epoch + epoch,
            # First the rest of an epoch, then whole epochs.
            epochs=first_epoch + epoch + 1 if done else epochs,
            shuffle=False,
            verbose=verbose,
            callbacks=callbacks,
        )
        step = (epoch + 1) * steps_per_epoch if done else steps
