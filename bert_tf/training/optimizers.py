# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The optimizers and learning-rate schedules of BERT (paper, appendix A.2).

`AdamW` is `keras.optimizers.AdamW` with what BERT needs and stock Keras 3.15 gets
wrong on TensorFlow:

- Gradients of embedding look-ups arrive as `tf.IndexedSlices` with one row per
  occurrence. Keras squares the rows before it sums them (adam.py `update_step`), so
  a token that occurs n times gets about sqrt(n) times the step it should. Here they
  become dense first.
- Keras clips each replica's gradients before they are summed over the replicas
  (base_optimizer.py `_backend_apply_gradients`). Here they are summed first: N
  replicas take the same step as one with the whole batch.
- Keras' LossScaleOptimizer looks at each replica's gradients too, and a step that it
  skips is not counted, so that steps and batches drift apart. Here it is counted.

`Lamb` is LAMB (arXiv 1904.00962) with the same mends, for very large batches.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf
from keras import ops

# What is left of the peak, by the share of the falling part that lies ahead.
DECAYS = {
    "linear": lambda ahead: ahead,
    "cosine": lambda ahead: (1 - ops.cos(math.pi * ahead)) / 2,
    "polynomial": ops.sqrt,  # The power of LAMB's recipe for BERT.
    "constant": ops.ones_like,
}

# Of a loss in float16: its first factor, and the steps without overflow that double it.
_FIRST_LOSS_SCALE = 2.0**15
_GOOD_STEPS = 2000


