# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Selects the devices of a training: one, those of one or several machines, TPUs."""

from __future__ import annotations

import keras

from bert_tf.training import jax_devices, tensorflow_devices
from bert_tf.training.distribution import Devices, has_bfloat16_instructions

# Another backend of Keras needs one more module.
_BACKENDS = {"tensorflow": tensorflow_devices, "jax": jax_devices}


def create_devices(strategy: str, precision: str = "float32") -> Devices:
    """Returns devices by the name of --strategy.

    Args:
        strategy: `"default"`: the first GPU, or the CPU without one. `"mirrored"`: all
            GPUs of this machine, or all logical CPU devices if there are several.
            `"multi_worker"`: the devices of all machines in the environment variable
            `TF_CONFIG`, or on JAX of the machines that SLURM, MPI or Kubernetes names.
            Each runs the same command and calls this function before other functions of
            TensorFlow and JAX. `"tpu"`: the TPU of this machine; on JAX, of all
            machines of a slice, which run the same command; on TensorFlow, the one that
            `TPU_NAME` names.
        precision: The dtype policy of the model. Prints a line if it slows the
            training down.

    Raises:
        ValueError: The hardware or its settings are missing.
    """
    devices = _BACKENDS[keras.backend.backend()].create(strategy)
    is_bfloat16 = precision == "mixed_bfloat16"
    if is_bfloat16 and devices.is_cpu and not has_bfloat16_instructions():
        print(
            "This processor has no instructions for bfloat16, so the training will be "
            "slower than with --precision=float32."
        )
    return devices
