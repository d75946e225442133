# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a task's model, evaluates it after each epoch and keeps the best weights.

Each epoch also saves a training state. An interrupted run resumes from it, after the
last complete epoch.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import keras
import tensorflow as tf

from bert_tf import storage
from bert_tf.checkpoints import ModelDirectory
from bert_tf.finetuning import batching, sweep
from bert_tf.finetuning.task import Task
from bert_tf.training import AdamW, TrainingState, WarmupDecay

_WARMUP_FRACTION = 0.1  # Of all steps, as in google-research/bert.


def train(
    task: Task,
    model: keras.Model,
    directory: ModelDirectory,
    strategy: tf.distribute.Strategy,
) -> dict[str, Any]:
    """Trains the model, or resumes after the last complete epoch.

    Writes the weights of the best epoch and the metrics to `directory`.

    Returns:
        `metric`, the name of the metric on the dev set; its `score` in `best_epoch`
        (counted from 1); `majority_baseline`, the score of a constant prediction;
        `epochs`, the losses and scores of each epoch; and `seconds`.
    """
    options = task.options
    split = task.dataset("train")
    steps_per_epoch = math.ceil(len(split) / options.batch_size)
    steps = steps_per_epoch * options.epochs
    schedule = WarmupDecay(options.learning_rate, int(_WARMUP_FRACTION * steps), steps)
    trainable = task.trainable_model(model)
    with strategy.scope():
        # Without XLA, which would compile for every sequence length.
        trainable.compile(AdamW(schedule), jit_compile=False)
        state = TrainingState(directory, trainable)
        first_epoch = state.restore() // steps_per_epoch
    print(
        f"{len(split):,} training examples, {split.lengths.mean():.0f} tokens on "
        f"average; {options.epochs} epochs of {steps_per_epoch:,} steps; "
        f"{trainable.count_params():,} weights"
        + (f"; resuming after epoch {first_epoch}." if first_epoch else ".")
    )
    epochs = _Epochs(task, model, state, first_epoch)
    trainable.fit(
        batching.batches(
            split,
            options.batch_size,
            first_epoch=first_epoch,
            epochs=options.epochs,
            seed=options.seed,
            **options.padding,
        ),
        initial_epoch=first_epoch,
        epochs=options.epochs,
        steps_per_epoch=steps_per_epoch,
        shuffle=False,  # `batches` shuffles.
        verbose=1 if sys.stdout.isatty() else 2,  # A progress bar on terminals only.
        callbacks=[
            epochs,
            keras.callbacks.TensorBoard(directory.path / "logs", write_graph=False),
        ],
    )
    metrics = {
        "metric": f"{epochs.split.name} {task.metric}",
        "score": epochs.scores[epochs.best],
        "majority_baseline": task.majority_baseline(epochs.split),
        "best_epoch": epochs.best + 1,
        "epochs": epochs.history,
        "seconds": round(epochs.seconds, 1),
    }
    directory.write_metrics({"training": metrics})  # Marks the training as finished.
    state.remove()
    return metrics


class _Epochs(keras.callbacks.Callback):
    """Evaluates on the dev set after each epoch, and saves the best and the last state.

    Attributes:
        split: The dev set.
        history: Losses and scores of each epoch.
        seconds: Wall-clock time of training and evaluation.

    Raises:
        sweep.DivergedError: From within `fit`, if the loss is NaN or infinite. The
            weights of the best epoch so far are kept.
    """

    def __init__(
        self, task: Task, model: keras.Model, state: TrainingState, first_epoch: int
    ):
        super().__init__()
        self._task = task
        self._whole_model = model
        self._state = state
        self._file = state.path / "epochs.json"
        self.split = task.dataset(task.evaluation_splits[0])
        saved = storage.read_json(self._file) if first_epoch else {}
        self.history: list[dict[str, float]] = saved.get("epochs", [])[:first_epoch]
        self.seconds: float = saved.get("seconds", 0.0)

    @property
    def scores(self) -> list[float]:
        """The task's metric on the dev set after each epoch."""
        return [row[f"{self.split.name}_{self._task.metric}"] for row in self.history]

    @property
    def best(self) -> int:
        """Index of the first epoch with the best score."""
        return max(range(len(self.history)), key=self.scores.__getitem__)

    def on_train_begin(self, logs=None):
        self._start = time.perf_counter() - self.seconds

    def on_train_batch_end(self, batch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise sweep.DivergedError(
                f"The loss is {logs['loss']} in epoch {len(self.history) + 1}, step "
                f"{batch + 1}. Try a lower --learning_rate."
            )

    def on_epoch_end(self, epoch, logs=None):
        options = self._task.options
        outputs = batching.predict(
            self.model, self.split, options.batch_size, **options.padding
        )
        scores = self._task.evaluate(self.split, outputs)
        # Later callbacks and the progress bar read the scores from `logs`.
        logs.update({f"{self.split.name}_{k}": v for k, v in scores.items()})
        self.history.append({name: float(value) for name, value in logs.items()})
        if self.best == epoch:
            self._state.directory.save_weights(self._whole_model)
        self.seconds = time.perf_counter() - self._start
        if epoch + 1 < options.epochs:
            # Before the state, so that every saved state has its history.
            saved = {"epochs": self.history, "seconds": self.seconds}
            self._file.parent.mkdir(exist_ok=True)
            storage.write_json(self._file, saved)
            self._state.save(weights=False)
