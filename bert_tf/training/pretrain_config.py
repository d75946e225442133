# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of pre-training, and the phases that they define."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from bert_tf import cli, storage
from bert_tf.data import Records
from bert_tf.lazy import lazy_import

optimizers = lazy_import("bert_tf.training.optimizers")  # For `--help`.


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(cli.Options):
    """Options of `python -m bert_tf.pretrain`."""

    RECIPES: ClassVar[dict[str, dict[str, object]]] = {
        "paper": {},
        "short": {
            "optimizer": "muon",
            "learning_rate": 2e-3,
            "warmup_steps": 100,
            "batch_size": 32,
            "mask_selection_rate": 0.3,
            "dropout": 0.0,
            "initialization": "corpus",
        },
    }

    records: str = cli.option(
        help="Folder written by bert_tf.corpus. Several comma-separated folders are "
        "consecutive phases of the training.",
        resumable=True,
    )
    output: str = cli.option(
        help="Model directory to write, or to resume.", resumable=True
    )
    size: str = cli.option(
        "",
        help="Architecture: tiny, mini, small, medium, base, large, layers/hidden size/"
        "heads (e.g. 3/768/12), bert_config.json of Google, or config.json of "
        "transformers. Default: that of --init_from, else base.",
        common=True,
    )
    dropout: float = cli.option(
        -1.0,
        help="Dropout rate in the encoder. Negative: that of --size, 0.1. Use 0 for "
        "short runs.",
        maximum=0.9,
    )
    init_from: str = cli.option(
        "",
        help="Initial weights: a model directory or a checkpoint of Google, Hugging "
        "Face or KerasHub. Training starts at step 0.",
        common=True,
        resumable=True,
    )
    initialization: str = cli.option(
        "normal",
        help="Initial weights without --init_from: normal, random as in the paper; "
        "corpus, for short trainings: token embeddings and output biases by counts in "
        "the records, attention to neighboring tokens.",
        choices=("normal", "corpus"),
    )
    strategy: str = cli.option(
        "default",
        help="Devices: default (first GPU or CPU), mirrored (all GPUs), multi_worker "
        "(all hosts in TF_CONFIG), tpu.",
        choices=("default", "mirrored", "multi_worker", "tpu"),
        common=True,
        resumable=True,
    )
    precision: str = cli.option(
        "float32",
        help="Compute dtype of the layers. Weights are always float32.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        common=True,
    )
    batch_size: int | tuple[int, ...] = cli.option(
        256,
        help="Rows per step on all replicas together: one number, or one per phase.",
        minimum=1,
        common=True,
    )
    micro_batch_size: int = cli.option(
        0,
        help="Save memory: rows that a replica computes at a time. Their gradients are "
        "summed, so that the update is the same. 0: all rows.",
        minimum=0,
        resumable=True,
    )
    recompute: bool = cli.option(
        False,
        help="Save memory: compute encoder layers twice, in about a third more time.",
        resumable=True,
    )
    steps: int | tuple[int, ...] = cli.option(
        1_000_000,
        help="Training steps; one number per phase. A larger last number continues a "
        "training, also a finished one.",
        minimum=1,
        common=True,
        resumable=True,
    )
    warmup_steps: int | tuple[int, ...] | None = cli.option(
        None,
        help="Steps of linear learning rate warm-up; 1 % of the steps by default.",
        minimum=0,
        common=True,
    )
    learning_rate: float | tuple[float, ...] = cli.option(
        1e-4,
        help="Peak learning rate. With one number per phase of this flag or of "
        "--warmup_steps, each phase has its own warm-up and decay.",
        minimum=0,
        common=True,
    )
    decay: str = cli.option(
        "linear",
        help="Learning rate decay after the warm-up.",
        choices=("linear", "cosine", "polynomial", "constant"),
    )
    optimizer: str = cli.option(
        "adamw",
        help="adamw as in the paper; bert_adam, the same without bias correction as in "
        "google-research/bert; lamb for batches of thousands of rows; muon for short "
        "trainings.",
        choices=("adamw", "bert_adam", "lamb", "muon"),
    )
    mask_selection_rate: float | tuple[float, ...] = cli.option(
        0.15,
        help="Fraction of the tokens to predict: one number, or one per phase.",
        minimum=0,
        maximum=1,
    )
    whole_word_masking: bool = cli.option(
        False, help="Mask all tokens of a word together."
    )
    mask_token_rate: float = cli.option(
        0.8, help="Share of these tokens that become [MASK].", minimum=0, maximum=1
    )
    random_token_rate: float = cli.option(
        0.1, help="Share of them that become a random token.", minimum=0, maximum=1
    )
    next_sentence_prediction: bool = cli.option(
        True, help="Train next sentence prediction, too, if the records have pairs."
    )
    freeze_encoder: bool = cli.option(
        False, help="Train only the heads, such as a new masked-LM head of --init_from."
    )
    validate_every: int = cli.option(
        1000,
        help="Steps between evaluations on the held-out documents, which also save "
        "state and weights.",
        minimum=1,
        common=True,
        resumable=True,
    )
    save_every: float = cli.option(
        10.0,
        help="Minutes between saved states to resume from. Evaluations and SIGTERM "
        "save one, too.",
        minimum=0,
        resumable=True,
    )
    keep_checkpoints: int = cli.option(
        0,
        help="How many of the last evaluations keep a model directory in the folder "
        "checkpoints of --output, besides that of the lowest held-out loss. 0: none.",
        minimum=0,
        resumable=True,
    )
    seed: int = cli.option(
        0, help="Random seed of weights, dropout, shuffling and masking.", minimum=0
    )

    def per_phase(self, name: str) -> tuple:
        """Returns the value of an option in each phase.

        Raises:
            ValueError: The number of values is not the number of phases.
        """
        count, value = self.records.count(",") + 1, getattr(self, name)
        if not isinstance(value, tuple):
            # The phases do not share the steps: each needs its own number.
            value = (value,) if name == "steps" else (value,) * count
        if len(value) != count:
            raise ValueError(
                f"--{name} must have one number for each of the {count} --records. "
                f"Received: {name}={','.join(map(str, value))}"
            )
        return value


# --- Phases ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Phase:
    """Consecutive steps with the same records, batch size and masking rate."""

    records: Records
    rows_read: int  # From the same records, by earlier phases.
    first_step: int
    schedule: optimizers.WarmupDecay
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


def open_phases(
    options: PretrainConfig, records_class: type[Records] = Records
) -> list[Phase]:
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
    # A folder is opened once, also if several phases name it.
    paths = [*map(storage.real_path, options.records.split(","))]
    named = dict(zip(paths, options.records.split(",")))
    opened = {path: records_class(name) for path, name in named.items()}
    for path, rate, warmup_steps, steps, batch_size, selection in zip(paths, *values):
        records = opened[path]
        read = sum(p.steps * p.batch_size for p in phases if p.records is records)
        first_step = phases[-1].end if phases else 0
        start, length = (first_step, steps) if has_restarts else (0, total_steps)
        if warmup_steps is None:
            warmup_steps = length // 100
        schedule = optimizers.WarmupDecay(
            rate, warmup_steps, length, options.decay, start
        )
        sizes = steps, batch_size, selection
        phases.append(Phase(records, read, first_step, schedule, *sizes))
    return phases
