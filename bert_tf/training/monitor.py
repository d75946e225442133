# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is seen of a training: progress, history, curve, and a halt when it fails."""

from __future__ import annotations

import collections
import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tqdm

from bert_tf.data import read_table, write_table
from bert_tf.training import memory
from bert_tf.training.checkpoint import TrainingState

_HISTORY, _CURVE, _FAILED_BATCH = "history.csv", "curve.png", "failed_batch.npz"
_BAND_STEPS = 100  # Whose mean loss is compared.


class TrainingFailed(ValueError):
    """A training that has left what can be mended by going on.

    Attributes:
        step: The step at which it was seen, from 1.
    """

    def __init__(self, message: str, step: int):
        super().__init__(message)
        self.step = step


class TrainingMonitor(keras.callbacks.Callback):
    """Progress bar, history file and checkpoints of a training that counts steps.

    An epoch of `model.fit` is the stretch between two evaluations. At its end the
    metrics go to `history.csv` and the weights and the state of the training to disk.

    Args:
        state: Where the training stands and is saved.
        steps: The step at which `fit` is to stop.
        total_steps: Steps of the whole training, for the progress bar.
        batch_tokens: Tokens in a batch that are not padding.
        batch_flops: Arithmetic of a step (`flops.training_step`).
        peak: The machine's operations per second (`flops.peak`); NaN if unknown.
        loss_band: The mean loss of `_BAND_STEPS` steps may be this much above the
            lowest such mean; 0 for any.
        chief: Whether this process shows and writes anything; of several workers one.

    Raises:
        TrainingFailed: From within `fit`, when the loss of a step is not finite or has
            left its band. What was saved before stays.
    """

    def __init__(
        self,
        state: TrainingState,
        *,
        steps: int,
        total_steps: int,
        batch_tokens: float,
        batch_flops: float,
        peak: float,
        loss_band: float,
        chief: bool = True,
    ):
        super().__init__()
        self._state = state
        self._steps = steps
        self._total_steps = total_steps
        self._batch_tokens = batch_tokens
        self._batch_flops = batch_flops
        self._peak = peak
        self._loss_band = loss_band
        self._chief = chief
        self._step = self._saved_step = 0

    def on_train_begin(self, logs=None):
        self._step = self._saved_step = self._state.step
        history = read_history(self._state.directory.path)
        self._tokens = sum(r["tokens"] for r in history if r["step"] == self._step)
        self._recent = collections.deque(maxlen=_BAND_STEPS)
        self._lowest = math.inf
        self._bar = tqdm.tqdm(
            total=self._total_steps,
            initial=self._step,
            unit="step",
            dynamic_ncols=True,
            disable=not self._chief,
        )

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start = (time.perf_counter(), self._step)
        self._gradient_norms = []
        self._loss_sum = 0.0

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        loss = float(logs["loss"])
        self._step_end = time.perf_counter()
        norm = float(keras.ops.convert_to_numpy(self.model.optimizer.gradient_norm))
        self._check(loss)
        if math.isfinite(norm):
            self._gradient_norms.append(norm)
        elif not self.model.optimizer.dynamic_loss_scale:  # Which finds its scale so.
            self._fail(f"The gradients of step {self._step:,} are not finite ({norm}).")
        self._bar.update()
        self._bar.set_postfix_str(
            f"loss {loss:.3f}, MLM {float(logs['mlm_accuracy']):.1%}", refresh=False
        )
        if self._step == self._steps:
            self.model.stop_training = True

    def _check(self, mean_loss: float) -> None:
        """Looks at the loss, which Keras gives as the mean since the evaluation."""
        if not math.isfinite(mean_loss):
            self._fail(f"The loss of step {self._step:,} is not finite ({mean_loss}).")
        done = self._step - self._epoch_start[1]
        self._recent.append(mean_loss * done - self._loss_sum)
        self._loss_sum = mean_loss * done
        if len(self._recent) < _BAND_STEPS or not self._loss_band:
            return
        mean = sum(self._recent) / _BAND_STEPS
        self._lowest = min(self._lowest, mean)
        if mean > self._lowest + self._loss_band:
            self._fail(
                f"The mean loss of {_BAND_STEPS} steps up to step {self._step:,} is "
                f"{mean:.2f}, and was {self._lowest:.2f}: more than "
                f"--loss_band={self._loss_band} below."
            )

    def _fail(self, what: str) -> None:
        self._bar.close()
        raise TrainingFailed(
            f"{what} The weights and the state of step {self._saved_step:,} are kept "
            f"in {self._state.directory.path}; a lower --learning_rate or more "
            "--warmup_steps may help.",
            self._step,
        )

    def on_epoch_end(self, epoch, logs=None):
        seconds = self._step_end - self._epoch_start[0]  # Without the evaluation.
        steps = self._step - self._epoch_start[1]
        self._tokens += steps * self._batch_tokens
        rate = self.model.optimizer.learning_rate
        logs["step"] = self._step
        logs["tokens"] = round(self._tokens)
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        logs["gradient_norm"] = float(np.mean(self._gradient_norms))
        logs["gradient_norm_max"] = float(np.max(self._gradient_norms))
        logs["tokens_per_second"] = round(steps * self._batch_tokens / seconds)
        logs["share_of_peak"] = steps * self._batch_flops / seconds / self._peak
        logs["peak_memory_gb"] = memory.peak_memory() / 1e9
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
    """Whether no weight of the model is NaN or infinite."""
    return all(
        bool(keras.ops.all(keras.ops.isfinite(weight)))
        for weight in model.trainable_weights
    )


