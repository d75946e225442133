# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rate schedules for BERT (paper, appendix A.2).

`AdamW` corrects three faults of `keras.optimizers.AdamW` (Keras 3.15, TensorFlow):

- The gradient of an embedding lookup is a `tf.IndexedSlices` with one row per
  occurrence. Keras squares the rows before summing them (adam.py, `update_step`), so
  the update of a token that occurs n times is about sqrt(n) times too large. Here
  gradients are made dense first.
- Keras clips the gradients of each replica before the all-reduce. Here the all-reduce
  comes first, so N replicas take the same step as one device with the whole batch.
- Keras' LossScaleOptimizer also looks at each replica separately, and it does not
  count the steps that it skips, so steps and batches drift apart. Here they count.

`Lamb` is LAMB (arXiv 1904.00962) with the same corrections, for very large batches.
`Muon` has them too, which `keras.optimizers.Muon` lacks. Keras also orthogonalizes one
matrix at a time; here matrices of equal shape share batched matmuls.

The optimizers run on every Keras backend. On TensorFlow, a fused kernel of AdamW saves
passes over memory.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras
from keras import ops

from bert_tf import keras_private
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

# Initial loss scale for float16, and the steps without overflow until it doubles.
_FIRST_LOSS_SCALE = 2.0**15
_GOOD_STEPS = 2000

# Coefficients of the quintic Newton-Schulz iteration (Keller Jordan, "Muon", 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315
_NEWTON_SCHULZ_STEPS = 5
# Scales updates to the RMS of Adam's (arXiv 2502.16982, section 2.2), so that both
# optimizers share the learning rate.
_ADAM_RMS = 0.2


@dataclasses.dataclass
class _Step:
    """Values of a step that all variables share.

    With the decay rates and the learning rate of a step with non-finite gradients, no
    variable changes.
    """

    rate: Any
    betas: list
    corrections: list  # Divisors of the moments.
    updates: dict = dataclasses.field(default_factory=dict)  # Of `Muon`.


