# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a model trains: one device, the GPUs of a machine or of several, or TPUs.

`strategy("mirrored")` returns the `tf.distribute.Strategy` under whose scope model
and optimizer are built, after checks that say in one line what is missing.
"""

from __future__ import annotations

import importlib.util
import json
import os

import keras
import tensorflow as tf

from bert_tf import storage
from bert_tf.modeling import Dropout

STRATEGIES = ("default", "mirrored", "multi_worker", "tpu")


def strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy called `name`.

    Args:
        name: `"default"`: the first GPU, else the CPU. `"mirrored"`: all GPUs of this
            machine, or all logical CPU devices where there are several.
            `"multi_worker"`: the devices of all machines that `TF_CONFIG` names, on
            each of which the same command runs; nothing may run before. `"tpu"`: the
            TPU that is attached to this machine or named by `TPU_NAME`.

    Raises:
        ValueError: The name is unknown or there is no such hardware.
    """
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored()
    if name == "multi_worker":
        return _multi_worker()
    if name == "tpu":
        return _tpu()
    raise ValueError(
        f"--strategy must be one of {', '.join(STRATEGIES)}. "
        f"Received: strategy={name!r}"
    )


def _mirrored() -> tf.distribute.Strategy:
    devices = tf.config.list_logical_devices("GPU")
    if devices:
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    devices = tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        raise ValueError(
            "--strategy=mirrored needs GPUs, and TensorFlow sees none. Use "
            "--strategy=default, or install a TensorFlow with CUDA: "
            'pip install "tensorflow[and-cuda]"'
        )
    # The default cross-device ops expect GPUs.
    return tf.distribute.MirroredStrategy(
        [device.name for device in devices],
        cross_device_ops=tf.distribute.ReductionToOneDevice(),
    )


def _multi_worker() -> tf.distribute.Strategy:
    example = (
        '{"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
        '"task": {"type": "worker", "index": 0}}'
    )
    try:
        config = json.loads(os.environ.get("TF_CONFIG", ""))
        workers, index = config["cluster"]["worker"], config["task"]["index"]
        complete = config["task"]["type"] == "worker" and 0 <= index < len(workers)
    except (ValueError, KeyError, TypeError):
        complete = False
    if not complete:
        raise ValueError(
            "--strategy=multi_worker needs the environment variable TF_CONFIG, with "
            f"the same workers and another index on each host: {example}. "
            f"Received: TF_CONFIG={os.environ.get('TF_CONFIG', '')!r}"
        )
    return tf.distribute.MultiWorkerMirroredStrategy()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this process is the one that writes files: the first of all workers."""
    resolver = strategy.cluster_resolver
    return resolver is None or resolver.task_id in (None, 0)


def _tpu() -> tf.distribute.Strategy:
    if not importlib.util.find_spec("libtpu"):
        raise ValueError(
            "--strategy=tpu needs tensorflow-tpu, which is not installed. On a TPU VM, "
            "in an environment of its own: pip install -r requirements-tpu.txt"
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            "--strategy=tpu finds no TPU: run on a TPU VM, or set TPU_NAME. TensorFlow "
            f"says: {reason}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


def check_reachable(strategy: tf.distribute.Strategy, records: str) -> None:
    """Checks that the machine of a TPU can read the records.

    Raises:
        ValueError: The TPU is on another machine and the records are on this one.
    """
    resolver = strategy.cluster_resolver
    if isinstance(resolver, tf.distribute.cluster_resolver.TPUClusterResolver):
        elsewhere = resolver.master()  # Nothing where the TPU is attached.
        if elsewhere and not storage.is_remote(records):
            raise ValueError(
                f"The TPU at {elsewhere} reads the records, and not this machine: copy "
                f"them to a bucket. Received: records={records!r}, not gs://..."
            )


def check_batch_size(batch_size: int, replicas: int) -> None:
    """Checks that the global batch divides among the replicas.

    Raises:
        ValueError: It does not; the message says what would.
    """
    if batch_size % replicas:
        up = -(-batch_size // replicas) * replicas
        raise ValueError(
            "--batch_size is the global batch and must be a multiple of the number of "
            f"replicas. Received: batch_size={batch_size}, replicas={replicas}; "
            f"use --batch_size={up}."
        )


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators of the model's dropout layers, in order."""
    return [
        layer.seed_generator
        for layer in model._flatten_layers()
        if isinstance(layer, (keras.layers.Dropout, Dropout)) and layer.rate > 0
    ]


def create_training_variables(model: keras.Model) -> None:
    """Creates the variables of optimizer and losses; call it in the strategy's scope.

    The first step would do so otherwise, and `fit` would trace it twice.
    """
    model.optimizer.build(model.trainable_variables)
    if (
        not model._compile_loss.built
    ):  # It has a mean metric for each of several losses.
        model._compile_loss.build(model.output, model.output)