def _append_history(path: pathlib.Path, row: dict[str, float]) -> None:
    # An interrupted run may have written rows that lie after its last checkpoint.
    rows = [r for r in read_history(path.parent) if r["step"] < row["step"]]
    write_table(path, [dict(sorted(row.items())) for row in [*rows, row]])


def save_batch(directory: pathlib.Path, batch: Any) -> pathlib.Path:
    """Writes a batch `(x, y, sample_weight)` as `failed_batch.npz`."""
    x, y, weights = batch
    arrays = {name: tensor.numpy() for name, tensor in x.items()}
    arrays |= {f"{name}_labels": tensor.numpy() for name, tensor in y.items()}
    arrays |= {f"{name}_weights": tensor.numpy() for name, tensor in weights.items()}
    path = pathlib.Path(directory) / _FAILED_BATCH
    np.savez_compressed(path, **arrays)
    return path


def read_history(path: pathlib.Path) -> list[dict[str, float]]:
    """Rows of a `history.csv`, one per evaluation; empty where there is none.

    Args:
        path: The file, or the model directory that it is in.
    """
    path = pathlib.Path(path)
    path = path / _HISTORY if path.is_dir() else path
    if not path.is_file():
        return []
    return [{k: float(v) for k, v in row.items()} for row in read_table(path)]


def read_others(paths: str) -> dict[str, list[dict[str, float]]]:
    """Reads the histories of other runs to compare with, by the name of their file.

    Args:
        paths: Files or model directories, separated by commas; empty for none.

    Raises:
        ValueError: One is no history of a pre-training.
    """
    found = {}
    for path in filter(None, paths.split(",")):
        rows = read_history(pathlib.Path(path))
        if not rows or not {"tokens", "val_loss"} <= rows[0].keys():
            raise ValueError(
                f"--compare: {path} is neither a history.csv of bert_tf.pretrain nor a "
                "model directory with one."
            )
        found[pathlib.Path(path).stem] = rows
    return found


def plot_history(
    directory: pathlib.Path,
    unigram_accuracy: float,
    others: Mapping[str, Sequence[Mapping[str, float]]] | None = None,
) -> pathlib.Path:
    """Draws `history.csv` as `curve.png`: loss and accuracies against tokens.

    Args:
        directory: The model directory.
        unigram_accuracy: Of always saying the most frequent token, a line to compare.
        others: Histories of other runs, by name, drawn thin beside this one.
    """
    import matplotlib.figure  # pyplot would look for a screen.

    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)

    def draw(axes, rows, column, label, **style):
        tokens = [row["tokens"] / 1e6 for row in rows]
        axes.plot(tokens, [row[column] for row in rows], label=label, **style)

    rows = read_history(directory)
    draw(loss_axes, rows, "loss", "training", ls="--", c="C0")
    draw(loss_axes, rows, "val_loss", "held out", c="C0")
    draw(accuracy_axes, rows, "val_mlm_accuracy", "MLM, held out", c="C0")
    draw(accuracy_axes, rows, "val_nsp_accuracy", "NSP, held out", c="C0", ls="-.")
    for number, (name, other) in enumerate(sorted((others or {}).items()), start=1):
        style = {"c": f"C{number}", "lw": 1}
        draw(loss_axes, other, "val_loss", f"{name}, held out", **style)
        draw(accuracy_axes, other, "val_mlm_accuracy", f"{name}, MLM", **style)
        draw(accuracy_axes, other, "val_nsp_accuracy", f"{name}, NSP", ls="-.", **style)
    accuracy_axes.axhline(
        unigram_accuracy, ls=":", c="gray", label="MLM, most frequent"
    )
    loss_axes.set(xlabel="tokens seen, millions", ylabel="loss (MLM + NSP)")
    accuracy_axes.set(xlabel="tokens seen, millions", ylabel="accuracy", ylim=(0, 1))
    for axes in (loss_axes, accuracy_axes):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    path = pathlib.Path(directory) / _CURVE
    figure.savefig(path, dpi=120)
    return path
