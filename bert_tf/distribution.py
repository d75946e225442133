# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a model trains: one device, the GPUs of a machine, or TPUs.

`strategy("mirrored")` returns the `tf.distribute.Strategy` under whose scope model
and optimizer are built, after checks that say in one line what is missing.
"""

from __future__ import annotations

import keras
import tensorflow as tf

STRATEGIES = ("default", "mirrored", "tpu")


def strategy(name: str) -> tf.distribute.Strategy:
    """Returns the strategy called `name`.

    Args:
        name: `"default"`: the first GPU, else the CPU. `"mirrored"`: all GPUs of this
            machine, or all logical CPU devices where there are several. `"tpu"`: the
            TPU that is attached to this machine or named by `TPU_NAME`.

    Raises:
        ValueError: The name is unknown or there is no such hardware.
    """
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        return _mirrored()
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


def _tpu() -> tf.distribute.Strategy:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver.connect()
    except (ValueError, tf.errors.OpError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            "--strategy=tpu finds no TPU: run on a TPU VM with tensorflow-tpu "
            f"installed, or set TPU_NAME. TensorFlow says: {reason}"
        ) from error
    return tf.distribute.TPUStrategy(resolver)


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
    """Returns the random states of the model's dropout layers, in order."""
    return [
        layer.seed_generator
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dropout) and layer.rate > 0
    ]


def draw_dropout_per_replica(model: keras.Model) -> None:
    """Gives each replica dropout masks of its own.

    Keras 3.15 mirrors the state of a seed generator, so that all replicas drop the
    same units (keras issue 20611); here the replica's number goes into each draw.
    """
    for generator in seed_generators(model):

        def draw(ordered=True, generator=generator):
            seed = type(generator).next(generator, ordered)
            context = tf.distribute.get_replica_context()
            replica = context.replica_id_in_sync_group if context else 0
            # Far apart, as the second component counts the steps.
            return seed + tf.cast(tf.stack([replica * 1_000_003, 0]), seed.dtype)

        generator.next = draw
