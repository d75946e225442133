# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds and trains a task's model. Evaluates each epoch and keeps the best weights.

Every ten minutes, after each epoch and on SIGTERM, it saves a training state, which an
interrupted run resumes from.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from bert_tf.checkpoints import Checkpoint, ModelDirectory, standardized
from bert_tf.finetuning import batching
from bert_tf.finetuning.objectives import Distiller
from bert_tf.finetuning.task import Task
from bert_tf.modeling import BertBackbone, sum_losses
from bert_tf.training import (
    AdamW,
    TrainingLoop,
    TrainingState,
    WarmupDecay,
)
from bert_tf.training import strategy as distribution


def build_model(
    task: Task,
    encoder: Checkpoint,
    directory: ModelDirectory,
    strategy: tf.distribute.Strategy,
) -> keras.Model:
    """Returns the task's model with its initial weights.

    Args:
        task: The task.
        encoder: The encoder to start from.
        directory: The model directory, in which weights replace those of `encoder`.
        strategy: Where to build it.
    """
    options = task.options
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        backbone = BertBackbone(encoder.architecture, dtype=options.precision)
        if options.frozen_layers:
            layers = (f"encoder_layer_{n}" for n in range(options.frozen_layers))
            for name in ("embeddings", *layers):
                backbone.get_layer(name).trainable = False
        model = task.model(backbone)
        model.jit_compile = False  # XLA would compile for every sequence length.
        if options.init_from and not directory.read_metrics():
            keys = ("kind", "labels")
            same_head = all(encoder.head.get(k) == directory.head.get(k) for k in keys)
            source = standardized(encoder, directory.head) if same_head else encoder
            missing = source.load_into(model, part=None if same_head else backbone)
            print(
                f"Initialized from {encoder.path}. Newly initialized layers: "
                f"{', '.join(missing) or 'none'}."
            )
    return model


def default_learning_rate(hidden_dim: int) -> float:
    """Returns the peak learning rate for an encoder of this hidden size.

    From BERT base on, the rate is the paper's (appendix A.3). Smaller encoders need
    more: `benchmarks/results/finetuning.md` has the scores.
    """
    return 5e-5 if hidden_dim >= 768 else 1e-4 if hidden_dim > 256 else 3e-4


def train(
    task: Task,
    model: keras.Model,
    directory: ModelDirectory,
    strategy: tf.distribute.Strategy,
) -> dict[str, Any]:
    """Trains the model, or resumes from the last training state.

    Writes the weights of the best epoch and the metrics to `directory`.

    Returns:
        `metric`, the name of the metric on the dev set; its `score` in `best_epoch`
        (counted from 1); `epochs`, the losses and scores of each epoch; and `seconds`.
    """
    options, split = task.options, task.dataset("train")
    steps_per_epoch = math.ceil(len(split) / options.batch_size)
    steps = steps_per_epoch * options.epochs
    warmup_steps = int(options.warmup_ratio * steps)
    learning_rate = options.learning_rate
    if learning_rate is None:
        learning_rate = default_learning_rate(directory.architecture.hidden_dim)
    schedule = WarmupDecay(learning_rate, warmup_steps, steps)
    trainable = task.training_model(model)
    with strategy.scope():
        optimizer = AdamW(
            schedule, weight_decay=options.weight_decay, global_clipnorm=1.0
        )
        # Without XLA, which would compile for every sequence length.
        trainable.compile(optimizer, jit_compile=False, **_losses(task))
        sum_losses(trainable)
        if options.teacher:
            distribution.create_training_variables(trainable)
            trainable = Distiller(task, trainable)
            trainable.compile(optimizer, jit_compile=False)
        state = TrainingState(directory, trainable)
        step = state.restore()
    print(
        f"{len(split):,} training examples, {split.lengths.mean():.0f} tokens on "
        f"average; {options.epochs} epochs of {steps_per_epoch:,} steps; "
        f"learning rate {learning_rate:g}; "
        f"{trainable.count_params():,} weights"
        + (f"; resuming at step {step:,} of {steps:,}." if step else ".")
    )

    def batches(first_step: int) -> tf.data.Dataset:
        return batching.batches(
            split,
            options.batch_size,
            options.max_sequence_length,
            first_step=first_step,
            epochs=options.epochs,
            seed=options.seed,
        )

    loop = TrainingLoop(strategy, state, steps)
    dev = task.dataset(task.evaluation_splits[0])
    metric = f"{dev.name}_{task.metric}"
    history = loop.progress.setdefault("epochs", [])
    loop.progress.setdefault("seconds", 0.0)
    callback = keras.callbacks.Callback()
    callback.on_predict_batch_end = lambda batch, logs: loop.check_signals()

    def evaluate() -> dict[str, float]:
        limits = options.batch_size, options.max_sequence_length
        outputs = batching.predict(model, dev, *limits, callbacks=[callback])
        scores = task.evaluate(dev, outputs).metrics
        return {f"{dev.name}_{name}": float(score) for name, score in scores.items()}

    for epoch in loop.epochs(
        batches, evaluate, steps=steps, steps_per_epoch=steps_per_epoch
    ):
        logs = epoch["logs"]
        history.append(logs)
        loop.progress["seconds"] += epoch["seconds"]
        scores = [row[metric] for row in history]
        best = scores.index(max(scores))
        if best + 1 == len(history):
            directory.save_weights(model)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
        loop.report(
            logs, len(history) - 1, f"Epoch {len(history)} of {options.epochs}: {shown}"
        )
        patience = options.early_stopping_patience
        if patience and len(history) > best + patience:
            break
        if len(history) < options.epochs:
            loop.save()
    metrics = {
        "metric": f"{dev.name} {task.metric}",
        "score": scores[best],
        "best_epoch": best + 1,
        "epochs": history,
        "seconds": round(loop.progress["seconds"], 1),
    }
    directory.write_metrics({"training": metrics})  # The training is finished.
    state.remove()
    return metrics


def _losses(task: Task) -> dict[str, Any]:
    """Returns the arguments of `compile` that differ from the model's defaults."""
    if task.target_kind != "labels":
        return {}
    loss = keras.losses.BinaryCrossentropy(from_logits=True, reduction="sum")
    return {"loss": loss, "weighted_metrics": []}