@keras.saving.register_keras_serializable(package="bert_tf")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """From 0 up to `peak` in `warmup_steps`, then down until `total_steps`.

    Args:
        peak: The highest rate.
        warmup_steps: Steps of the rise, which is linear.
        total_steps: Steps of the whole training.
        decay: Form of the fall: `"linear"` as in the paper, `"cosine"`,
            `"polynomial"` (the square root of the share of the steps that lies
            ahead), or `"constant"` for none. The others end at 0.

    Raises:
        ValueError: `warmup_steps` is negative or not below `total_steps`, or `decay`
            is none of these.
    """

    def __init__(
        self, peak: float, warmup_steps: int, total_steps: int, decay: str = "linear"
    ):
        if not 0 <= warmup_steps < total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. Received: "
                f"warmup_steps={warmup_steps}, total_steps={total_steps}"
            )
        if decay not in DECAYS:
            raise ValueError(
                f"`decay` must be one of {', '.join(DECAYS)}. Received: decay={decay!r}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.decay = decay

    def __call__(self, step):
        # The first update is step 0; counting from 1 keeps it from being wasted.
        step = ops.cast(step, "float32") + 1.0
        rising = step / max(self.warmup_steps, 1)
        ahead = (self.total_steps + 1 - step) / (
            self.total_steps + 1 - self.warmup_steps
        )
        falling = DECAYS[self.decay](ops.clip(ahead, 0.0, 1.0))
        return self.peak * ops.minimum(rising, falling)

    def __repr__(self):
        arguments = (f"{name}={value!r}" for name, value in self.get_config().items())
        return f"{type(self).__name__}({', '.join(arguments)})"

    def get_config(self):
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "decay": self.decay,
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class SequentialSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Several schedules, one after the other.

    Args:
        schedules: Each begins with its step 0 where the one before it ends.
        steps: Length of each.
    """

    def __init__(
        self,
        schedules: Sequence[keras.optimizers.schedules.LearningRateSchedule],
        steps: Sequence[int],
    ):
        self.schedules = list(schedules)
        self.steps = list(steps)

    def __call__(self, step):
        rate, start = self.schedules[0](step), 0
        for schedule, length in zip(self.schedules[1:], self.steps):
            start += length
            # A schedule asked for a time before its own may say anything finite.
            own = ops.maximum(step - start, 0)
            rate = ops.where(step < start, rate, schedule(own))
        return rate

    def __repr__(self):
        return f"SequentialSchedule({self.schedules!r}, {self.steps!r})"

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        schedules = [serialize(schedule) for schedule in self.schedules]
        return {"schedules": schedules, "steps": self.steps}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls([deserialize(s) for s in config["schedules"]], config["steps"])


class _Rates(NamedTuple):
    """What the updates of all variables in a step have in common, scalars float32.

    Attributes:
        learning_rate: 0 where the gradients are not finite.
        beta_1: Decay of the first moment; 1 where the gradients are not finite.
        beta_2: That of the second moment.
        correction_1: What the first moment is to be divided by; 1 for no correction.
        correction_2: The same for the second moment.
    """

    learning_rate: tf.Tensor
    beta_1: tf.Tensor
    beta_2: tf.Tensor
    correction_1: tf.Tensor
    correction_2: tf.Tensor


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(keras.optimizers.AdamW):
    """Adam with decoupled weight decay as BERT uses it (paper, appendix A.2).

    Weight decay spares LayerNorm parameters and biases; gradients are clipped by
    their global norm. A step whose gradients are not finite changes no weight and no
    moment. After a step `gradient_norm` is the norm of its gradients before clipping.

    Args:
        learning_rate: A float or a schedule such as `WarmupDecay`.
        weight_decay: Factor; the decay of a step is learning rate * factor * weight.
        bias_correction: Whether the moments are corrected for their start at zero.
            google-research/bert does not; without it fine-tuning on small data is
            unstable (arXiv 2006.04884).
        global_clipnorm: Limit of the global norm of the gradients; None for no limit.
        dynamic_loss_scale: Whether to multiply the loss by a factor that keeps
            gradients within float16 (arXiv 1710.03740), for `"mixed_float16"`.
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
        dynamic_loss_scale=False,
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
        self.dynamic_loss_scale = dynamic_loss_scale

    def build(self, variables):
        if not self.built:
            self.gradient_norm = self._scalar("gradient_norm", 0.0)
            if self.dynamic_loss_scale:
                self.loss_scale = self._scalar("loss_scale", _FIRST_LOSS_SCALE)
                self.good_steps = self._scalar("good_steps", 0.0)
        super().build(variables)

    def _scalar(self, name, value):
        initializer = keras.initializers.Constant(value)
        return self.add_variable(
            (), initializer, "float32", "only_first_replica", name=name
        )

    def scale_loss(self, loss):
        return loss * self.loss_scale if self.dynamic_loss_scale else loss

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

    def _clip_gradients(self, grads):
        norm, factor = tf.linalg.global_norm(grads), 1.0
        if self.dynamic_loss_scale:
            factor /= tf.convert_to_tensor(self.loss_scale)
            norm *= factor
            self._adapt_loss_scale(tf.math.is_finite(norm))
        self.gradient_norm.assign(norm)
        if self.global_clipnorm:
            factor *= tf.minimum(1.0, self.global_clipnorm / norm)
        # No product with 0 is NaN, not even that with infinity.
        factor = tf.where(tf.math.is_finite(norm), factor, 0.0)
        return [
            tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))
            for gradient in grads
        ]

    def _adapt_loss_scale(self, finite):
        good_steps = tf.where(finite, self.good_steps + 1, 0.0)
        enough = good_steps >= _GOOD_STEPS
        change = tf.where(finite, tf.where(enough, 2.0, 1.0), 0.5)
        self.loss_scale.assign(self.loss_scale * change)
        self.good_steps.assign(tf.where(enough, 0.0, good_steps))

    def _apply_weight_decay(self, variables):
        pass  # Part of `update_step`, which knows whether there is a step.

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Keras hands to every variable's `update_step` what it gets here as the rate.
        # That of the step is computed once, as it is the same for hundreds of them.
        rates = self._rates(learning_rate)
        super()._backend_update_step(grads, trainable_variables, rates)

    def _rates(self, learning_rate) -> _Rates:
        """Returns what all variables share; without a step nothing changes."""
        finite = tf.math.is_finite(tf.convert_to_tensor(self.gradient_norm))
        rates = (
            tf.where(finite, tf.cast(rate, "float32"), idle)
            for rate, idle in (
                (learning_rate, 0.0),
                (self.beta_1, 1.0),
                (self.beta_2, 1.0),
            )
        )
        corrections = (tf.ones(()), tf.ones(()))
        if self.bias_correction:
            step = tf.cast(self.iterations + 1, "float32")
            # 1 - beta**step by expm1: 1 - 0.999 has but four digits in float32.
            corrections = (
                -tf.math.expm1(step * math.log(beta))
                for beta in (self.beta_1, self.beta_2)
            )
        return _Rates(*rates, *corrections)

    def update_step(self, gradient, variable, learning_rate):
        """Weight decay and Adam's update of one variable."""
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        rates = _Rates(*(tf.cast(rate, dtype) for rate in learning_rate))
        if self._use_weight_decay(variable):
            decay = rates.learning_rate * self.weight_decay
            variable.assign_sub(variable * decay)
        # One pass over the memory where elementwise ops would take ten. The kernel's
        # own correction is off: powers of zero.
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.zeros((), dtype),
            beta2_power=tf.zeros((), dtype),
            lr=rates.learning_rate * tf.sqrt(rates.correction_2) / rates.correction_1,
            beta1=rates.beta_1,
            beta2=rates.beta_2,
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )

    def __repr__(self):
        config, schedule = self.get_config(), self._learning_rate
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            config["learning_rate"] = schedule
        names = inspect.signature(AdamW).parameters.keys() - {"kwargs", "name"}
        arguments = (f"{name}={config[name]!r}" for name in config if name in names)
        return f"{type(self).__name__}({', '.join(arguments)})"

    def get_config(self):
        own = ("bias_correction", "dynamic_loss_scale")
        return super().get_config() | {name: getattr(self, name) for name in own}


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamW):
    """LAMB (arXiv 1904.00962, algorithm 2), for batches of many thousand sequences.

    The step of each weight matrix is scaled by the norm of the matrix over that of the
    step; LayerNorm parameters and biases take the step as it is, without decay.
    Arguments as for `AdamW`.
    """

    def __init__(self, learning_rate=1e-3, name="lamb", **kwargs):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        dtype = variable.dtype
        learning_rate, beta_1, beta_2, correction_1, correction_2 = (
            tf.cast(rate, dtype) for rate in learning_rate
        )
        gradient = tf.cast(gradient, dtype)
        momentum = self._momentums[index].value
        velocity = self._velocities[index].value
        momentum.assign(momentum * beta_1 + gradient * (1 - beta_1))
        velocity.assign(velocity * beta_2 + tf.square(gradient) * (1 - beta_2))
        step = (momentum / correction_1) / (
            tf.sqrt(velocity / correction_2) + self.epsilon
        )
        if self._use_weight_decay(variable):
            step += self.weight_decay * variable
            ratio = tf.math.divide_no_nan(tf.norm(variable), tf.norm(step))
            # Weights that are all zero have no norm to go by.
            learning_rate *= tf.where(ratio > 0, ratio, 1.0)
        variable.assign_sub(learning_rate * step)
