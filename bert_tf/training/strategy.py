# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Selects the devices of a training: one, those of one or several machines, TPUs.

`strategy("mirrored")` returns `Devices`. Build model and optimizer in their scope. They
hide from the rest of the package whether TensorFlow or JAX runs the steps.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from bert_tf.lazy import lazy_import
from bert_tf.training.steps import JaxSteps, TensorFlowSteps

jax = lazy_import("jax")
multihost_utils = lazy_import("jax.experimental.multihost_utils")

# Seconds to wait for the other processes, and until JAX regards a silent one as lost.
_START_TIMEOUT, _HEARTBEAT_TIMEOUT = 3600, 30


class Devices(Protocol):
    """The replicas of a data-parallel training, one on each device.

    Every process reads the same global batches and computes its part.

    Attributes:
        replicas: Devices of all processes.
        is_chief: Whether this process writes the files.
        has_peers: Whether several processes train together.
        jit_compile: Whether XLA compiles steps whose batches differ in length. It
            compiles anew for each length; without it, JAX would run ops one by one.
        scope: Returns a context in which models and optimizers are built.
    """

    replicas: int
    is_chief: bool
    has_peers: bool
    jit_compile: bool
    scope: Callable[[], contextlib.AbstractContextManager]

    def steps(self, model: keras.Model, micro_batch_size: int) -> Any:
        """Returns `TensorFlowSteps` or `JaxSteps`, which train a compiled model."""

    def any(self, value: bool) -> bool:
        """Returns whether the value is true in any process. All must call this."""


class TensorFlowDevices(Devices):
    """The devices of a `tf.distribute.Strategy`."""

    jit_compile = False

    def __init__(self, strategy: tf.distribute.Strategy, *, is_chief: bool = True):
        self.strategy, self.is_chief, self.scope = strategy, is_chief, strategy.scope
        self.replicas = strategy.num_replicas_in_sync
        multi_worker = tf.distribute.MultiWorkerMirroredStrategy
        self.has_peers = isinstance(strategy, multi_worker)

    def steps(self, model, micro_batch_size):
        return TensorFlowSteps(model, micro_batch_size, self.strategy)

    def any(self, value):
        # A tensor, because Python values would be traced separately.
        return bool(self._sum(tf.constant(float(value))) > 0)

    @tf.function
    def _sum(self, value):
        value = self.strategy.run(tf.identity, args=(value,))
        return self.strategy.reduce("SUM", value, axis=None)


class JaxDevices(Devices):
    """Devices of JAX, with their data parallelism set in `keras.distribution`."""

    jit_compile = True
    scope = contextlib.nullcontext

    def __init__(self, devices: list[str]):
        self.replicas, distribution = len(devices), None
        self.is_chief, self.has_peers = not jax.process_index(), jax.process_count() > 1
        if self.replicas > 1:
            distribution = keras.distribution.DataParallel(devices=devices)
        keras.distribution.set_distribution(distribution)

    def steps(self, model, micro_batch_size):
        return JaxSteps(model, micro_batch_size)

    def any(self, value):
        return multihost_utils.process_allgather(np.array(value)).any()


def strategy(name: str) -> Devices:
    """Returns devices by the name of --strategy.

    Args:
        name: `"default"`: the first GPU, or the CPU without one. `"mirrored"`: all GPUs
            of this machine, or all logical CPU devices if there are several.
            `"multi_worker"`: the devices of all machines in the environment variable
            `TF_CONFIG`, or on JAX of the machines that SLURM, MPI or Kubernetes names.
            Each runs the same command and calls this function before other functions of
            TensorFlow and JAX. `"tpu"`: the TPU of this machine; on JAX, of all
            machines of a slice, which run the same command; on TensorFlow, the one that
            `TPU_NAME` names.

    Raises:
        ValueError: The hardware or its settings are missing.
    """
    if keras.backend.backend() == "jax":
        return _jax(name)
    one_process = {"mirrored": _mirrored, "tpu": _tpu}
    if name != "multi_worker":
        create = one_process.get(name, tf.distribute.get_strategy)
        return TensorFlowDevices(create())
    addresses, index = _read_tf_config()
    if not addresses:  # TensorFlow would train alone.
        raise ValueError(f"--strategy=multi_worker needs {_TF_CONFIG}")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    return TensorFlowDevices(strategy, is_chief=not index)


# --- Several machines ------------------------------------------------------------

_TF_CONFIG = (
    "the environment variable TF_CONFIG, with the same cluster and another task on "
    'each host: {"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
    '"task": {"type": "worker", "index": 0}}. A task of the type chief is the one that '
    "writes, else the first worker."
)