@keras.saving.register_keras_serializable(package="bert_tf")
class AdamW(keras_private.OptimizerHooks):
    """Adam with decoupled weight decay, as used for BERT (paper, appendix A.2).

    LayerNorm parameters and biases have no weight decay. Gradients are clipped by
    global norm. A step with non-finite gradients changes no weights and no moments.
    After each step, `gradient_norm` is the norm of its gradients before clipping.

    Args:
        learning_rate: A float or a schedule such as `WarmupDecay`.
        weight_decay: Each step subtracts learning_rate * weight_decay * weight.
        epsilon: Added to the denominator.
        bias_correction: Whether to correct the moments for their start at zero.
            google-research/bert does not. Without it, fine-tuning on small datasets is
            unstable (arXiv 2006.04884).
        global_clipnorm: Maximum global norm of the gradients; None disables clipping.
        dynamic_loss_scale: Whether to scale the loss so that gradients stay within the
            range of float16 (arXiv 1710.03740). Use it with `"mixed_float16"`, in Keras
            with `compile(auto_scale_loss=False)`.
        **kwargs: See `keras.optimizers.AdamW`.

    Raises:
        ValueError: `amsgrad`, `clipnorm` or `clipvalue` is set; or from `build`: a
            weight is not of float32.
    """

    # Attributes that are constructor arguments, besides those of Keras.
    _arguments: tuple[str, ...] = ("bias_correction", "dynamic_loss_scale")

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay=0.01,
        *,
        epsilon=1e-6,
        bias_correction=True,
        global_clipnorm=1.0,
        dynamic_loss_scale=False,
        **kwargs,
    ):
        for name in ("amsgrad", "clipnorm", "clipvalue"):
            if value := kwargs.get(name):
                raise ValueError(f"`{name}` is not supported. Received: {name}={value}")
        kwargs |= {"epsilon": epsilon, "global_clipnorm": global_clipnorm}
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.bias_correction = bias_correction
        self.dynamic_loss_scale = dynamic_loss_scale
        # Not in `build`: Keras calls `scale_loss` first.
        self.gradient_norm = self._scalar("gradient_norm", 0.0)
        if dynamic_loss_scale:
            self.loss_scale = self._scalar("loss_scale", _FIRST_LOSS_SCALE)
            self.good_steps = self._scalar("good_steps", 0.0)

    def build(self, variables):
        for variable in variables:
            if variable.dtype != "float32":  # bfloat16 rounds 0.999 to 1.
                raise ValueError(
                    f"{type(self).__name__} trains weights of float32. Received: "
                    f"{variable.path} of {variable.dtype}. Use a dtype policy such as "
                    "'mixed_bfloat16'."
                )
        super().build(variables)

    def _scalar(self, name, value):
        initializer = keras.initializers.Constant(value)
        return self.add_variable(
            (), initializer, "float32", "only_first_replica", name=name
        )

    def scale_loss(self, loss):
        loss = super().scale_loss(loss)  # By `loss_scale_factor`.
        return loss * self.loss_scale if self.dynamic_loss_scale else loss

    def prepare_step(self, gradients, variables, learning_rate):
        norm, factor = _global_norm(gradients), 1.0
        if self.dynamic_loss_scale:
            factor /= ops.convert_to_tensor(self.loss_scale)
            norm *= factor
            self._adapt_loss_scale(ops.isfinite(norm))
        self.gradient_norm.assign(norm)
        if self.global_clipnorm:
            factor *= ops.minimum(1.0, self.global_clipnorm / norm)
        finite, betas = ops.isfinite(norm), (self.beta_1, self.beta_2)
        corrections = [ops.ones(())] * 2
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, "float32")
            # 1 - beta**step through expm1: float32 keeps only four digits of 1 - 0.999.
            corrections = [
                -ops.expm1(step * math.log(beta)) if beta else ops.ones(())
                for beta in betas
            ]
        rate = ops.where(finite, ops.cast(learning_rate, "float32"), 0.0)
        betas = [ops.where(finite, beta, 1.0) for beta in betas]
        if keras_private.is_tensorflow():  # One pass over memory instead of two.
            factor = ops.where(finite, factor, 0.0)
            gradients = [tf.math.multiply_no_nan(x, factor) for x in gradients]
        else:
            gradients = [ops.where(finite, x * factor, 0.0) for x in gradients]
        return gradients, _Step(rate, betas, corrections)

    def has_weight_decay(self, variable):
        # Biases and LayerNorm parameters are vectors. All other weights are matrices.
        return len(variable.shape) > 1 and super().has_weight_decay(variable)

    def _adapt_loss_scale(self, finite):
        good_steps = ops.where(finite, self.good_steps + 1, 0.0)
        enough = good_steps >= _GOOD_STEPS
        change = ops.where(finite, ops.where(enough, 2.0, 1.0), 0.5)
        self.loss_scale.assign(self.loss_scale * change)
        self.good_steps.assign(ops.where(enough, 0.0, good_steps))

    def update_step(self, gradient, variable, learning_rate):
        """Applies weight decay and Adam's update to one variable."""
        if self.has_weight_decay(variable):
            decay = learning_rate * self.weight_decay
            self.assign_sub(variable, variable * decay)
        correction_1, correction_2 = self.step.corrections
        rate = learning_rate * ops.sqrt(correction_2) / correction_1
        if not keras_private.is_tensorflow():
            momentum, velocity = self._update_moments(gradient, variable)
            step = momentum / (ops.sqrt(velocity) + self.epsilon)
            self.assign_sub(variable, rate * step)
            return
        # The fused kernel takes one pass over memory; elementwise ops would take ten.
        # Zero beta powers disable the kernel's own bias correction.
        momentum, velocity = self.moments(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=momentum.value.handle,
            v=velocity.value.handle,
            beta1_power=0.0,
            beta2_power=0.0,
            lr=rate,
            beta1=self.step.betas[0],
            beta2=self.step.betas[1],
            epsilon=self.epsilon,
            grad=gradient,
        )

    def _update_moments(self, gradient, variable):
        """Updates and returns the moments of one variable."""
        (momentum, velocity), (beta_1, beta_2) = self.moments(variable), self.step.betas
        self.assign(momentum, momentum * beta_1 + gradient * (1 - beta_1))
        self.assign(velocity, velocity * beta_2 + ops.square(gradient) * (1 - beta_2))
        return momentum, velocity

    def get_config(self):
        config = {name: getattr(self, name) for name in self._arguments}
        return super().get_config() | config


