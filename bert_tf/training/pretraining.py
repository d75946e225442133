# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-training: check, build, train, report."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf import checkpoints, storage
from bert_tf.checkpoints import Checkpoint, ModelDirectory, open_checkpoint
from bert_tf.data import check_records, unigram_accuracy
from bert_tf.modeling import (
    BertBackbone,
    BertConfig,
    BertPretrainer,
    initialize_local_attention,
)
from bert_tf.training import strategy as distribution
from bert_tf.training.loop import StopSignals, parse_save_every
from bert_tf.training.optimizers import AdamW, Lamb, Muon
from bert_tf.training.pretrain_config import Phase, PretrainConfig
from bert_tf.training.pretraining_loop import (
    PretrainingLoop,
    masked_batches,
    read_history,
    write_history,
)
from bert_tf.training.training_state import TrainingState


def pretrain(options: PretrainConfig) -> dict[str, float]:
    """Pre-trains BERT and writes a model directory; resumes an interrupted run.

    Args:
        options: See `PretrainConfig`.

    Returns:
        The metrics of the last evaluation. With several workers, only the first one
        returns them; the others return an empty dictionary.

    Raises:
        ValueError: The options or the records are invalid, the training diverged, or
            another worker was lost.
    """
    # === Check everything before writing anything ===
    # With several workers, this must precede all other TensorFlow calls.
    strategy = distribution.strategy(options.strategy)
    chief = distribution.is_chief(strategy)
    replicas = strategy.num_replicas_in_sync
    phases = options.phases()
    schedule = options.schedule()
    _check_phases(options, phases, strategy)
    source = open_checkpoint(options.init_from) if options.init_from else None
    architecture = resolve_architecture(options, phases, source)
    parse_save_every(options.save_every)
    head = {"kind": "pretrainer"}
    if not options.next_sentence_weight:
        head["newly_initialized"] = ["pooler", "nsp"]
    directory = ModelDirectory.create(
        options.output,
        architecture=architecture,
        vocabulary=phases[0].vocabulary,
        lowercase=phases[0].manifest["lowercase"],
        head=head,
        options=options.to_dict(),
        resumable=options.resumable(),
        write=chief,
    )

    lock = storage.exclusive(directory.path) if chief else contextlib.nullcontext()
    together = distribution.is_multi_worker(strategy)
    stop_signals = StopSignals(together=together)
    with lock, stop_signals as signals, distribution.device_errors():
        # === Build the model ===
        keras.utils.set_random_seed(options.seed)
        with strategy.scope():
            backbone = BertBackbone(
                architecture, recompute=options.recompute, dtype=options.precision
            )
            if options.initialization == "local_attention":
                initialize_local_attention(backbone, options.seed)
            model = BertPretrainer(backbone)
            if source:
                source = checkpoints.extend_vocabulary(source, directory.vocabulary)
                missing = ", ".join(source.load_into(model)) or "none"
                print(f"Loaded {source.path}. Newly initialized layers: {missing}.")
            model.compile(
                create_optimizer(options, schedule),
                loss_weights={"mlm": 1.0, "nsp": options.next_sentence_weight},
            )
            state = TrainingState(directory, model, write=chief)
            _restore(state)
        _print_start(model, phases[-1], state.step, replicas)

        # === Train ===
        try:
            for phase in phases:
                if state.step <= phase.end:
                    PretrainingLoop(
                        options, phase, model, strategy, state, signals, phases[-1].end
                    ).train()
            if not chief:
                return {}

            # === Report ===
            baseline = unigram_accuracy(
                masked_batches(options, replicas, phases[-1], split="validation")
            )
        except tf.errors.DataLossError as error:
            check_records(phase.records for phase in phases)
            raise ValueError(f"Records cannot be read: {error.message}") from error
        metrics = state.progress["history"][-1] | {"unigram_accuracy": baseline}
        directory.write_metrics(metrics)
        return metrics


# --- Checks ----------------------------------------------------------------------


