# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model class of `bert_tf.pretrain` on the JAX backend of Keras."""

from __future__ import annotations

from typing import Any

import keras

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer

jax = lazy_import("jax")
tf = lazy_import("tensorflow")


@keras.saving.register_keras_serializable(package="bert_tf")
class JaxPretrainer(BertPretrainer):
    """`BertPretrainer` with micro-batches and the gradient norm in the logs of `fit`.

    XLA compiles the step for all devices of `keras.distribution` together: gradients
    are those of the global batch, and the optimizer clips them after the all-reduce.
    """

    def compile(
        self, optimizer, *, micro_batch_size: int = 0, xla: bool = True, **kwargs
    ):
        """See `DistributedPretrainer.compile`; `xla` has no effect, XLA always runs."""
        self._micro_batch_size = micro_batch_size
        super().compile(optimizer, **{**kwargs, "jit_compile": True})

    def train_step(self, state, data):
        rows = tf.nest.flatten(data)[0].shape[0] // self._num_replicas
        count = rows // self._micro_batch_size if self._micro_batch_size else 1
        if count > 1:
            logs, state = self._accumulate(state, data, count)
        else:
            logs, state = super().train_step(state, data)
        names = [variable.name for variable in self.optimizer.variables]
        return logs | {"gradient_norm": state[2][names.index("gradient_norm")]}, state

    @property
    def _num_replicas(self) -> int:
        distribution = keras.distribution.distribution()
        return distribution.num_model_replicas if distribution else 1

    def _accumulate(self, state: tuple, data: Any, count: int) -> tuple[dict, tuple]:
        """`train_step` with the mean gradient over `count` parts of the batch."""
        weights, _, optimizer_variables, _ = state
        gradients_of = jax.value_and_grad(self.compute_loss_and_updates, has_aux=True)

        def split(tensor):  # Every replica takes part in every micro-batch.
            replicas, rest = self._num_replicas, tensor.shape[1:]
            parts = tensor.reshape(replicas, count, self._micro_batch_size, *rest)
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
            logs, metrics = self._update_metrics_variables(
                metrics, loss, x, y, outputs, sample_weight
            )
            sums = [total + gradient for total, gradient in zip(sums, gradients)]
            return (sums, others, metrics), logs

        zeros = [jax.numpy.zeros_like(weight) for weight in weights]
        parts = tf.nest.map_structure(split, data)
        carry, logs = jax.lax.scan(add, (zeros, state[1], state[3]), parts)
        sums, others, metrics = carry
        weights, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, [total / count for total in sums], weights
        )
        logs = {name: values[-1] for name, values in logs.items()}
        return logs, (weights, others, optimizer_variables, metrics)
