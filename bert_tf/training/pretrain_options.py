# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a pre-training is asked to be: its options and its phases."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf import cli, data
from bert_tf.lazy import lazy_import

keras = lazy_import("keras")
optimization = lazy_import("bert_tf.training.optimizers")

if TYPE_CHECKING:
    from bert_tf.text.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(cli.Options):
    """Options of `python -m bert_tf.pretrain`."""

    records: str = cli.option(
        help="Folder that bert_tf.corpus wrote; several, separated by commas, are "
        "phases of the training, one after the other.",
        resumable=True,
    )
    output: str = cli.option(
        help="Model directory to write or to continue.", resumable=True
    )
    size: str = cli.option(
        "",
        help="Architecture: tiny, mini, small, medium, base, large, layers/hidden size/"
        "heads (3/768/12), or the path of a bert_config.json. Without it that of "
        "--init_from, else base.",
        common=True,
    )
    dropout: float = cli.option(
        -1.0,
        help="Dropout everywhere in the encoder; below 0: what --size has, 0.1. Little "
        "training is better off with 0.",
        maximum=0.9,
    )
    init_from: str = cli.option(
        "",
        help="Model directory, or a checkpoint of Google, Hugging Face or KerasHub, "
        "whose weights to start from; the steps begin at 0.",
        common=True,
    )
    strategy: str = cli.option(
        "default",
        help="Where to train: default (first GPU or CPU), mirrored (all GPUs), "
        "multi_worker (those of all hosts in TF_CONFIG), tpu.",
        choices=("default", "mirrored", "multi_worker", "tpu"),
        common=True,
        resumable=True,
    )
    precision: str = cli.option(
        "float32",
        help="Arithmetic of the layers; weights stay float32.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        common=True,
    )
    xla: bool = cli.option(
        False,
        help="Compile the training step with XLA: for GPUs, slower on CPUs.",
        resumable=True,
    )
    batch_size: int | tuple[int, ...] = cli.option(
        256,
        help="Rows in a step, all replicas together; one number, or one for each of "
        "--records.",
        minimum=1,
        per_phase=True,
        common=True,
    )
    micro_batch_size: int = cli.option(
        0,
        help="Rows that a replica computes at once; it sums their gradients over its "
        "part of the batch. 0: all of them; -1: as many as fit into memory, by "
        "estimate.",
        minimum=-1,
        resumable=True,
    )
    recompute: bool = cli.option(
        False,
        help="Keep the input of each layer only and compute the rest again when it is "
        "needed: less memory, a third more time.",
        resumable=True,
    )
    steps: int | tuple[int, ...] = cli.option(
        1_000_000,
        help="Steps to train; where --records are several, a number for each.",
        minimum=1,
        per_phase=True,
        common=True,
    )
    warmup_steps: int | tuple[int, ...] = cli.option(
        10_000,
        help="Steps in which the learning rate rises; a number for each rate.",
        minimum=0,
        per_phase=True,
        common=True,
    )
    learning_rate: float | tuple[float, ...] = cli.option(
        1e-4,
        help="Peak of the learning rate; one for the whole training, or one for each "
        "of --records, each with a rise and a fall of its own.",
        minimum=0,
        per_phase=True,
        common=True,
    )
    decay: str = cli.option(
        "linear",
        help="How the learning rate falls after its peak.",
        choices=("linear", "cosine", "polynomial", "constant"),
    )
    optimizer: str = cli.option(
        "adamw",
        help="adamw as in the paper, or lamb for batches of many thousand rows.",
        choices=("adamw", "lamb"),
    )
    bias_correction: bool = cli.option(
        True, help="Correct Adam's moments; google-research/bert does not."
    )
    mask_selection_rate: float = cli.option(
        0.15, help="Share of the tokens to predict.", minimum=0, maximum=1
    )
    mask_token_rate: float = cli.option(
        0.8, help="Share of those shown as [MASK].", minimum=0, maximum=1
    )
    random_token_rate: float = cli.option(
        0.1, help="Share of those shown as a random token.", minimum=0, maximum=1
    )
    whole_word_masking: bool = cli.option(
        False, help="Mask all pieces of a word together."
    )
    next_sentence: bool = cli.option(True, help="Train next sentence prediction, too.")
    validate_every: int = cli.option(
        1000,
        help="Steps from one evaluation on the held-out documents, and checkpoint, to "
        "the next.",
        minimum=1,
        common=True,
        resumable=True,
    )
    keep_all: bool = cli.option(
        False,
        help="Keep the model of each evaluation, a model directory in steps/ of "
        "--output.",
    )
    loss_band: float = cli.option(
        1.0,
        help="Halt when the mean loss of 100 steps is this much above the lowest one "
        "before; 0: never.",
        minimum=0,
        resumable=True,
    )
    compare: str = cli.option(
        "",
        help="Other runs to draw beside this one in curve.png: model directories or "
        "history.csv files, separated by commas.",
        resumable=True,
    )
    seed: int = cli.option(
        0, help="Of weights, dropout, shuffling and masks.", minimum=0
    )

    def phases(self) -> list[Phase]:
        """Returns the parts of the training.

        Raises:
            ValueError: An option has more or fewer numbers than there are parts.
        """
        records = self.records.split(",")
        if len(records) > 1 and not isinstance(self.steps, tuple):
            raise ValueError(
                f"--steps needs a number for each of the {len(records)} --records. "
                f"Received: steps={self.steps}"
            )
        steps = self._for_each("steps", len(records))
        batch_sizes = self._for_each("batch_size", len(records))
        first_steps = itertools.accumulate(steps, initial=0)
        return [
            Phase(*fields) for fields in zip(records, first_steps, steps, batch_sizes)
        ]

    def _for_each(self, name: str, count: int) -> tuple:
        value = getattr(self, name)
        values = value if isinstance(value, tuple) else (value,) * count
        if len(values) != count:
            raise ValueError(
                f"--{name} must have one number or one for each of the {count} "
                f"--records. Received: {name}={','.join(map(str, values))}"
            )
        return values

    def schedule(self) -> keras.optimizers.schedules.LearningRateSchedule:
        """Returns the learning rate of each step of the training.

        Raises:
            ValueError: Warm-up and steps contradict each other, or as in `phases`.
        """
        steps = [phase.steps for phase in self.phases()]
        if isinstance(self.learning_rate, tuple):
            rates = self._for_each("learning_rate", len(steps))
            warmups = self._for_each("warmup_steps", len(steps))
            parts = zip(rates, warmups, steps, strict=True)
            return optimization.SequentialSchedule(
                [optimization.WarmupDecay(*part, self.decay) for part in parts], steps
            )
        if isinstance(self.warmup_steps, tuple):
            raise ValueError(
                "--warmup_steps has several numbers and --learning_rate one: a rise is "
                f"up to a rate. Received: warmup_steps={self.warmup_steps}"
            )
        return optimization.WarmupDecay(
            self.learning_rate, self.warmup_steps, sum(steps), self.decay
        )


@dataclasses.dataclass(frozen=True)
class Phase:
    """Steps that are alike: records of one length, batches of one size."""

    records: str
    first_step: int
    steps: int
    batch_size: int

    @property
    def end(self) -> int:
        """The steps of the training that are done when the phase is."""
        return self.first_step + self.steps

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What `bert_tf.corpus` says of the records."""
        return self._read[0]

    @property
    def vocabulary(self) -> Vocabulary:
        """That of the records."""
        return self._read[1]

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return self.manifest["max_sequence_length"]

    @functools.cached_property
    def _read(self) -> tuple[dict[str, Any], Vocabulary]:
        return data.read_manifest(self.records)
