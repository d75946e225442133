# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model class of `bert_tf.pretrain`: micro-batches, XLA per replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertPretrainer

tf = lazy_import("tensorflow")


@keras.saving.register_keras_serializable(package="bert_tf")
class DistributedPretrainer(BertPretrainer):
    """`BertPretrainer` whose `fit` also does what Keras 3.15 cannot.

    - Micro-batches: Keras' `gradient_accumulation_steps` fails under strategies, and
      learning rate schedules count its micro-batches as steps (base_optimizer.py).
    - XLA under strategies: Keras' `jit_compile=True` compiles the whole step, which
      fails with two replicas on a machine. This class compiles the forward and backward
      pass of each replica.
    """

    def compile(
        self, optimizer, *, micro_batch_size: int = 0, xla: bool = False, **kwargs
    ):
        """See `BertModel.compile`; call it in the scope of the strategy.

        Args:
            optimizer: Keras optimizer.
            micro_batch_size: Rows that a replica computes at once; divides the rows of
                its batch. The step sums the gradients of the micro-batches. Only
                memory and dropout masks change. 0: the whole batch.
            xla: Whether to compile with XLA.
            **kwargs: Arguments of `keras.Model.compile` except `jit_compile`.
        """
        self._micro_batch_size = micro_batch_size
        self._gradients = None
        if micro_batch_size or (xla and self._num_replicas > 1):
            self._gradients = tf.function(self._compute_gradients, jit_compile=True)
            self._gradients = self._gradients if xla else self._compute_gradients
            xla = False
        super().compile(optimizer, **{**kwargs, "jit_compile": xla})

    @property
    def _num_replicas(self) -> int:
        return self.distribute_strategy.num_replicas_in_sync

    def train_step(self, data):
        if not self._gradients:
            return super().train_step(data)
        x, y, weights = data
        rows = tf.nest.flatten(x)[0].shape[0]
        count = rows // self._micro_batch_size if self._micro_batch_size else 1
        if count == 1:
            gradients = self._gradients(x, y, weights)
        else:
            # Weights sum to one over the batch. Scaled by `count`, they do so in the
            # mean over micro-batches.
            weights = tf.nest.map_structure(lambda weight: weight * count, weights)
            total = _sum_gradients(
                self._gradients, (x, y, weights), count, self.trainable_variables
            )
            gradients = [gradient / count for gradient in total]
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return self.get_metrics_result()

    def _compute_gradients(self, x, y, weights) -> list[tf.Tensor]:
        """Forward and backward pass; updates the metrics."""
        with tf.GradientTape() as tape:
            outputs = self(x, training=True)
            loss = self.compute_loss(x, y, outputs, weights, training=True)
            scaled = self.optimizer.scale_loss(loss)
        rows = tf.shape(tf.nest.flatten(x)[0])[0]
        # The tracker averages over replicas and micro-batches; the loss is a sum.
        self._loss_tracker.update_state(loss * self._num_replicas, sample_weight=rows)
        self.compute_metrics(x, y, outputs, weights)
        variables = [variable.value for variable in self.trainable_variables]
        return [tf.convert_to_tensor(g) for g in tape.gradient(scaled, variables)]


def _sum_gradients(
    gradients_of: Callable[..., list[tf.Tensor]],
    batch: Any,
    count: int,
    variables: Sequence[keras.Variable],
) -> list[tf.Tensor]:
    """Returns the sum of the gradients of `count` equal parts of a batch."""

    def body(part, *sums):
        def rows(tensor):
            size = tensor.shape[0] // count
            # Not tensor[a:b], whose size XLA does not recognize as constant.
            start = tf.one_hot(0, tensor.shape.rank, part * size)
            return tf.slice(tensor, start, [size, *tensor.shape[1:]])

        gradients = gradients_of(*tf.nest.map_structure(rows, batch))
        return part + 1, *(a + b for a, b in zip(sums, gradients, strict=True))

    zeros = [tf.zeros(variable.shape, variable.dtype) for variable in variables]
    # One micro-batch at a time saves the memory.
    _, *sums = tf.while_loop(
        lambda part, *sums: part < count, body, (0, *zeros), parallel_iterations=1
    )
    return sums
