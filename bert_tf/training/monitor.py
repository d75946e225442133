# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Monitoring of pre-training: progress, history, learning curve, early failure."""

from __future__ import annotations

import collections
import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tqdm

from bert_tf.data import read_table, write_table
from bert_tf.training import estimates
from bert_tf.training.checkpoint import TrainingState
from bert_tf.training.pretrain_config import Phase, PretrainConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HISTORY = "history.csv"
_BAND_STEPS = 100  # `loss_band` compares mean losses of this many steps.

History = Sequence[Mapping[str, float]]


class TrainingFailed(ValueError):
    """The training diverged. Continuing would not help.

    Attributes:
        step: The step, counted from 1, after which the failure was detected.
    """

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


class TrainingMonitor(keras.callbacks.Callback):
    """Writes the history and checkpoints, shows progress, and stops if training fails.

    An epoch of `model.fit` is the interval between two evaluations. At its end the
    callback appends the metrics to `history.csv` and saves the training state.

    Args:
        options: The options of the training.
        phase: The phase to train. `fit` stops at its end.
        state: The training state.
        total_steps: Steps of the whole training, for the progress bar.
        chief: Whether this process writes files and output. With several workers, one
            does.

    Raises:
        TrainingFailed: From within `fit`, if the loss, the gradients or the weights are
            not finite, or the loss leaves its band. Saved checkpoints remain.
    """

    def __init__(
        self,
        options: PretrainConfig,
        phase: Phase,
        state: TrainingState,
        total_steps: int,
        chief: bool,
    ):
        super().__init__()
        self._options = options
        self._phase = phase
        self._state = state
        self._total_steps = total_steps
        self._chief = chief
        real_tokens = 1 - phase.manifest["padding_share"]
        self._batch_tokens = phase.batch_size * phase.length * real_tokens

    def on_train_begin(self, logs=None):
        self._step = self._saved_step = self._state.step
        self._batch_flops = estimates.step_flops(
            self.model.backbone.config,
            rows=self._phase.batch_size,
            length=self._phase.length,
            predictions=self._options.predictions(self._phase.length),
        )
        self._peak = self._measure_peak()
        history = read_history(self._state.directory.path)
        self._tokens = sum(r["tokens"] for r in history if r["step"] == self._step)
        self._recent_losses = collections.deque(maxlen=_BAND_STEPS)
        self._lowest_mean = math.inf
        self._bar = tqdm.tqdm(
            total=self._total_steps,
            initial=self._step,
            unit="step",
            dynamic_ncols=True,
            disable=not self._chief,
        )

    def _measure_peak(self) -> float:
        """Returns the FLOP/s of all replicas; NaN on TPUs and where it is not shown."""
        if not self._chief or self._options.strategy == "tpu":
            return math.nan
        backbone = self.model.backbone
        replicas = self.model.distribute_strategy.num_replicas_in_sync
        tokens = self._phase.batch_size // replicas * self._phase.length
        return replicas * estimates.measure_peak(
            backbone.config, tokens, backbone.pooler.compute_dtype
        )

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start_time = time.perf_counter()
        self._epoch_start_step = self._step
        self._gradient_norms = []
        self._loss_sum = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        loss = float(logs["loss"])
        self._step_end_time = time.perf_counter()
        norm = float(keras.ops.convert_to_numpy(self.model.optimizer.gradient_norm))
        self._check_loss(loss)
        if math.isfinite(norm):
            self._gradient_norms.append(norm)
        # Overflows are normal while the optimizer searches its loss scale.
        elif not self.model.optimizer.dynamic_loss_scale:
            self._fail(f"The gradients of step {self._step:,} are not finite ({norm}).")
        self._bar.update()
        self._bar.set_postfix_str(
            f"loss {loss:.3f}, MLM {float(logs['mlm_accuracy']):.1%}", refresh=False
        )
        if self._step == self._phase.end:
            self.model.stop_training = True

    def _check_loss(self, mean_loss: float) -> None:
        """Checks the loss. Keras reports its mean since the start of the epoch."""
        if not math.isfinite(mean_loss):
            self._fail(f"The loss of step {self._step:,} is not finite ({mean_loss}).")
        steps = self._step - self._epoch_start_step
        self._recent_losses.append(mean_loss * steps - self._loss_sum)
        self._loss_sum = mean_loss * steps
        band = self._options.loss_band
        if len(self._recent_losses) < _BAND_STEPS or not band:
            return
        mean = sum(self._recent_losses) / _BAND_STEPS
        self._lowest_mean = min(self._lowest_mean, mean)
        if mean > self._lowest_mean + band:
            self._fail(
                f"The {_BAND_STEPS}-step mean loss at step {self._step:,} is "
                f"{mean:.2f}, more than --loss_band={band} above its minimum of "
                f"{self._lowest_mean:.2f}."
            )

    def _fail(self, reason: str) -> None:
        self._bar.close()
        raise TrainingFailed(
            f"{reason} The checkpoint of step {self._saved_step:,} is kept in "
            f"{self._state.directory.path}. Try a lower --learning_rate or more "
            "--warmup_steps.",
            self._step,
        )

    def on_epoch_end(self, epoch, logs=None):
        # Without the evaluation, which is part of the epoch in Keras.
        seconds = self._step_end_time - self._epoch_start_time
        steps = self._step - self._epoch_start_step
        self._tokens += steps * self._batch_tokens
        rate = self.model.optimizer.learning_rate
        logs["step"] = self._step
        logs["tokens"] = round(self._tokens)
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        logs["gradient_norm"] = float(np.mean(self._gradient_norms))
        logs["gradient_norm_max"] = float(np.max(self._gradient_norms))
        logs["tokens_per_second"] = round(steps * self._batch_tokens / seconds)
        logs["share_of_peak"] = steps * self._batch_flops / seconds / self._peak
        logs["peak_memory_gb"] = estimates.peak_memory() / 1e9
        if self._chief:
            _append_history(self._state.directory.path / _HISTORY, logs)
        if not weights_are_finite(self.model):
            self._fail(f"The weights after step {self._step:,} are not finite.")
        self._saved_step = self._step
        if not self._chief:
            return
        self._state.save()
        self._bar.write(
            f"step {self._step:,}: loss {logs['loss']:.3f}; held-out loss "
            f"{logs['val_loss']:.3f}, MLM accuracy {logs['val_mlm_accuracy']:.2%}, "
            f"NSP accuracy {logs['val_nsp_accuracy']:.2%}; gradient norm "
            f"{logs['gradient_norm']:.2f}; {logs['tokens_per_second']:,} tokens/s, "
            f"{logs['share_of_peak']:.0%} of peak, {logs['peak_memory_gb']:.1f} GB"
        )

    def on_train_end(self, logs=None):
        self._bar.close()