def _read_tf_config() -> tuple[list[str], int]:
    """Returns the addresses in TF_CONFIG, chief first, and the index of this process.

    Without a cluster, the list is empty.

    Raises:
        ValueError: TF_CONFIG is malformed, or its task is not in its cluster.
    """
    text = os.environ.get("TF_CONFIG", "")
    try:
        config = json.loads(text or "{}")
        if "cluster" not in config:
            return [], 0
        chief, workers = (config["cluster"].get(k, []) for k in ("chief", "worker"))
        kind, index = config["task"]["type"], int(config["task"]["index"])
        addresses = [*chief, *workers]
        others = {*config["cluster"]} - {"chief", "worker"}
        if others or len(chief) > 1 or not all(":" in x for x in addresses):
            raise ValueError("a cluster has workers and at most one chief, with ports")
        _ = {"chief": chief, "worker": workers}[kind][index]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"--strategy=multi_worker needs {_TF_CONFIG} Received: TF_CONFIG={text} "
            f"({error!r})"
        ) from error
    print("Waiting for all workers of TF_CONFIG, up to an hour.", flush=True)
    return addresses, index + (len(chief) if kind == "worker" else 0)


def _jax(name: str) -> JaxDevices:
    tf.config.set_visible_devices([], "GPU")  # TensorFlow only reads the records.
    if name in ("multi_worker", "tpu"):
        _join_jax_processes(name)
    devices = keras.distribution.list_devices()
    is_found = {"tpu": devices[0].startswith("tpu"), "mirrored": len(devices) > 1}
    if not is_found.get(name, True):
        raise ValueError(
            f"--strategy={name} does not find its devices. Use --strategy=default, or "
            'install JAX for TPUs or GPUs: pip install "jax[tpu]" or "jax[cuda12]". '
            f"JAX finds: {', '.join(devices)}"
        )
    return JaxDevices(devices[:1] if name == "default" else devices)


def _join_jax_processes(name: str) -> None:
    """Joins the other processes of the training, before JAX finds devices.

    Raises:
        ValueError: No setting names the processes, or they cannot be reached.
    """
    if jax.distributed.is_initialized():
        return
    arguments, (addresses, index) = {}, _read_tf_config()
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
        if name == "tpu" and not addresses and isinstance(error, ValueError):
            return  # A TPU of one machine.
        raise ValueError(
            f"--strategy={name} cannot join the other processes. Start the same "
            "command on each host with SLURM, MPI or Kubernetes, on a TPU slice, or "
            f"with {_TF_CONFIG} JAX's error: {error}"
        ) from error


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


# --- Errors ----------------------------------------------------------------------


@contextlib.contextmanager
def device_errors(*, has_peers: bool = False) -> Iterator[None]:
    """Turns lost workers and exhausted memory into ValueError.

    Args:
        has_peers: See `Devices`.
    """
    try:
        yield
    except Exception as error:
        reason, on_jax = str(error).strip(), keras.backend.backend() == "jax"
        if has_peers and on_jax:
            atexit.register(_exit_at_once)
        # JAX has the status in the message only.
        is_full = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in reason
        is_lost = has_peers and on_jax and re.match("[A-Z_]+: ", reason)
        if is_full or isinstance(error, tf.errors.ResourceExhaustedError):
            message = (
                "Out of memory. Pass a smaller --batch_size; or, to keep the update of "
                "bert_tf.pretrain, --micro_batch_size or --recompute."
            )
        elif is_lost or isinstance(error, tf.errors.UnavailableError):
            message = (
                "Lost the connection to another worker. Rerun the same command on all "
                "hosts to resume from the last checkpoint."
            )
        else:
            raise
        _clear_frames(error)
        raise ValueError(f"{message} The device reports: {reason[:500]}") from error


def _exit_at_once() -> None:
    """Exits before JAX waits for the other processes, of which one may be lost.

    The others then detect that this process is gone.
    """
    sys.stdout.flush()
    os._exit(1)


def _clear_frames(error: BaseException | None) -> None:
    """Deletes the local variables of the functions that raised an error.

    Among them are thread pools that TensorFlow does not close. If they lived until the
    process exits, Python might print another traceback then.
    """
    while error:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Checks that `replicas` divides the global batch size.

    Raises:
        ValueError: It does not; the message suggests a batch size.
    """
    if batch_size % replicas:
        up = -(-batch_size // replicas) * replicas
        raise ValueError(
            "--batch_size is the global batch and must be a multiple of the number of "
            f"replicas. Received: batch_size={batch_size}, replicas={replicas}; "
            f"use --batch_size={up}."
        )


def create_training_variables(model: keras.Model) -> None:
    """Creates the variables of optimizer, losses and metrics, in the strategy's scope.

    `fit` would do so otherwise: it would trace the first step twice, and take a batch
    from the dataset, which shuffles the rows differently afterwards.
    """
    model.optimizer.build(model.trainable_variables)
    # The loss has one metric per output. None if the model overrides `compute_loss`.
    for compiled in (model._compile_loss, model._compile_metrics):
        if compiled and not compiled.built:
            compiled.build(model.output, model.output)
