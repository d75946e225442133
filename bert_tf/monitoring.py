# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is seen of a training: progress, history, curve, and a halt when it fails."""

from __future__ import annotations

import csv
import math
import pathlib
import time

import keras
import tqdm

from bert_tf.checkpoint import TrainingState, beside

_HISTORY, _CURVE = "history.csv", "curve.png"


class TrainingMonitor(keras.callbacks.Callback):
    """Progress bar, history file and checkpoints of a training that counts steps.

    An epoch of `model.fit` is the stretch between two evaluations. At its end the
    metrics go to `history.csv` and the weights and the state of the training to disk.

    Args:
        state: Where the training stands and is saved.
        steps: Steps of the whole training.
        batch_tokens: Tokens in a batch that are not padding, for the rate shown.
        chief: Whether this process shows and writes anything; of several workers one.

    Raises:
        ValueError: From within `fit`, when the loss of a step is not finite. What was
            saved before stays.
    """

    def __init__(
        self,
        state: TrainingState,
        steps: int,
        batch_tokens: float,
        *,
        chief: bool = True,
    ):
        super().__init__()
        self._state = state
        self._steps = steps
        self._batch_tokens = batch_tokens
        self._chief = chief
        self._step = self._saved_step = 0

    def on_train_begin(self, logs=None):
        self._step = self._saved_step = self._state.step
        self._bar = tqdm.tqdm(
            total=self._steps,
            initial=self._step,
            unit="step",
            dynamic_ncols=True,
            disable=not self._chief,
        )

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch_start = (time.perf_counter(), self._step)

    def on_train_batch_end(self, batch, logs=None):
        self._step += 1
        loss = float(logs["loss"])
        if not math.isfinite(loss):
            self._bar.close()
            raise ValueError(
                f"The loss of step {self._step:,} is not finite ({loss}). The weights "
                f"and the state of step {self._saved_step:,} are kept in "
                f"{self._state.directory.path}; a lower --learning_rate or more "
                "--warmup_steps may help."
            )
        self._bar.update()
        self._bar.set_postfix_str(
            f"loss {loss:.3f}, MLM {float(logs['mlm_accuracy']):.1%}", refresh=False
        )
        if self._step == self._steps:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self._epoch_start[0]
        logs["step"] = self._step
        rate = self.model.optimizer.learning_rate
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(rate))
        logs["tokens_per_second"] = round(
            (self._step - self._epoch_start[1]) * self._batch_tokens / seconds
        )
        if self._chief:
            _append_history(self._state.directory.path / _HISTORY, logs)
        if not weights_are_finite(self.model):
            self._bar.close()
            raise ValueError(
                f"The weights after step {self._step:,} are not finite; those of step "
                f"{self._saved_step:,} are kept in {self._state.directory.path}. A "
                "lower --learning_rate or more --warmup_steps may help."
            )
        self._saved_step = self._step
        if not self._chief:
            return
        self._state.save()
        self._bar.write(
            f"step {self._step:,}: loss {logs['loss']:.3f}; held-out loss "
            f"{logs['val_loss']:.3f}, MLM accuracy {logs['val_mlm_accuracy']:.2%}, "
            f"NSP accuracy {logs['val_nsp_accuracy']:.2%}; "
            f"{logs['tokens_per_second']:,} tokens/s"
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
    with (
        beside(path) as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, sorted(row))
        writer.writeheader()
        writer.writerows([*rows, row])


def read_history(directory: pathlib.Path) -> list[dict[str, float]]:
    """Rows of `history.csv`, one per evaluation; empty where there is none."""
    path = pathlib.Path(directory) / _HISTORY
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def plot_history(directory: pathlib.Path, unigram_accuracy: float) -> pathlib.Path:
    """Draws `history.csv` as `curve.png`: loss and accuracies against steps."""
    import matplotlib.figure  # pyplot would look for a screen.

    rows = read_history(directory)
    steps = [row["step"] for row in rows]
    figure = matplotlib.figure.Figure(figsize=(9, 3.6), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    for name, label, style in (
        ("loss", "training", "--"),
        ("val_loss", "held out", "-"),
    ):
        loss_axes.plot(steps, [r[name] for r in rows], style, label=label)
    loss_axes.set(xlabel="step", ylabel="loss (MLM + NSP)")
    for head in ("mlm", "nsp"):
        accuracies = [r[f"val_{head}_accuracy"] for r in rows]
        accuracy_axes.plot(steps, accuracies, label=f"{head.upper()}, held out")
    accuracy_axes.axhline(
        unigram_accuracy, ls=":", c="gray", label="MLM, most frequent"
    )
    accuracy_axes.set(xlabel="step", ylabel="accuracy", ylim=(0, 1))
    for axes in (loss_axes, accuracy_axes):
        axes.grid(alpha=0.3)
        axes.legend()
    path = pathlib.Path(directory) / _CURVE
    figure.savefig(path, dpi=120)
    return path
