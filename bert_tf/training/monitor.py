# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Monitoring of pre-training: progress, history, memory, early failure."""

from __future__ import annotations

import collections
import math
import pathlib
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import keras
import numpy as np
import tensorflow as tf
import tqdm

from bert_tf.data import read_table, write_table
from bert_tf.lazy import lazy_import
from bert_tf.training.pretrain_config import Phase, PretrainConfig
from bert_tf.training.resumable import Resumable, StopSignals
from bert_tf.training.training_state import TrainingState

jax = lazy_import("jax")

_HISTORY = "history.csv"
# A training stops if the mean loss of this many steps rises this far above its minimum.
_BAND_STEPS, _LOSS_BAND = 100, 1.0

History = Sequence[Mapping[str, float]]


class TrainingFailed(ValueError):
    """The training diverged. Continuing would not help.

    Attributes:
        step: The step, counted from 1, after which the failure was detected.
    """

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


class TrainingMonitor(Resumable):
    """Writes the history and checkpoints, shows progress, and stops if training fails.

    An epoch of `model.fit` is the interval between two evaluations. At its end the
    callback evaluates, saves the training state, and appends the metrics to
    `history.csv`.

    Args:
        options: The options of the training.
        phase: The phase to train. `fit` stops at its end.
        state: The training state.
        signals: See `Resumable`.
        validation: Batches of the evaluation.
        total_steps: Steps of the whole training, for the progress bar.

    Raises:
        TrainingFailed: From within `fit`, if the loss, the gradients or the weights are
            not finite, or the loss leaves its band. Saved checkpoints remain.
    """

    def __init__(
        self,
        options: PretrainConfig,
        phase: Phase,
        state: TrainingState,
        signals: StopSignals,
        validation: tf.data.Dataset,
        total_steps: int,
    ):
        super().__init__(state, signals, options.save_every)
        self._phase = phase
        self._validation = validation
        self._total_steps = total_steps
        real_tokens = 1 - phase.manifest["padding_share"]
        self._batch_tokens = phase.batch_size * phase.length * real_tokens

    def on_train_begin(self, logs=None):
        super().on_train_begin(logs)
        self._saved_step = self.step
        self._recent_losses = collections.deque(maxlen=_BAND_STEPS)
        self._lowest_mean = math.inf
        self._bar = tqdm.tqdm(
            total=self._total_steps,
            initial=self.step,
            unit="step",
            dynamic_ncols=True,
            disable=not self.state.write,
        )

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)
        self._epoch_start_time = self._step_end_time = time.perf_counter()
        self._loss_sum = 0.0

    def on_train_batch_end(self, batch, logs=None):
        step, loss = self.step + 1, float(logs["loss"])
        self._step_end_time = time.perf_counter()
        # On JAX, variables have no values during an epoch.
        norm = logs.pop("gradient_norm", self.model.optimizer.gradient_norm)
        norm = float(keras.ops.convert_to_numpy(norm))
        self._check_loss(step, loss)
        if math.isfinite(norm):
            self.progress["gradient_norms"].append(norm)
        # Overflows are normal while the optimizer searches its loss scale.
        elif not self.model.optimizer.dynamic_loss_scale:
            self.fail(f"The gradients of step {step:,} are not finite ({norm}).", step)
        self.progress["tokens"] += self._batch_tokens
        self._bar.update()
        self._bar.set_postfix_str(
            f"loss {loss:.3f}, MLM {float(logs['mlm_accuracy']):.1%}", refresh=False
        )
        if step == self._phase.end:
            self.model.stop_training = True
        super().on_train_batch_end(batch, logs)

    def _check_loss(self, step: int, mean_loss: float) -> None:
        """Checks the loss. Keras reports its mean since the start of the epoch."""
        if not math.isfinite(mean_loss):
            self.fail(f"The loss of step {step:,} is not finite ({mean_loss}).", step)
        steps = self.epoch_steps + 1
        self._recent_losses.append(mean_loss * steps - self._loss_sum)
        self._loss_sum = mean_loss * steps
        if len(self._recent_losses) < _BAND_STEPS:
            return
        mean = sum(self._recent_losses) / _BAND_STEPS
        self._lowest_mean = min(self._lowest_mean, mean)
        if mean > self._lowest_mean + _LOSS_BAND:
            self.fail(
                f"The {_BAND_STEPS}-step mean loss at step {step:,} is {mean:.2f}, "
                f"more than {_LOSS_BAND} above its minimum of {self._lowest_mean:.2f}.",
                step,
            )

    def fail(self, reason: str, step: int | None = None) -> NoReturn:
        self._bar.close()
        kept = f"The checkpoint of step {self._saved_step:,} is kept in"
        if not self._saved_step:
            kept = "No checkpoint was saved yet in"
        raise TrainingFailed(
            f"{reason} {kept} {self.state.directory.path}. Try a lower "
            "--learning_rate or more --warmup_steps.",
            step or self.step,
        )

    def save(self, *, weights: bool = False) -> None:
        super().save(weights=weights)
        self._saved_step = self.step

    def evaluate(self, epoch, logs):
        seconds = self._step_end_time - self._epoch_start_time
        scores = self.model.evaluate(
            self._validation, callbacks=[self], return_dict=True, verbose=0
        )
        logs.update({f"val_{name}": value for name, value in scores.items()})
        norms, steps = self.progress["gradient_norms"], self.epoch_steps
        rate = self.model.optimizer.learning_rate
        logs["step"] = self.step
        logs["tokens"] = round(self.progress["tokens"])
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        logs["gradient_norm"] = float(np.mean(norms)) if norms else math.nan
        logs["gradient_norm_max"] = max(norms, default=math.nan)
        # Since the training was resumed, if that was within the epoch.
        speed = steps / seconds if steps else math.nan
        logs["tokens_per_second"] = float(np.round(speed * self._batch_tokens))
        logs["peak_memory_gb"] = peak_memory() / 1e9
        self.progress["gradient_norms"] = []
        self.progress["history"].append({k: float(logs[k]) for k in sorted(logs)})
        self.save(weights=True)
        if not self.state.write:
            return
        # After the state, which has the history, so that a history implies a state.
        write_history(self.state.directory.path, self.progress["history"])
        self._bar.write(
            f"step {self.step:,}: loss {logs['loss']:.3f}; held-out loss "
            f"{logs['val_loss']:.3f}, MLM accuracy {logs['val_mlm_accuracy']:.2%}, "
            f"NSP accuracy {logs['val_nsp_accuracy']:.2%}; gradient norm "
            f"{logs['gradient_norm']:.2f}; {logs['tokens_per_second']:,.0f} tokens/s, "
            f"{logs['peak_memory_gb']:.1f} GB"
        )

    def on_train_end(self, logs=None):
        self._bar.close()


