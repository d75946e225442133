# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training loop, which saves its state periodically and resumes at any step.

`TrainingLoop` is the base class of pre-training and fine-tuning. It replaces `fit` of
Keras, which evaluates after whole epochs only, reads metrics in each step, and fails on
several workers (Keras 3.15, keras-team/keras#20585, #20329).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import keras
import tensorflow as tf

from bert_tf.training.steps import JaxSteps, TensorFlowSteps
from bert_tf.training.strategy import JaxDevices, is_multi_worker
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


class TrainingLoop:
    """Base class of trainings that resume at any step.

    An epoch is the interval between two evaluations. Subclasses implement `evaluate`,
    `end_epoch` and `fail`.

    Args:
        strategy: See `strategy.strategy`; the model was built in its scope.
        state: The training state of the compiled model, restored.
        signals: In use as a context manager.
        save_every: Minutes between two states.
        step: Trains on one batch, see `steps`; by default, as `model.fit`.

    Attributes:
        step: The number of finished steps.
        saved_step: That of the last saved state.
        progress: `state.progress`. Subclasses keep what they need to resume here.
        finished: Whether to end the training after this epoch.
        steps_per_epoch: See `run`.
        seconds: Time of the training steps of this epoch, `epoch_steps`, since the
            training was resumed.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy | JaxDevices,
        state: TrainingState,
        signals: StopSignals,
        save_every: float = 10,
        step: Callable[..., Any] | None = None,
    ):
        self.model, self.strategy = state.model, strategy
        self.state, self.progress = state, state.progress
        self.step = self.saved_step = state.step
        self.finished = False
        self._writer = None
        self._signals = signals
        self._seconds_between_states = 60 * save_every
        self._saved_time = time.monotonic()
        if isinstance(strategy, JaxDevices):
            self._steps = JaxSteps(self.model, step)
        else:
            self._steps = TensorFlowSteps(self.model, strategy, step)

    # --- For subclasses ---

    def after_steps(self, logs: Mapping[str, Any], count: int) -> None:
        """Is called after `count` steps.

        Args:
            logs: The means of the metrics, and `gradient_norm` of each step [count].
        """

    def evaluate(self) -> dict[str, float]:
        """Returns the metrics of the evaluation after an epoch."""
        raise NotImplementedError

    def end_epoch(self, logs: dict[str, float]) -> None:
        """Records the metrics of the epoch and its evaluation, and saves the state."""
        raise NotImplementedError

    def fail(self, reason: str) -> NoReturn:
        """Raises the error that ends a diverged training."""
        raise NotImplementedError

    # --- The loop ---

    def run(
        self,
        batches: Callable[[int], tf.data.Dataset],
        *,
        first_step: int = 0,
        steps: int,
        steps_per_epoch: int,
    ) -> None:
        """Trains from the step of the training state to `first_step + steps`.

        Args:
            batches: Returns the batches from a step on, counted from `first_step`.
            first_step: Steps of the training before this call.
            steps: Steps of this call.
            steps_per_epoch: Steps between evaluations. The last epoch may be shorter.
        """
        last, size = first_step + steps, steps_per_epoch
        self.steps_per_epoch = size
        run_steps, iterator = self._steps.compile(), None
        while not self.finished and ("epoch" in self.progress or self.step < last):
            # The steps of the epoch so far, and the means of their metrics. They are
            # part of the state, which may be at the end of an epoch, not yet evaluated.
            epoch = self.progress.setdefault("epoch", {"steps": 0, "logs": {}})
            begin = self.step - epoch["steps"]
            end = min(begin + size - (begin - first_step) % size, last)
            self.seconds, self.epoch_steps = 0.0, 0
            while self.step < end:
                start = time.perf_counter()
                if iterator is None:
                    iterator = self._steps.distribute(batches(self.step - first_step))
                count = min(end - self.step, self._steps.per_call)
                logs = run_steps(iterator, count)
                self._add(logs, count)
                self.seconds += time.perf_counter() - start
                self.after_steps(logs, count)
                self.check_signals()
                seconds = time.monotonic() - self._saved_time
                if seconds >= self._seconds_between_states:
                    self.save()
            scores = self.evaluate()
            logs = self.progress.pop("epoch")["logs"] | scores
            self.end_epoch(logs)

    def _add(self, logs: Mapping[str, Any], count: int) -> None:
        """Adds the metrics of `count` steps to those of the epoch."""
        epoch = self.progress["epoch"]
        before, total = epoch["steps"], epoch["steps"] + count
        for name, value in logs.items():
            if name != "gradient_norm":
                mean = epoch["logs"].get(name, 0.0)
                epoch["logs"][name] = (before * mean + count * float(value)) / total
        epoch["steps"] = total
        self.step += count
        self.epoch_steps += count
        self._signals.unsaved = True

    def save(self, *, weights: bool = False) -> None:
        """Saves the state, unless weights are NaN or infinite."""
        finite = [keras.ops.all(keras.ops.isfinite(w)) for w in self.model.weights]
        if not keras.ops.all(keras.ops.stack(finite)):
            self.fail(f"The weights after step {self.step:,} are not finite.")
        self.state.save(weights=weights)
        self.saved_step, self._saved_time = self.step, time.monotonic()
        self._signals.unsaved = False

    def evaluate_on(self, dataset: tf.data.Dataset) -> dict[str, float]:
        """Returns the model's metrics on a dataset; stops if a signal was received."""
        self.model.reset_metrics()
        for batch in self._steps.distribute(dataset):
            self._steps.test(*batch)
            self.check_signals()
        return {k: float(v) for k, v in self.model.get_metrics_result().items()}

    def write_tensorboard(self, logs: Mapping[str, float], step: int) -> None:
        """Writes metrics to the folder `logs` of the model directory."""
        if self._writer is None:
            folder = self.state.directory.path / "logs"
            self._writer = tf.summary.create_file_writer(str(folder))
        with self._writer.as_default():
            for name, value in logs.items():
                tf.summary.scalar(name, value, step)
        self._writer.flush()

    # --- Signals ---

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
        received = self._signals.received
        if is_multi_worker(self.strategy):
            # All workers must stop at the same step.
            total = _sum_over_workers(self.strategy, tf.constant(float(received)))
            received = received or (float(total) > 0 and signal.SIGTERM)
        return received


@tf.function
def _sum_over_workers(strategy: tf.distribute.Strategy, value: tf.Tensor) -> tf.Tensor:
    value = strategy.run(tf.identity, args=(value,))
    return strategy.reduce("SUM", value, axis=None)
