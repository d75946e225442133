# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training steps of pre-training: micro-batches, XLA per replica, JAX.

Keras 3.15 cannot do this. Its `gradient_accumulation_steps` fails under strategies, and
learning rate schedules count its micro-batches as steps (base_optimizer.py). Its
`jit_compile=True` compiles the whole step, which fails with two replicas on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf.lazy import lazy_import

jax = lazy_import("jax")


def tensorflow_step(
    model: keras.Model, micro_batch_size: int = 0, xla: bool = False
) -> Callable[[Any], None]:
    """Returns a function that trains on the batch `(x, y, weights)` of a replica.

    Args:
        model: The compiled model. Its losses are sums, and the weights of a batch sum
            to one over all replicas.
        micro_batch_size: Rows that a replica computes at once; divides the rows of its
            batch. The step sums the gradients of the micro-batches. Only memory and
            dropout masks change. 0: the whole batch.
        xla: Whether to compile the forward and backward pass with XLA.
    """

    def compute_gradients(x, y, weights):
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, weights, training=True)
            scaled = model.optimizer.scale_loss(loss)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        # The tracker averages over replicas and micro-batches; the loss is a sum.
        replicas = model.distribute_strategy.num_replicas_in_sync
        model._loss_tracker.update_state(loss * replicas, sample_weight=rows)
        model.compute_metrics(x, y, outputs, weights)
        variables = [variable.value for variable in model.trainable_variables]
        return [tf.convert_to_tensor(g) for g in tape.gradient(scaled, variables)]

    if xla:
        compute_gradients = tf.function(compute_gradients, jit_compile=True)

    def sum_gradients(batch, count):
        """Returns the sum of the gradients of `count` equal parts of a batch."""

        def body(part, *sums):
            def rows(tensor):
                size = tensor.shape[0] // count
                # Not tensor[a:b], whose size XLA does not recognize as constant.
                start = tf.one_hot(0, tensor.shape.rank, part * size)
                return tf.slice(tensor, start, [size, *tensor.shape[1:]])

            gradients = compute_gradients(*tf.nest.map_structure(rows, batch))
            return part + 1, *(a + b for a, b in zip(sums, gradients, strict=True))

        zeros = [tf.zeros(v.shape, v.dtype) for v in model.trainable_variables]
        # One micro-batch at a time saves the memory.
        _, *sums = tf.while_loop(
            lambda part, *sums: part < count, body, (0, *zeros), parallel_iterations=1
        )
        return sums

    def step(batch):
        rows = tf.nest.flatten(batch)[0].shape[0]
        count = rows // micro_batch_size if micro_batch_size else 1
        if count == 1:
            gradients = compute_gradients(*batch)
        else:
            x, y, weights = batch
            # Weights sum to one over the batch. Scaled by `count`, they do so in the
            # mean over micro-batches.
            weights = tf.nest.map_structure(lambda weight: weight * count, weights)
            gradients = [g / count for g in sum_gradients((x, y, weights), count)]
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def jax_step(
    model: keras.Model, micro_batch_size: int = 0
) -> Callable[[tuple, Any], tuple[dict, tuple]]:
    """Returns a function of the state of Keras' JAX trainer and a batch.

    XLA compiles it for all devices of `keras.distribution` together: gradients are
    those of the global batch, and the optimizer clips them after the all-reduce.

    Args:
        model, micro_batch_size: See `tensorflow_step`.

    Returns:
        A function that returns the metrics, with the `gradient_norm`, and the state.
    """

    def accumulate(state, batch, replicas, count):
        """`train_step` with the mean gradient over `count` parts of the batch."""
        weights, others, optimizer_variables, metrics = state
        gradients_of = jax.value_and_grad(model.compute_loss_and_updates, has_aux=True)

        def split(tensor):  # Every replica takes part in every micro-batch.
            rest = tensor.shape[1:]
            parts = tensor.reshape(replicas, count, micro_batch_size, *rest)
            return parts.swapaxes(0, 1).reshape(count, -1, *rest)

        def add(carry, part):
            sums, others, metrics = carry
            x, y, sample_weight = part
            # Weights sum to one over the batch; scaled, in the mean over the parts.
            sample_weight = {k: v * count for k, v in sample_weight.items()}
            (_, (loss, outputs, others, metrics)), gradients = gradients_of(
                weights,
                others,
                metrics,
                x,
                y,
                sample_weight,
                training=True,
                optimizer_variables=optimizer_variables,
            )
            logs, metrics = model._update_metrics_variables(
                metrics, loss, x, y, outputs, sample_weight
            )
            sums = [total + gradient for total, gradient in zip(sums, gradients)]
            return (sums, others, metrics), logs

        zeros = [jax.numpy.zeros_like(weight) for weight in weights]
        parts = tf.nest.map_structure(split, batch)
        carry, logs = jax.lax.scan(add, (zeros, others, metrics), parts)
        sums, others, metrics = carry
        weights, optimizer_variables = model.optimizer.stateless_apply(
            optimizer_variables, [total / count for total in sums], weights
        )
        logs = {name: values[-1] for name, values in logs.items()}
        return logs, (weights, others, optimizer_variables, metrics)

    def step(state, batch):
        distribution = keras.distribution.distribution()
        replicas = distribution.num_model_replicas if distribution else 1
        rows = tf.nest.flatten(batch)[0].shape[0] // replicas
        count = rows // micro_batch_size if micro_batch_size else 1
        if count == 1:
            logs, state = model.train_step(state, batch)
        else:
            logs, state = accumulate(state, batch, replicas, count)
        names = [variable.name for variable in model.optimizer.variables]
        return logs | {"gradient_norm": state[2][names.index("gradient_norm")]}, state

    return step


def jax_test(model: keras.Model) -> Callable[..., None]:
    """Returns a function that updates the metrics with the arrays of a batch."""
    run, metrics = jax.jit(model.test_step), model.metrics_variables
    groups = model.trainable_variables, model.non_trainable_variables, metrics

    def test(*batch):
        state = tuple([v.value for v in group] for group in groups)
        _, (*_, values) = run(state, batch)
        for variable, value in zip(metrics, values, strict=True):
            variable.assign(value)

    return test


def to_jax_devices(batch: Any) -> Any:
    """Divides the rows of a batch of arrays among the devices."""
    distribution = keras.distribution.distribution()
    if distribution is None:
        return batch

    def place(array):
        layout = distribution.get_data_layout(array.shape)
        return keras.distribution.distribute_tensor(array, layout)

    return tf.nest.map_structure(place, batch)
