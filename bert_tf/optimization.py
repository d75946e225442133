# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The optimizer and learning-rate schedules of BERT (paper, appendix A.2).

`AdamW` is `keras.optimizers.AdamW` with what BERT needs and stock Keras 3.15 gets
wrong on TensorFlow:

- Gradients of embedding look-ups arrive as `tf.IndexedSlices` with one row per
  occurrence. Keras squares the rows before it sums them (adam.py `update_step`), so
  a token that occurs n times gets about sqrt(n) times the step it should. Here they
  become dense first.
- Keras clips each replica's gradients before they are summed over the replicas
  (base_optimizer.py `_backend_apply_gradients`). Here they are summed first: N
  replicas take the same step as one with the whole batch.
"""

from __future__ import annotations

import math

import keras
import tensorflow as tf
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """From 0 up to `peak` in `warmup_steps`, then linearly to 0 at `total_steps`.

    Raises:
        ValueError: `warmup_steps` is negative or not below `total_steps`.
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int):
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. Received: "
                f"warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        # The first update is step 0; counting from 1 keeps it from being wasted.
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(self.warmup_steps, 1)
        falling = (self.total_steps + 1 - step) / (
            self.total_steps + 1 - self.warmup_steps
        )
        return self.peak * ops.clip(ops.minimum(rising, falling), 0.0, 1.0)

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(keras.optimizers.AdamW):
    """Adam with decoupled weight decay as BERT uses it (paper, appendix A.2).

    Weight decay spares LayerNorm parameters and biases; gradients are clipped by
    their global norm.

    Args:
        learning_rate: A float or a schedule such as `WarmupLinearDecay`.
        weight_decay: Factor; the decay of a step is learning rate * factor * weight.
        bias_correction: Whether the moments are corrected for their start at zero.
            google-research/bert does not; without it fine-tuning on small data is
            unstable (arXiv 2006.04884).
        global_clipnorm: Limit of the global norm of the gradients; None for no limit.
    """

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        bias_correction=True,
        global_clipnorm=1.0,
        name="adamw",
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            name=name,
            **kwargs,
        )
        self.bias_correction = bias_correction

    def _use_weight_decay(self, variable):
        # LayerNorm's gamma and beta and every bias are vectors; all else are matrices.
        return len(variable.shape) > 1

    def _backend_apply_gradients(self, grads, trainable_variables):
        # A dense gradient has one row per token id, whatever was looked up how often.
        grads = [tf.convert_to_tensor(gradient) for gradient in grads]
        context = tf.distribute.get_replica_context()
        grads = context.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        super()._backend_apply_gradients(grads, trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # Done in _backend_apply_gradients, before the clipping.

    def update_step(self, gradient, variable, learning_rate):
        """Adam's update of one variable; the base class has decayed it already."""
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        learning_rate = tf.cast(learning_rate, dtype)
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, dtype)
            # 1 - beta**step by expm1: 1 - 0.999 has but four digits in float32.
            correction_1 = -tf.math.expm1(step * math.log(self.beta_1))
            correction_2 = -tf.math.expm1(step * math.log(self.beta_2))
            learning_rate *= tf.sqrt(correction_2) / correction_1
        # One pass over the memory where elementwise ops would take ten. The kernel's
        # own correction is off: powers of zero.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.zeros((), dtype),
            beta2_power=tf.zeros((), dtype),
            lr=learning_rate,
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )

    def get_config(self):
        config = super().get_config()
        return config | {"bias_correction": self.bias_correction}
