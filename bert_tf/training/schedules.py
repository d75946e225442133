# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learning rate schedules for BERT (paper, appendix A.2)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import keras
from keras import ops

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
        total_steps: Number of steps of the whole training.
        decay: `"linear"` as in the paper, `"cosine"`, `"polynomial"` (power 0.5) or
            `"constant"`. All but the last end at 0.

    Raises:
        ValueError: `warmup_steps` is not in [0, `total_steps`), or `decay` is unknown.

    Example: `AdamW(WarmupDecay(1e-4, warmup_steps=10_000, total_steps=1_000_000))`.
    """

    peak: float
    warmup_steps: int
    total_steps: int
    decay: str = "linear"

    def __post_init__(self):
        if not 0 <= self.warmup_steps < self.total_steps:
            raise ValueError(
                "`warmup_steps` must be at least 0 and below `total_steps`. Received: "
                f"warmup_steps={self.warmup_steps}, total_steps={self.total_steps}"
            )
        if self.decay not in DECAYS:
            raise ValueError(
                f"`decay` must be one of {', '.join(DECAYS)}. "
                f"Received: decay={self.decay!r}"
            )

    def __call__(self, step):
        # The first update has step 0. Adding 1 gives it a rate above 0.
        step = ops.cast(step, "float32") + 1.0
        warmup = step / max(self.warmup_steps, 1)
        remaining = (self.total_steps + 1 - step) / (
            self.total_steps + 1 - self.warmup_steps
        )
        decay = DECAYS[self.decay](ops.clip(remaining, 0.0, 1.0))
        return self.peak * ops.minimum(warmup, decay)

    def get_config(self):
        return dataclasses.asdict(self)


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True)
class SequentialSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Runs several schedules one after the other.

    Args:
        schedules: The schedules. Each starts at its own step 0.
        steps: The number of steps of each.
    """

    schedules: Sequence[keras.optimizers.schedules.LearningRateSchedule]
    steps: Sequence[int]

    def __call__(self, step):
        rate, start = self.schedules[0](step), 0
        for schedule, length in zip(self.schedules[1:], self.steps):
            start += length
            own_step = ops.maximum(step - start, 0)
            rate = ops.where(step < start, rate, schedule(own_step))
        return rate

    def get_config(self):
        return {"schedules": list(self.schedules), "steps": list(self.steps)}

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls([deserialize(s) for s in config["schedules"]], config["steps"])
