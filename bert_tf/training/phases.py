# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The phases of a pre-training."""

from __future__ import annotations

import dataclasses

from bert_tf import storage
from bert_tf.data import Records
from bert_tf.training.optimizers import WarmupDecay
from bert_tf.training.pretrain_config import PretrainConfig


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps with the same records, batch size and masking rate."""

    records: Records
    rows_read: int  # From the same records, by earlier phases.
    first_step: int
    schedule: WarmupDecay
    steps: int
    batch_size: int
    mask_selection_rate: float

    @property
    def end(self) -> int:
        """The number of steps of the training when the phase is finished."""
        return self.first_step + self.steps

    @property
    def epochs(self) -> float:
        """How often the training rows are read until the end of the phase."""
        rows = self.rows_read + self.steps * self.batch_size
        return rows / self.records.manifest["train_rows"]

    @property
    def tokens_per_step(self) -> float:
        """Tokens without padding."""
        manifest = self.records.manifest
        slots = self.batch_size * manifest["max_sequence_length"]
        return slots * (1 - manifest["padding_share"])


def open_phases(options: PretrainConfig) -> list[Phase]:
    """Opens the records of a training and returns its phases.

    Raises:
        ValueError: The number of values of an option is not the number of phases,
            warm-up and steps contradict each other, or records are incomplete.
    """
    names = ("learning_rate", "warmup_steps", "steps", "batch_size")
    values = map(options.per_phase, (*names, "mask_selection_rate"))
    total_steps = sum(options.per_phase("steps"))
    rates = options.learning_rate, options.warmup_steps
    has_restarts = any(isinstance(value, tuple) for value in rates)
    phases: list[Phase] = []
    paths = [*map(storage.real_path, options.records.split(","))]
    named = dict(zip(paths, options.records.split(",")))
    opened = {path: Records(name) for path, name in named.items()}
    for path, rate, warmup_steps, steps, *rows in zip(paths, *values):
        records = opened[path]
        read = sum(p.steps * p.batch_size for p in phases if p.records is records)
        first_step = phases[-1].end if phases else 0
        start, length = (first_step, steps) if has_restarts else (0, total_steps)
        if warmup_steps is None:
            warmup_steps = length // 100
        schedule = WarmupDecay(rate, warmup_steps, length, options.decay, start)
        phases.append(Phase(records, read, first_step, schedule, steps, *rows))
    return phases
