# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Distribution strategies: one device, the GPUs of one or several machines, TPUs.

`strategy("mirrored")` returns a `tf.distribute.Strategy`. Build model and optimizer in
its scope. Missing hardware or settings raise a ValueError that names them.

On the JAX backend of Keras, which pre-training supports, it returns a `JaxDevices`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import traceback
from collections.abc import Iterator

import keras
import tensorflow as tf

from bert_tf import lazy


@dataclasses.dataclass(frozen=True)
class JaxDevices:
    """Data parallelism on JAX, with the interface of a `tf.distribute.Strategy`.

    Attributes:
        num_replicas_in_sync: The number of devices.
    """

    num_replicas_in_sync: int
    cluster_resolver: None = None
    scope = contextlib.nullcontext  # `keras.distribution` is set globally.


def strategy(name: str) -> tf.distribute.Strategy | JaxDevices:
    """Returns a distribution strategy by name.

    Args:
        name: `"default"`: the first GPU, or the CPU without one. `"mirrored"`: all GPUs
            of this machine, or all logical CPU devices if there are several.
            `"multi_worker"`: the devices of all machines in the environment variable
            `TF_CONFIG`. Each runs the same command and calls this function before
            other TensorFlow functions. `"tpu"`: the TPU of this machine, or the one
            that `TPU_NAME` names.

    Raises:
        ValueError: The hardware or its settings are missing.
    """
    strategies = {
        "default": tf.distribute.get_strategy,
        "mirrored": _mirrored,
        "multi_worker": _multi_worker,
        "tpu": _tpu,
    }
    return _jax(name) if keras.backend.backend() == "jax" else strategies[name]()


def _jax(name: str) -> JaxDevices:
    if name == "multi_worker":
        lazy.require_backend("--strategy=multi_worker", "tensorflow")
    tf.config.set_visible_devices([], "GPU")  # TensorFlow only reads the records.
    devices = keras.distribution.list_devices()
    is_found = {"tpu": devices[0].startswith("tpu"), "mirrored": len(devices) > 1}
    if not is_found.get(name, True):
        raise ValueError(
            f"--strategy={name} does not find its devices. Use --strategy=default, or "
            'install JAX for TPUs or GPUs: pip install "jax[tpu]" or "jax[cuda12]". '
            f"JAX finds: {', '.join(devices)}"
        )
    devices = devices[:1] if name == "default" else devices
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(devices=devices) if len(devices) > 1 else None
    )
    return JaxDevices(len(devices))


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


def _multi_worker() -> tf.distribute.Strategy:
    # Without it, TensorFlow trains alone.
    if "cluster" not in os.environ.get("TF_CONFIG", ""):
        raise ValueError(
            "--strategy=multi_worker needs the environment variable TF_CONFIG, with "
            "the same workers and a different index on each host: "
            '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
            '"task": {"type": "worker", "index": 0}}'
        )
    print("Waiting for all workers of TF_CONFIG, up to an hour.", flush=True)
    return tf.distribute.MultiWorkerMirroredStrategy()


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the first worker, the one that writes files."""
    resolver = strategy.cluster_resolver
    return resolver is None or resolver.task_id in (None, 0)


@contextlib.contextmanager
def device_errors() -> Iterator[None]:
    """Turns lost workers and exhausted memory into ValueError."""
    try:
        yield
    except (tf.errors.ResourceExhaustedError, RuntimeError) as error:
        reason = str(error)
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in reason:
            raise  # JAX has the status in the message only.
        _clear_frames(error)
        raise ValueError(
            "Out of memory. Pass a smaller --batch_size; or, to keep the update of "
            "bert_tf.pretrain, --micro_batch_size or --recompute. The device reports: "
            f"{reason.strip()[:500]}"
        ) from error
    except tf.errors.UnavailableError as error:
        _clear_frames(error)
        raise ValueError(
            "Lost the connection to another worker. Rerun the same command on all "
            "hosts to resume from the last checkpoint."
        ) from error


def _clear_frames(error: BaseException | None) -> None:
    """Deletes the local variables of the functions that raised an error.

    Among them are thread pools that TensorFlow does not close. If they lived until the
    process exits, Python might print another traceback then.
    """
    while error:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


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