@keras.saving.register_keras_serializable(package="bert_tf")
class Lamb(AdamW):
    """LAMB (arXiv 1904.00962, algorithm 2), for batches of thousands of sequences.

    Each weight matrix scales its update by the ratio of the norms of the matrix and of
    the update. LayerNorm parameters and biases are neither scaled nor decayed. See
    `AdamW` for the arguments.
    """

    def __init__(self, learning_rate=1e-3, name="lamb", **kwargs):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        rate, (correction_1, correction_2) = learning_rate, self.step.corrections
        momentum, velocity = self._update_moments(gradient, variable)
        deviation = ops.sqrt(velocity / correction_2)
        step = (momentum / correction_1) / (deviation + self.epsilon)
        if self.has_weight_decay(variable):
            step = step + self.weight_decay * variable
            norm = _global_norm([step])
            ratio = ops.divide_no_nan(_global_norm([variable]), norm)
            # The ratio is 0 if all weights are zero; use 1 then.
            rate = rate * ops.where(ratio > 0, ratio, 1.0)
        self.assign_sub(variable, rate * step)


@keras.saving.register_keras_serializable(package="bert_tf")
class Muon(AdamW):
    """Muon for the weight matrices of encoder layers, `AdamW` for all other weights.

    The update of a matrix [m, n] is 0.2 sqrt(max(m, n)) U Vᵀ, where U S Vᵀ is the
    singular value decomposition of the Nesterov momentum. Five Newton-Schulz steps
    approximate it: singular values of the result are within 0.7 and 1.2.

    Args:
        learning_rate: A float or a schedule such as `WarmupDecay`.
        momentum: Decay rate of the momentum of orthogonalized matrices.
        orthogonalization_dtype: Type of the Newton-Schulz products, `"float32"` or
            `"bfloat16"`, which is faster on hardware with bfloat16 matmuls.
        **kwargs: See `AdamW`.

    Example: `Muon(WarmupDecay(2e-3, warmup_steps=300, total_steps=3_000))`.
    """

    _arguments = (*AdamW._arguments, "momentum", "orthogonalization_dtype")

    def __init__(
        self,
        learning_rate=1e-3,
        momentum=0.95,
        orthogonalization_dtype="float32",
        name="muon",
        **kwargs,
    ):
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.momentum = momentum
        self.orthogonalization_dtype = orthogonalization_dtype

    def _is_orthogonalized(self, variable) -> bool:
        return len(variable.shape) == 2 and "encoder_layer_" in variable.path

    def add_variable_from_reference(self, reference_variable, name=None, **kwargs):
        # Orthogonalized matrices have no second moments.
        if name == "velocity" and self._is_orthogonalized(reference_variable):
            return None
        return super().add_variable_from_reference(reference_variable, name, **kwargs)

    def prepare_step(self, gradients, variables, learning_rate):
        gradients, step = super().prepare_step(gradients, variables, learning_rate)
        # Batched over matrices, so not in `update_step`, which sees one variable.
        groups: dict[tuple[int, int], list[tuple]] = {}
        # The gradients of a non-finite step are 0; its momentum must not change.
        decay = ops.where(ops.isfinite(self.gradient_norm), self.momentum, 1.0)
        for variable, gradient in zip(variables, gradients):
            if self._is_orthogonalized(variable):
                old, _ = self.moments(variable)
                new = decay * old + gradient
                group = groups.setdefault(tuple(variable.shape), [])
                group.append((old.path, new, self.momentum * new + gradient))
        for shape, group in groups.items():
            names, momentums, matrices = zip(*group)
            directions = self._orthogonalize(ops.stack(matrices))
            directions = directions * (_ADAM_RMS * max(shape) ** 0.5)
            directions = ops.unstack(directions, len(group))
            step.updates |= zip(names, zip(momentums, directions))
        return gradients, step

    def _orthogonalize(self, matrices):
        """Replaces the singular values of [k, m, n] matrices by about 1."""
        wide = matrices.shape[-2] <= matrices.shape[-1]
        x = matrices if wide else ops.swapaxes(matrices, -2, -1)
        x = x / (ops.norm(x, axis=(-2, -1), keepdims=True) + 1e-7)
        x = ops.cast(x, self.orthogonalization_dtype)
        for _ in range(_NEWTON_SCHULZ_STEPS):
            gram = ops.matmul(x, ops.swapaxes(x, -2, -1))
            x = _A * x + ops.matmul(_B * gram + _C * ops.matmul(gram, gram), x)
        x = x if wide else ops.swapaxes(x, -2, -1)
        return ops.cast(x, matrices.dtype)

    def update_step(self, gradient, variable, learning_rate):
        momentum, velocity = self.moments(variable)
        if velocity is not None:
            super().update_step(gradient, variable, learning_rate)
            return
        value, direction = self.step.updates[momentum.path]
        self.assign(momentum, value)
        decay = self.weight_decay * self.has_weight_decay(variable)
        self.assign_sub(variable, learning_rate * (direction + decay * variable))


