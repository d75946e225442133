# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training steps: micro-batches, XLA per replica, several steps per call, JAX.

Keras 3.15 cannot do this. Its `gradient_accumulation_steps` fails under strategies, and
learning rate schedules count its micro-batches as steps (base_optimizer.py). Its
`jit_compile=True` compiles the whole step, which fails with two replicas on a machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
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
        gradients = tape.gradient(scaled, variables)
        return [None if g is None else tf.convert_to_tensor(g) for g in gradients]

    if xla:
        compute_gradients = tf.function(compute_gradients, jit_compile=True)

    def mean_gradients(batch, count):
        """Returns the mean of the gradients of `count` equal parts of a batch."""
        parts = tf.nest.map_structure(
            lambda x: tf.reshape(x, [count, micro_batch_size, *x.shape[1:]]), batch
        )

        def add(part, *sums):
            batch = tf.nest.map_structure(lambda x: x[part], parts)
            return part + 1, *map(tf.add, sums, compute_gradients(*batch))

        zeros = [tf.zeros(v.shape, v.dtype) for v in model.trainable_variables]
        # One micro-batch at a time saves the memory.
        _, *sums = tf.while_loop(
            lambda part, *_: part < count, add, (0, *zeros), parallel_iterations=1
        )
        return [total / count for total in sums]

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
            gradients = mean_gradients((x, y, weights), count)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def jax_step(
    model: keras.Model, micro_batch_size: int = 0
) -> Callable[[tuple, Any], tuple[dict, tuple]]:
    """Returns a function of the state of Keras' JAX trainer and a batch.

    XLA compiles it for all devices of `keras.distribution` together: gradients are
    those of the global batch, and the optimizer clips them after the all-reduce.

    Args:
        model: See `tensorflow_step`.
        micro_batch_size: See `tensorflow_step`.

    Returns:
        A function that returns the metrics, with the `gradient_norm`, and the state.
    """

    def accumulate(state, batch, replicas, count):
        """`train_step` with the mean gradient over `count` parts of the batch."""
        weights, others, optimizer_variables, metrics = state
        loss_and_updates = functools.partial(
            model.compute_loss_and_updates,
            training=True,
            optimizer_variables=optimizer_variables,
        )
        gradients_of = jax.value_and_grad(loss_and_updates, has_aux=True)

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
                weights, others, metrics, x, y, sample_weight
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


# --- Runs of several steps -------------------------------------------------------


def steps_per_call() -> int:
    """Returns the number of steps between two reads of metrics from the devices.

    Accelerators would wait for each read.
    """
    devices = keras.distribution.list_devices()
    return 1 if all(name.startswith("cpu") for name in devices) else 20


class TensorFlowSteps:
    """Runs the steps of a training under a `tf.distribute.Strategy`.

    Attributes:
        test: Updates the metrics with a batch `(x, y, weights)`.
    """

    def __init__(
        self,
        model: keras.Model,
        micro_batch_size: int,
        strategy: tf.distribute.Strategy,
    ):
        self._strategy = strategy
        on_gpu = bool(tf.config.list_physical_devices("GPU"))
        step = tensorflow_step(model, micro_batch_size, model.jit_compile and on_gpu)

        @tf.function(autograph=False)
        def train(iterator):
            strategy.run(step, args=(next(iterator),))
            return tf.convert_to_tensor(model.optimizer.gradient_norm)

        @tf.function(autograph=False)
        def test(*batch):
            strategy.run(model.test_step, args=(batch,))

        self._train, self.test = train, test

    def distribute(self, dataset: tf.data.Dataset) -> Iterator:
        """Returns the global batches, each divided among the replicas."""
        return iter(self._strategy.experimental_distribute_dataset(dataset))

    def run(self, iterator: Iterator, count: int) -> np.ndarray:
        """Trains on `count` batches, and returns the gradient norms, [count]."""
        return np.array([self._train(iterator) for _ in range(count)])


class JaxSteps:
    """Like `TensorFlowSteps`, on the devices of `keras.distribution`."""

    def __init__(self, model: keras.Model, micro_batch_size: int):
        self._train = jax.jit(jax_step(model, micro_batch_size), donate_argnums=0)
        self._test = jax.jit(model.test_step)
        self._variables = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )

    def distribute(self, dataset):
        distribution = keras.distribution.distribution()

        def place(array):  # Every process has the global batch.
            layout = distribution.get_data_layout(array.shape).backend_layout
            return jax.make_array_from_process_local_data(layout, array, array.shape)

        batches = dataset.as_numpy_iterator()
        if distribution is None:
            return batches
        return (tf.nest.map_structure(place, batch) for batch in batches)

    def test(self, *batch):
        weights, others, _, metrics = self._state()
        _, (*_, metrics) = self._test((weights, others, metrics), batch)
        _assign(self._variables[-1], metrics)

    def run(self, iterator, count):
        state, norms = self._state(), []
        for _ in range(count):
            logs, state = self._train(state, next(iterator))
            norms.append(logs["gradient_norm"])
        _assign(self._variables, state)
        return np.array(norms)

    def _state(self) -> tuple[list, ...]:
        return keras.tree.map_structure(lambda v: v.value, self._variables)


def _assign(variables, values):
    keras.tree.map_structure(lambda v, value: v.assign(value), variables, values)