def weights_are_finite(model: keras.Model) -> bool:
    """Returns whether no weight of the model is NaN or infinite."""
    return all(
        bool(keras.ops.all(keras.ops.isfinite(weight)))
        for weight in model.trainable_weights
    )


def save_failed_batch(directory: pathlib.Path, batch: Any) -> pathlib.Path:
    """Writes a batch `(x, y, sample_weight)` as `failed_batch.npz`."""
    x, y, weights = batch
    arrays = {name: tensor.numpy() for name, tensor in x.items()}
    arrays |= {f"{name}_labels": tensor.numpy() for name, tensor in y.items()}
    arrays |= {f"{name}_weights": tensor.numpy() for name, tensor in weights.items()}
    path = directory / "failed_batch.npz"
    np.savez_compressed(path, **arrays)
    return path


# --- History ---------------------------------------------------------------------


def _append_history(path: pathlib.Path, row: dict[str, float]) -> None:
    # An interrupted run may have written rows after its last checkpoint.
    rows = [r for r in read_history(path.parent) if r["step"] < row["step"]]
    write_table(path, [dict(sorted(row.items())) for row in [*rows, row]])


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


def read_histories(paths: str) -> dict[str, History]:
    """Reads the histories given to `--compare`.

    Args:
        paths: Comma-separated files or model directories; may be empty.

    Returns:
        The histories by file or directory name.

    Raises:
        ValueError: One is not the history of a pre-training.
    """
    found = {}
    for path in filter(None, paths.split(",")):
        rows = read_history(path)
        if not rows or not {"tokens", "val_loss"} <= rows[0].keys():
            raise ValueError(
                f"--compare: {path} must be a history.csv of bert_tf.pretrain, or a "
                "model directory that contains one."
            )
        found[pathlib.Path(path).stem] = rows
    return found


def learning_curve(
    history: History, unigram_accuracy: float, others: Mapping[str, History]
) -> Figure:
    """Plots loss and accuracies against tokens.

    Args:
        history: The rows of a `history.csv`.
        unigram_accuracy: Accuracy of always predicting the most frequent token, for a
            horizontal line.
        others: Histories of other runs by name, for comparison.
    """
    import matplotlib.figure  # Not pyplot, which may need a display.

    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)

    def plot(axes, rows, column, label, **style):
        tokens = [row["tokens"] / 1e6 for row in rows]
        axes.plot(tokens, [row[column] for row in rows], label=label, **style)

    plot(loss_axes, history, "loss", "training", ls="--", c="C0")
    plot(loss_axes, history, "val_loss", "held out", c="C0")
    plot(accuracy_axes, history, "val_mlm_accuracy", "MLM, held out", c="C0")
    plot(accuracy_axes, history, "val_nsp_accuracy", "NSP, held out", c="C0", ls="-.")
    for number, (name, other) in enumerate(sorted(others.items()), start=1):
        style = {"c": f"C{number}", "lw": 1}
        plot(loss_axes, other, "val_loss", f"{name}, held out", **style)
        plot(accuracy_axes, other, "val_mlm_accuracy", f"{name}, MLM", **style)
        plot(accuracy_axes, other, "val_nsp_accuracy", f"{name}, NSP", ls="-.", **style)
    accuracy_axes.axhline(
        unigram_accuracy, ls=":", c="gray", label="MLM, most frequent token"
    )
    loss_axes.set(xlabel="million tokens", ylabel="loss (MLM + NSP)")
    accuracy_axes.set(xlabel="million tokens", ylabel="accuracy", ylim=(0, 1))
    for axes in (loss_axes, accuracy_axes):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure
