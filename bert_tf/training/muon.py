# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Muon: momentum with orthogonalized updates for the matrices of the encoder.

`keras.optimizers.Muon` (3.15) has the faults of Keras' Adam that `optimizers`
describes. It also orthogonalizes one matrix at a time, in float32. Here matrices of
equal shape share batched matmuls.
"""

from __future__ import annotations

import keras
from keras import ops

from bert_tf.training.optimizers import AdamW

# Coefficients of the quintic Newton-Schulz iteration (Keller Jordan, "Muon", 2024).
_A, _B, _C = 3.4445, -4.7750, 2.0315
_NEWTON_SCHULZ_STEPS = 5
# Scales updates to the RMS of Adam's (arXiv 2502.16982, section 2.2), so that both
# optimizers share the learning rate.
_ADAM_RMS = 0.2


@keras.saving.register_keras_serializable(package="bert_tf")
class Muon(AdamW):
    """Muon for the weight matrices of encoder layers, `AdamW` for all other weights.

    The update of a matrix [m, n] is 0.2 sqrt(max(m, n)) U Vᵀ, where U S Vᵀ is the
    singular value decomposition of the Nesterov momentum. Five Newton-Schulz steps
    approximate it: singular values of the result are within 0.7 and 1.2.

    Args:
        learning_rate: A float or a schedule such as `WarmupDecay`.
        momentum: Decay rate of the momentum of orthogonalized matrices.
        orthogonalization_dtype: Type of the Newton-Schulz products, `"bfloat16"` or
            `"float32"`.
        **kwargs: See `AdamW`.

    Example: `Muon(WarmupDecay(2e-3, warmup_steps=300, total_steps=3_000))`.
    """

    def __init__(
        self,
        learning_rate=1e-3,
        momentum=0.95,
        orthogonalization_dtype="bfloat16",
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

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Batched over matrices, so not in `update_step`, which sees one variable.
        self._directions = {}
        groups: dict[tuple[int, int], list[int]] = {}
        for i, variable in enumerate(trainable_variables):
            if self._is_orthogonalized(variable):
                groups.setdefault(tuple(variable.shape), []).append(i)
        for shape, indices in groups.items():
            matrices = []
            for i in indices:
                momentum = self._new_momentum(trainable_variables[i], grads[i])
                matrices.append(self.momentum * momentum + grads[i])
            updates = self._orthogonalize(ops.stack(matrices))
            updates = updates * (_ADAM_RMS * max(shape) ** 0.5)
            for i, update in zip(indices, ops.unstack(updates, len(indices))):
                index = self._get_variable_index(trainable_variables[i])
                self._directions[index] = update
        super()._backend_update_step(grads, trainable_variables, learning_rate)
        self._directions = {}

    def _new_momentum(self, variable, gradient):
        momentum = self._momentums[self._get_variable_index(variable)]
        return self.momentum * momentum + gradient

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
        index = self._get_variable_index(variable)
        if index not in self._directions:
            super().update_step(gradient, variable, learning_rate)
            return
        rate = ops.cast(learning_rate, variable.dtype)
        # The rate of a non-finite step is 0; its momentum must not change either.
        finite = ops.isfinite(self.gradient_norm)
        momentum = self._momentums[index]
        new_momentum = self._new_momentum(variable, gradient)
        previous = ops.convert_to_tensor(momentum)
        self.assign(momentum, ops.where(finite, new_momentum, previous))
        update = self._directions[index] + self.weight_decay * variable
        self.assign_sub(variable, rate * update)

    def get_config(self):
        names = ("momentum", "orthogonalization_dtype")
        return super().get_config() | {name: getattr(self, name) for name in names}
