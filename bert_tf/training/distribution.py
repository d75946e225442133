# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training, whatever backend runs it.

`tensorflow_devices` and `jax_devices` have the subclasses of `Devices` and `Steps`.
Another backend of Keras needs one more such module.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import pathlib
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import keras_private


class Steps:
    """Runs the steps of a compiled model; see `Devices.steps`."""

    def distribute(self, dataset: tf.data.Dataset) -> Iterator:
        """Returns the global batches, each divided among the replicas."""

    def run(self, iterator: Iterator, count: int) -> np.ndarray:
        """Trains on `count` batches, and returns the gradient norms, [count]."""

    def test(self, *batch: Any) -> None:
        """Updates the metrics with a batch `(x, y, weights)`."""

    def reset_metrics(self) -> None:
        """Resets the metrics."""

    def metrics(self) -> dict[str, Any]:
        """Returns the metrics since they were reset."""


class Devices:
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

    replicas = 1
    is_chief = True
    has_peers = False
    jit_compile = False
    scope: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext

    def steps(self, model: keras.Model, micro_batch_size: int = 0) -> Steps:
        """Returns the steps of a model that was built in `scope` and compiled.

        Args:
            model: The weights of its batches sum to one over all replicas.
            micro_batch_size: How many rows a replica computes at once; 0 for its whole
                batch. The size of this batch must be a multiple of it. A step sums the
                gradients of the micro-batches, so only memory and dropout masks change.
        """

    def any(self, value: bool) -> bool:
        """Returns whether the value is true in any process. All must call this."""

    def is_lost_worker(self, error: Exception) -> bool:
        """Whether an error means that another process is gone."""

    @functools.cached_property
    def is_cpu(self) -> bool:
        """Whether all devices are CPUs."""
        names = keras.distribution.list_devices()
        return all(name.startswith("cpu") for name in names)

    @property
    def steps_per_call(self) -> int:
        """Steps between two reads of metrics, for which accelerators would wait."""
        return 1 if self.is_cpu else 20

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turns lost workers and exhausted memory into ValueError."""
        try:
            yield
        except Exception as error:
            is_lost, reason = self.is_lost_worker(error), str(error).strip()
            # JAX has the status in the message only.
            is_full = isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in reason
            if is_full or isinstance(error, tf.errors.ResourceExhaustedError):
                message = (
                    "Out of memory. Pass a smaller --batch_size; or, to keep the "
                    "update of bert_tf.pretrain, --micro_batch_size or --recompute."
                )
            elif is_lost:
                message = (
                    "Lost the connection to another worker. Rerun the same command on "
                    "all hosts to resume from the last checkpoint."
                )
            else:
                raise
            _clear_frames(error)
            message = f"{message} The device reports: {reason[:500]}"
            raise ValueError(message) from error


def _clear_frames(error: BaseException | None) -> None:
    """Deletes the local variables of the functions that raised an error.

    Among them are thread pools that TensorFlow does not close. If they lived until the
    process exits, Python might print another traceback then.
    """
    while error:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


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
    backend = f"bert_tf.training.{keras.backend.backend()}_devices"
    devices = importlib.import_module(backend).create(strategy)
    is_bfloat16 = precision == "mixed_bfloat16"
    if is_bfloat16 and devices.is_cpu and not has_bfloat16_instructions():
        print(
            "This processor has no instructions for bfloat16, so the training will be "
            "slower than with --precision=float32."
        )
    return devices


# --- Checks ----------------------------------------------------------------------

TF_CONFIG = (
    "the environment variable TF_CONFIG, with the same cluster and another task on "
    'each host: {"cluster": {"worker": ["host0:12345", "host1:12345"]}, '
    '"task": {"type": "worker", "index": 0}}. A task of the type chief is the one that '
    "writes, else the first worker."
)


def read_tf_config() -> tuple[list[str], int]:
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
        if index not in range(len({"chief": chief, "worker": workers}[kind])):
            raise ValueError(f"the cluster has no {kind} of the index {index}")
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"--strategy=multi_worker needs {TF_CONFIG} Received: TF_CONFIG={text} "
            f"({error!r})"
        ) from error
    print("Waiting for all workers of TF_CONFIG, up to an hour.", flush=True)
    return addresses, index + (len(chief) if kind == "worker" else 0)


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


def has_bfloat16_instructions(file: str = "/proc/cpuinfo") -> bool:
    """Whether the processor multiplies bfloat16, or the system does not tell."""
    flags = pathlib.Path(file)
    text = flags.read_text(encoding="utf-8") if flags.exists() else "bf16"
    return bool(re.search(r"avx512_bf16|amx_bf16|\bbf16\b", text))


def create_training_variables(model: keras.Model) -> None:
    """Makes losses sums, and creates the variables of the training, in the scope.

    `Records.dataset` and `batching.batches` make weights that sum to one over the
    global batch. Sums are then its mean on any number of replicas, which a mean of the
    replicas' means is not.
    """
    for loss in keras.tree.flatten(model.loss):
        if isinstance(loss, keras.losses.Loss):  # None if the model has its own step.
            loss.reduction = "sum"
    model.optimizer.build(model.trainable_variables)
    keras_private.build_metrics(model)
