# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The training step of `fit` where memory is short, or XLA is to run on each replica.

`micro_batches` and `recompute` change how much of a step is in memory at once, not
what is learned (dropout draws other masks for micro-batches). Both go with every
strategy; call them in its scope, on a compiled model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.modeling.bert import BertBackbone
from bert_tf.modeling.gradients import after
from bert_tf.training.strategy import seed_generators


def micro_batches(model: keras.Model, size: int, *, xla: bool = False) -> None:
    """Makes `fit` sum the gradients of parts of each batch, then step once.

    What Keras has, `gradient_accumulation_steps`, fails under strategies, and
    schedules count its parts for steps (base_optimizer.py, Keras 3.15). The losses of
    `model` are sums with weights that sum to one over the global batch, as
    `pretrain_dataset` makes them; so are then those of the parts.

    Args:
        model: Compiled with `jit_compile=False`.
        size: Rows of a part; divides those of a batch on each replica. 0: all rows.
        xla: Whether to compile forward and backward pass. `jit_compile=True` in
            `compile` does the whole step and fails with two replicas on a machine.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    variables = model.trainable_variables

    def gradients_of(x, y, weights):
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, weights, training=True)
            scaled = model.optimizer.scale_loss(loss)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        # The mean over replicas and parts is the sum over the batch.
        model._loss_tracker.update_state(loss * replicas, sample_weight=rows)
        model.compute_metrics(x, y, outputs, weights)
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    if xla:
        gradients_of = tf.function(gradients_of, jit_compile=True)

    def train_step(data):
        x, y, weights = data
        rows = tf.nest.flatten(x)[0].shape[0]
        count = rows // size if size else 1
        if count == 1:
            gradients = gradients_of(x, y, weights)
        else:
            weights = tf.nest.map_structure(lambda weight: weight * count, weights)
            total = _sum_over_parts(gradients_of, (x, y, weights), count, variables)
            gradients = [gradient / count for gradient in total]
        model.optimizer.apply_gradients(zip(gradients, variables))
        return model.get_metrics_result()

    model.train_step = train_step


def _sum_over_parts(
    gradients_of: Callable[..., list[tf.Tensor]],
    batch: Any,
    count: int,
    variables: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """Returns the sum of the gradients of each of `count` parts of a batch."""

    def body(part, *sums):
        def rows(tensor):
            size = tensor.shape[0] // count
            # Not tensor[a:b]: XLA wants to see that the size is the same every time.
            start = tf.one_hot(0, tensor.shape.rank, part * size)
            return tf.slice(tensor, start, [size, *tensor.shape[1:]])

        gradients = gradients_of(*tf.nest.map_structure(rows, batch))
        return part + 1, *(a + b for a, b in zip(sums, gradients, strict=True))

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    # One part at a time is what saves the memory.
    _, *sums = tf.while_loop(
        lambda part, *sums: part < count, body, (0, *zeros), parallel_iterations=1
    )
    return sums


def recompute(backbone: BertBackbone) -> None:
    """Makes training keep only what goes into each encoder layer, and compute it twice.

    Takes about a third more time. What is kept of a layer falls from some
    (34 + 5 N S / H) B S H values to B S H (arXiv 2205.05198).
    """
    for layer in backbone.encoder_layers:
        layer.call = _recomputing(layer, layer.call, seed_generators(layer))


def _recomputing(
    layer: keras.Layer,
    call: Callable[..., tf.Tensor],
    generators: Sequence[keras.random.SeedGenerator],
) -> Callable[..., tf.Tensor]:
    """Returns `call`, a layer's method, with a gradient that runs it again."""

    def recomputed(x, attention_mask, training=None):
        if not training:
            return call(x, attention_mask, training=training)

        # The second time dropout must draw the same masks.
        seeds = [generator.next() for generator in generators]

        @tf.recompute_grad
        def run(x):
            # Else the masks of all layers are drawn, and kept, before they are needed.
            with _seeds(generators, [after(x, seed) for seed in seeds]):
                return call(x, attention_mask, training=True)

        return run(x)

    return recomputed


@contextlib.contextmanager
def _seeds(
    generators: Sequence[keras.random.SeedGenerator], seeds: Sequence[tf.Tensor]
) -> Iterator[None]:
    """Lets each generator give its one of `seeds` instead of a new one."""
    before = [generator.next for generator in generators]
    for generator, seed in zip(generators, seeds, strict=True):
        generator.next = lambda ordered=True, seed=seed: seed
    try:
        yield
    finally:
        for generator, draw in zip(generators, before):
            generator.next = draw
