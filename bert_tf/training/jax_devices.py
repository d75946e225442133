# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training on JAX: devices of one or several processes, steps with micro-batches."""

from __future__ import annotations

import atexit
import functools
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.lazy import lazy_import
from bert_tf.training.distribution import TF_CONFIG, Devices, Steps, read_tf_config

jax = lazy_import("jax")
multihost_utils = lazy_import("jax.experimental.multihost_utils")

# Seconds to wait for the other processes, and until JAX regards a silent one as lost.
_START_TIMEOUT, _HEARTBEAT_TIMEOUT = 3600, 30


class JaxDevices(Devices):
    """Devices of JAX, with their data parallelism set in `keras.distribution`."""

    jit_compile = True

    def __init__(self, devices: list[str]):
        self.replicas, distribution = len(devices), None
        self.is_chief, self.has_peers = not jax.process_index(), jax.process_count() > 1
        if self.replicas > 1:
            distribution = keras.distribution.DataParallel(devices=devices)
        keras.distribution.set_distribution(distribution)

    def steps(self, model, micro_batch_size=0):
        return JaxSteps(model, micro_batch_size)

    def any(self, value):
        return multihost_utils.process_allgather(np.array(value)).any()

    def is_lost_worker(self, error):
        if self.has_peers:
            atexit.register(_exit_at_once)
        # JAX has the status in the message only.
        return self.has_peers and re.match("[A-Z_]+: ", str(error).strip())


def _exit_at_once() -> None:
    """Exits before JAX waits for the other processes, of which one may be lost.

    The others then detect that this process is gone.
    """
    sys.stdout.flush()
    os._exit(1)


def create(strategy: str) -> JaxDevices:
    """Returns the devices of a `--strategy`; see `create_devices`."""
    tf.config.set_visible_devices([], "GPU")  # TensorFlow only reads the records.
    if strategy in ("multi_worker", "tpu"):
        _join_processes(strategy)
    devices = keras.distribution.list_devices()
    is_found = {"tpu": devices[0].startswith("tpu"), "mirrored": len(devices) > 1}
    if not is_found.get(strategy, True):
        raise ValueError(
            f"--strategy={strategy} does not find its devices. Use --strategy=default, "
            'or install JAX for TPUs or GPUs: pip install "jax[tpu]" or "jax[cuda12]". '
            f"JAX finds: {', '.join(devices)}"
        )
    return JaxDevices(devices[:1] if strategy == "default" else devices)


def _join_processes(strategy: str) -> None:
    """Joins the other processes of the training, before JAX finds devices.

    Raises:
        ValueError: No setting names the processes, or they cannot be reached.
    """
    if jax.distributed.is_initialized():
        return
    arguments, (addresses, index) = {}, read_tf_config()
    if addresses:
        arguments = {
            "coordinator_address": addresses[0],
            "process_id": index,
            "num_processes": len(addresses),
            "cluster_detection_method": "deactivate",
        }
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours.
    try:
        jax.distributed.initialize(
            **arguments,
            initialization_timeout=_START_TIMEOUT,
            heartbeat_timeout_seconds=_HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=_HEARTBEAT_TIMEOUT,
        )
    except (ValueError, RuntimeError) as error:
        if strategy == "tpu" and not addresses and isinstance(error, ValueError):
            return  # A TPU of one machine.
        raise ValueError(
            f"--strategy={strategy} cannot join the other processes. Start the same "
            "command on each host with SLURM, MPI or Kubernetes, on a TPU slice, or "
            f"with {TF_CONFIG} JAX's error: {error}"
        ) from error


# --- Steps -----------------------------------------------------------------------


def jax_step(
    model: keras.Model, micro_batch_size: int = 0
) -> Callable[[tuple, Any], tuple[dict, tuple]]:
    """Returns a function of the state of Keras' JAX trainer and a batch.

    XLA compiles it for all devices of `keras.distribution` together: gradients are
    those of the global batch, and the optimizer clips them after the all-reduce.

    Args:
        model: See `Devices.steps`.
        micro_batch_size: See `Devices.steps`.

    Returns:
        A function that returns the metrics, with the `gradient_norm`, and the state.
    """
    (loss_metric,) = (metric for metric in model.metrics if metric.name == "loss")

    def update_metrics(values, loss, x, y, outputs, weights):
        variables = model.metrics_variables
        with keras.StatelessScope(list(zip(variables, values))) as scope:
            rows = tf.nest.flatten(x)[0].shape[0]
            loss_metric.update_state(loss, sample_weight=rows)
            logs = model.compute_metrics(x, y, outputs, weights)
        return logs, [scope.get_current_value(variable) for variable in variables]

    def step(state, batch):
        weights, others, optimizer_variables, metrics = state
        distribution = keras.distribution.distribution()
        replicas = distribution.num_model_replicas if distribution else 1
        rows = tf.nest.flatten(batch)[0].shape[0] // replicas
        count = rows // micro_batch_size if micro_batch_size else 1
        loss_and_updates = functools.partial(
            model.compute_loss_and_updates,
            training=True,
            optimizer_variables=optimizer_variables,
        )
        gradients_of = jax.value_and_grad(loss_and_updates, has_aux=True)

        def split(tensor):  # Every replica takes part in every micro-batch.
            rest = tensor.shape[1:]
            parts = tensor.reshape(replicas, count, rows // count, *rest)
            return parts.swapaxes(0, 1).reshape(count, -1, *rest)

        def add(carry, part):
            sums, others, metrics = carry
            x, y, sample_weight = part
            # Weights sum to one over the batch; scaled, in the mean over the parts.
            sample_weight = tf.nest.map_structure(lambda w: w * count, sample_weight)
            (_, (loss, outputs, others, metrics)), gradients = gradients_of(
                weights, others, metrics, x, y, sample_weight
            )
            logs, metrics = update_metrics(metrics, loss, x, y, outputs, sample_weight)
            sums = [total + gradient for total, gradient in zip(sums, gradients)]
            return (sums, others, metrics), logs

        carry = [jax.numpy.zeros_like(weight) for weight in weights], others, metrics
        if count == 1:
            carry, logs = add(carry, batch)
        else:
            carry, logs = jax.lax.scan(add, carry, tf.nest.map_structure(split, batch))
            logs = {name: values[-1] for name, values in logs.items()}
        sums, others, metrics = carry
        weights, optimizer_variables = model.optimizer.stateless_apply(
            optimizer_variables, [total / count for total in sums], weights
        )
        names = [variable.name for variable in model.optimizer.variables]
        norm = optimizer_variables[names.index("gradient_norm")]
        state = weights, others, optimizer_variables, metrics
        return logs | {"gradient_norm": norm}, state

    return step


class JaxSteps(Steps):
    """Steps on the devices of `keras.distribution`."""

    def __init__(self, model: keras.Model, micro_batch_size: int):
        self._train = jax.jit(jax_step(model, micro_batch_size), donate_argnums=0)
        self._test = jax.jit(model.test_step)
        self._variables = (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
        self.reset_metrics, self.metrics = model.reset_metrics, model.get_metrics_result

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