def _check_phases(
    options: PretrainConfig, phases: Sequence[Phase], strategy: tf.distribute.Strategy
) -> None:
    """Checks batch sizes and records.

    Raises:
        ValueError: A batch cannot be divided among replicas or into micro-batches; or
            the records do not match each other, or have too few rows for validation.
    """
    replicas, first = strategy.num_replicas_in_sync, phases[0]
    for phase in phases:
        distribution.check_batch_size(phase.batch_size, replicas)
        distribution.check_reachable(strategy, phase.records)
        rows, size = phase.batch_size // replicas, options.micro_batch_size
        if size and rows % size:
            raise ValueError(
                "--micro_batch_size must divide the rows per replica. Received: "
                f"micro_batch_size={size}, rows={rows} (batch_size="
                f"{phase.batch_size}, replicas={replicas})"
            )
        for key in ("vocabulary_fingerprint", "lowercase"):
            if phase.manifest[key] != first.manifest[key]:
                raise ValueError(
                    f"All --records must have the same vocabulary. {phase.records} and "
                    f"{first.records} differ in {key}."
                )
        rows = phase.manifest["validation_rows"]
        if rows < replicas:
            raise ValueError(
                f"{phase.records} has {rows} validation rows; at least {replicas} are "
                "needed. Write the records with a larger --held_out_share."
            )


def resolve_architecture(
    options: PretrainConfig, phases: Sequence[Phase], source: Checkpoint | None
) -> BertConfig:
    """Returns the architecture to train.

    Raises:
        ValueError: --init_from has another vocabulary than the records, another
            architecture than --size, or is combined with --initialization; or the
            model has too few positions.
    """
    vocabulary = phases[0].vocabulary
    architecture = BertConfig.resolve(options.size or "base", vocabulary.size)
    if source and not vocabulary.extends(source.vocabulary):
        raise ValueError(
            f"--init_from={source.path} has another vocabulary than {options.records}. "
            "Write the records with the vocabulary of the checkpoint, or one that "
            "`python -m bert_tf.vocab --extend` made from it."
        )
    if source and options.initialization != "normal":
        raise ValueError(
            f"--initialization={options.initialization} is for random weights, but "
            f"--init_from={source.path} has trained ones. Pass --initialization=normal."
        )
    dropout = {}
    if options.dropout >= 0:
        dropout = {"dropout": options.dropout, "attention_dropout": options.dropout}
    architecture = dataclasses.replace(architecture, **dropout)
    if source:
        changes = {"vocabulary_size": vocabulary.size, **dropout}
        loaded = dataclasses.replace(source.architecture, **changes)
        for name, value in dataclasses.asdict(loaded).items():
            if options.size and value != getattr(architecture, name):
                raise ValueError(
                    f"--size={options.size} has {name}={getattr(architecture, name)!r},"
                    f" but --init_from={source.path} has {value!r}. Omit --size."
                )
        architecture = loaded
    length = max(phase.length for phase in phases)
    if length > architecture.max_sequence_length:
        raise ValueError(
            f"{options.records} has sequences of {length} tokens, but the model has "
            f"only {architecture.max_sequence_length} positions."
        )
    return architecture


# --- The model -------------------------------------------------------------------


def create_optimizer(
    options: PretrainConfig, schedule: keras.optimizers.schedules.LearningRateSchedule
) -> AdamW:
    """Returns the optimizer of --optimizer."""
    optimizers = {"lamb": Lamb, "muon": Muon}
    return optimizers.get(options.optimizer, AdamW)(
        schedule,
        bias_correction=options.optimizer != "bert_adam",
        dynamic_loss_scale=options.precision == "mixed_float16",
    )


def _restore(state: TrainingState) -> None:
    """Restores the training state and `history.csv`.

    Raises:
        ValueError: There is a history, but no readable state.
    """
    state.progress |= {"history": [], "tokens": 0, "gradient_norms": []}
    step, directory = state.restore(), state.directory.path
    history = read_history(directory)
    if history and not step:
        raise ValueError(
            f"{directory} has a history of {history[-1]['step']:,.0f} steps but no "
            "training state to resume from. Choose another --output, with "
            f"--init_from={directory} to start from its weights."
        )
    if history and state.write:  # Without rows after the state.
        write_history(directory, state.progress["history"])


def _print_start(model: BertPretrainer, last: Phase, step: int, replicas: int) -> None:
    print(
        f"{model.count_params():,} weights, {replicas} "
        f"replica{'s' * (replicas > 1)}, {last.manifest['train_pairs']:,} pairs, "
        f"{last.manifest['padding_share']:.1%} padding; "
        f"{'resuming' if step else 'starting'} at step {step:,} of {last.end:,}."
    )