def save_failed_batch(directory: pathlib.Path, batch: Any) -> pathlib.Path:
    """Writes a batch `(x, y, sample_weight)` as `failed_batch.npz`."""
    x, y, weights = batch
    arrays = {name: tensor.numpy() for name, tensor in x.items()}
    arrays |= {f"{name}_labels": tensor.numpy() for name, tensor in y.items()}
    arrays |= {f"{name}_weights": tensor.numpy() for name, tensor in weights.items()}
    path = directory / "failed_batch.npz"
    np.savez_compressed(path, **arrays)
    return path


def peak_memory() -> int:
    """Returns the peak memory in bytes: of the first GPU, else of this process."""
    if keras.backend.backend() == "jax":
        statistics = jax.local_devices()[0].memory_stats()
        if statistics:  # None on CPUs.
            return statistics["peak_bytes_in_use"]
    if tf.config.list_logical_devices("GPU"):
        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    # On Linux, getrusage may return the peak of the parent process instead.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else usage * 1024


# --- History ---------------------------------------------------------------------


def write_history(path: pathlib.Path, history: History) -> None:
    """Writes the `history.csv` of a model directory."""
    write_table(path / _HISTORY, history)


def read_history(path: pathlib.Path | str) -> list[dict[str, float]]:
    """Reads a `history.csv`, which has one row per evaluation.

    Args:
        path: The file, or its model directory.

    Returns:
        The rows; none if the file does not exist.
    """
    path = pathlib.Path(path)
    path = path / _HISTORY if path.is_dir() else path
    if not path.is_file():
        return []
    return [{k: float(v) for k, v in row.items()} for row in read_table(path)]
