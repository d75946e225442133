# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training on TensorFlow: `tf.distribute`, steps with micro-batches, XLA per replica.

Keras 3.15 cannot do this. Its `gradient_accumulation_steps` fails under strategies, and
learning rate schedules count its micro-batches as steps (base_optimizer.py). Its
`jit_compile=True` compiles the whole step, which fails with two replicas on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training.distribution import TF_CONFIG, Devices, Steps, read_tf_config


class TensorFlowDevices(Devices):
    """The devices of a `tf.distribute.Strategy`."""

    def __init__(self, strategy: tf.distribute.Strategy, *, is_chief: bool = True):
        self.strategy, self.is_chief, self.scope = strategy, is_chief, strategy.scope
        self.replicas = strategy.num_replicas_in_sync
        multi_worker = tf.distribute.MultiWorkerMirroredStrategy
        self.has_peers = isinstance(strategy, multi_worker)

    def steps(self, model, micro_batch_size=0):
        return TensorFlowSteps(model, micro_batch_size, self.strategy)

    def any(self, value):
        # A tensor, because Python values would be traced separately.
        return bool(self._sum(tf.constant(float(value))) > 0)

    @tf.function
    def _sum(self, value):
        value = self.strategy.run(tf.identity, args=(value,))
        return self.strategy.reduce("SUM", value, axis=None)

    def is_lost_worker(self, error):
        return isinstance(error, tf.errors.UnavailableError)


def create(strategy: str) -> TensorFlowDevices:
    """Returns the devices of a `--strategy`; see `create_devices`."""
    if strategy == "multi_worker":
        addresses, index = read_tf_config()
        if not addresses:  # TensorFlow would train alone.
            raise ValueError(f"--strategy=multi_worker needs {TF_CONFIG}")
        multi_worker = tf.distribute.MultiWorkerMirroredStrategy()
        return TensorFlowDevices(multi_worker, is_chief=not index)
    one_process = {"mirrored": _mirrored, "tpu": _tpu}
    return TensorFlowDevices(one_process.get(strategy, tf.distribute.get_strategy)())


def _mirrored() -> tf.distribute.Strategy:
    gpus, cpus = map(tf.config.list_logical_devices, ("GPU", "CPU"))
    if not gpus and len(cpus) < 2:
        raise ValueError(
            "--strategy=mirrored needs GPUs, and TensorFlow finds none. Use "
            "--strategy=default, or install TensorFlow with CUDA: "
            'pip install "tensorflow[and-cuda]"'
        )
    # The default cross-device ops expect GPUs.
    operations = None if gpus else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(cross_device_ops=operations)


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            "--strategy=tpu finds no TPU. Run on a TPU VM with tensorflow-tpu (see "
            f"docs/accelerators.md), or set TPU_NAME. TensorFlow's error: {reason}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


# --- Steps -----------------------------------------------------------------------


def tensorflow_step(
    model: keras.Model, micro_batch_size: int = 0, xla: bool = False
) -> Callable[[Any], None]:
    """Returns a function that trains on the batch `(x, y, weights)` of a replica.

    Args:
        model: See `Devices.steps`.
        micro_batch_size: See `Devices.steps`.
        xla: Whether to compile the forward and backward pass with XLA.
    """
    (loss_metric,) = (metric for metric in model.metrics if metric.name == "loss")

    def compute_gradients(x, y, weights):
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, weights, training=True)
            scaled = model.optimizer.scale_loss(loss)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        # The metric averages over replicas and micro-batches; the loss is a sum.
        replicas = model.distribute_strategy.num_replicas_in_sync
        loss_metric.update_state(loss * replicas, sample_weight=rows)
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


class TensorFlowSteps(Steps):
    """Steps under a `tf.distribute.Strategy`."""

    def __init__(
        self,
        model: keras.Model,
        micro_batch_size: int,
        strategy: tf.distribute.Strategy,
    ):
        self._strategy = strategy
        step = tensorflow_step(model, micro_batch_size, model.jit_compile)

        @tf.function(autograph=False)
        def train(iterator):
            strategy.run(step, args=(next(iterator),))
            return tf.convert_to_tensor(model.optimizer.gradient_norm)

        @tf.function(autograph=False)
        def test(*batch):
            strategy.run(model.test_step, args=(batch,))

        self._train, self.test = train, test
        # As graphs: eagerly, they take longer than the step of a small model.
        self.reset_metrics = tf.function(model.reset_metrics, autograph=False)
        self.metrics = tf.function(model.get_metrics_result, autograph=False)

    def distribute(self, dataset):
        return iter(self._strategy.experimental_distribute_dataset(dataset))

    def run(self, iterator, count):
        return np.array([self._train(iterator) for _ in range(count)])