def _global_norm(tensors):
    """Returns the Euclidean norm of all values, [] float32."""
    if keras_private.is_tensorflow():
        return tf.linalg.global_norm(tensors)  # One pass over memory instead of three.
    return ops.sqrt(sum(ops.sum(ops.square(tensor)) for tensor in tensors))


# --- Learning rate schedules -----------------------------------------------------

# Fraction of the peak rate, by the remaining fraction of the decay phase.
DECAYS = {
    "linear": lambda remaining: remaining,
    "cosine": lambda remaining: (1 - ops.cos(math.pi * remaining)) / 2,
    "polynomial": ops.sqrt,  # Power 0.5, as in LAMB's recipe for BERT.
    "constant": ops.ones_like,
}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True)
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up from 0 to `peak`, then decay until `total_steps`.

    Args:
        peak: The highest learning rate.
        warmup_steps: Number of steps of the warm-up.
        total_steps: Number of steps of the schedule.
        decay: `"linear"` as in the paper, `"cosine"`, `"polynomial"` (power 0.5) or
            `"constant"`. All but the last end at 0.
        first_step: Step of the optimizer at which the schedule starts.

    Raises:
        ValueError: `warmup_steps` is not in [0, `total_steps`), or `decay` is unknown.

    Example: `AdamW(WarmupDecay(1e-4, warmup_steps=10_000, total_steps=1_000_000))`.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    decay: str = "linear"
    first_step: int = 0

    def __post_init__(self):
        if not 0 <= self.warmup_steps < self.total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below the number of steps. "
                f"Received: warmup_steps={self.warmup_steps}, steps={self.total_steps}."
                f" Set it, for example to {self.total_steps // 10}."
            )
        if self.decay not in DECAYS:
            raise ValueError(
                f"`decay` must be one of {', '.join(DECAYS)}. "
                f"Received: decay={self.decay!r}"
            )

    def __call__(self, step):
        # The first update has step 0. Adding 1 gives it a rate above 0.
        step = ops.cast(step - self.first_step, "float32") + 1.0
        warmup = step / max(self.warmup_steps, 1)
        end = self.total_steps + 1
        remaining = (end - step) / (end - self.warmup_steps)
        decay = DECAYS[self.decay](ops.clip(remaining, 0.0, 1.0))
        return self.peak * ops.minimum(warmup, decay)

    def get_config(self):
        return dataclasses.asdict(self)
