# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a task's model, evaluates it after each epoch and keeps the best weights.

Each epoch also saves a training state. An interrupted run resumes from it, after the
last complete epoch.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import storage
from bert_tf.checkpoints import ModelDirectory
from bert_tf.finetuning import batching, sweep
from bert_tf.finetuning.task import Task
from bert_tf.modeling import sum_losses
from bert_tf.training import AdamW, TrainingState, WarmupDecay

_SECONDS_PER_LINE = 60  # Between lines about a long epoch in a log file.


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
    options, recipe = task.options, task.options.recipe
    split = task.dataset("train")
    if recipe.class_weights:
        split = _balance_classes(split)
    steps_per_epoch = math.ceil(len(split) / options.batch_size)
    steps = steps_per_epoch * options.epochs
    schedule = WarmupDecay(options.learning_rate, int(recipe.warmup * steps), steps)
    trainable = task.trainable_model(model)
    with strategy.scope():
        optimizer = LayerwiseAdamW(
            schedule,
            layer_decay=recipe.layer_decay,
            num_layers=directory.architecture.num_layers,
            weight_decay=recipe.weight_decay,
            global_clipnorm=recipe.clip_norm or None,
        )
        # Without XLA, which would compile for every sequence length.
        trainable.compile(optimizer, jit_compile=False, **_losses(task))
        sum_losses(trainable)
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


def _losses(task: Task) -> dict[str, Any]:
    """Returns the arguments of `compile` that differ from the model's defaults."""
    smoothing = task.options.recipe.label_smoothing
    if task.target_kind == "classes":
        loss = keras.losses.BinaryCrossentropy(
            from_logits=True, label_smoothing=smoothing, reduction="sum"
        )
        return {"loss": loss, "weighted_metrics": []}
    return {"loss": SmoothedCrossEntropy(smoothing)} if smoothing else {}


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy with label smoothing; a weighted sum.

    Args:
        smoothing: The share of the targets that all classes get equally.
    """

    def __init__(self, smoothing: float):
        super().__init__(reduction="sum")
        self._smoothing = smoothing

    def call(self, y_true, y_pred):
        targets = keras.ops.one_hot(y_true, y_pred.shape[-1])
        return keras.losses.categorical_crossentropy(
            targets, y_pred, from_logits=True, label_smoothing=self._smoothing
        )


class LayerwiseAdamW(AdamW):
    """`AdamW` with lower learning rates for lower layers.

    Args:
        learning_rate: Rate of the head and the pooler.
        layer_decay: Factor of the rate from each layer to the one below. The embeddings
            are below all `num_layers` layers.
        num_layers: Layers of the encoder.
        **kwargs: See `AdamW`.
    """

    def __init__(self, learning_rate, *, layer_decay, num_layers, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self._layer_decay = layer_decay
        self._num_layers = num_layers

    def update_step(self, gradient, variable, learning_rate):
        layer = re.match(r"encoder_layer_(\d+)/", variable.name)
        depth = self._num_layers - int(layer[1]) if layer else 0
        if variable.name.startswith("embeddings/"):
            depth = self._num_layers + 1
        rate = learning_rate.learning_rate * self._layer_decay**depth
        super().update_step(
            gradient, variable, learning_rate._replace(learning_rate=rate)
        )


def _balance_classes(split: batching.Split) -> batching.Split:
    """Scales the weights so that all classes have the same total, as scikit-learn."""
    targets = split.targets
    weights = tf.ones_like(targets, tf.float32)
    if split.weights is not None:
        weights = split.weights
    is_ragged = isinstance(targets, tf.RaggedTensor)
    classes, values = (
        (x.flat_values if is_ragged else x).numpy() for x in (targets, weights)
    )
    totals = np.bincount(classes, values)
    factors = totals.sum() / np.count_nonzero(totals) / np.maximum(totals, 1e-9)
    values = tf.constant(values * factors[classes], tf.float32)
    weights = targets.with_flat_values(values) if is_ragged else values
    return dataclasses.replace(split, weights=weights)


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
        self._last_line = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise sweep.DivergedError(
                f"The loss is {logs['loss']} in epoch {len(self.history) + 1}, step "
                f"{batch + 1}. Try a lower --learning_rate."
            )
        now = time.perf_counter()
        if now > self._last_line + _SECONDS_PER_LINE and not sys.stdout.isatty():
            self._last_line = now
            print(
                f"Epoch {len(self.history) + 1}, step {batch + 1:,} of "
                f"{self.params['steps']:,}: loss {logs['loss']:.4f}",
                flush=True,
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
        patience = options.recipe.early_stopping
        if patience and epoch >= self.best + patience:
            self.model.stop_training = True
        elif epoch + 1 < options.epochs:
            # Before the state, so that every saved state has its history.
            saved = {"epochs": self.history, "seconds": self.seconds}
            self._file.parent.mkdir(exist_ok=True)
            storage.write_json(self._file, saved)
            self._state.save(weights=False)
