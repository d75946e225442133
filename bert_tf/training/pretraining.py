# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-training: check, build, train, report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import Checkpoint, ModelDirectory, open_checkpoint
from bert_tf.data import pretrain_dataset, unigram_accuracy
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer
from bert_tf.text import Vocabulary
from bert_tf.training import estimates, monitor
from bert_tf.training import strategy as distribution
from bert_tf.training.checkpoint import TrainingState
from bert_tf.training.optimizers import AdamW, Lamb
from bert_tf.training.pretrain_config import Phase, PretrainConfig
from bert_tf.training.step import DistributedPretrainer

Transform = Callable[..., tuple[Any, Any, Any]]


def pretrain(
    options: PretrainConfig,
    *,
    backbone_class: type[BertBackbone] = BertBackbone,
    transform: Transform | None = None,
    keep_all: bool = False,
) -> dict[str, float]:
    """Pre-trains BERT and writes a model directory; resumes an interrupted run.

    Args:
        options: See `PretrainConfig`.
        backbone_class: The encoder. Experiments pass a subclass of `BertBackbone`.
        transform: Maps each batch `(x, y, sample_weight)` to another one.
        keep_all: Whether to keep the model of each evaluation, as the model directory
            `steps/<step>` in `--output`.

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
    replicas = strategy.num_replicas_in_sync
    chief = distribution.is_chief(strategy)
    phases = options.phases()
    options.schedule()
    _check_phases(options, phases, strategy)
    source = open_checkpoint(options.init_from) if options.init_from else None
    architecture = _architecture(options, phases, source)
    others = monitor.read_histories(options.compare)
    directory = ModelDirectory.create(
        options.output,
        architecture=architecture,
        vocabulary=phases[0].vocabulary,
        lowercase=phases[0].manifest["lowercase"],
        head=_head(options),
        options=options.to_dict(),
        defaults=options.defaults(),
        resumable=options.resumable(),
        write=chief,
    )

    # === Build the model ===
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        backbone = backbone_class(
            architecture, recompute=options.recompute, dtype=options.precision
        )
        pretrainer = _compiled_pretrainer(options, phases, backbone)
        if source:
            missing = ", ".join(source.load_into(pretrainer)) or "none"
            print(f"Loaded {source.path}. Newly initialized layers: {missing}.")
        seed_generators = distribution.seed_generators(pretrainer)
        state = TrainingState(directory, pretrainer, seed_generators, keep_all=keep_all)
        state.restore()
    _print_start(pretrainer, phases[-1], state.step)

    # === Train ===
    batches = _Batches(options, transform, replicas)
    for phase in phases:
        if state.step < phase.end:
            total_steps = phases[-1].end
            _train(options, phase, batches, pretrainer, state, total_steps, chief)
    if not chief:
        return {}

    # === Report ===
    baseline = unigram_accuracy(batches.validation(phases[-1]))
    metrics = monitor.read_history(directory.path)[-1] | {"unigram_accuracy": baseline}
    directory.write_metrics(metrics)
    monitor.write_curve(directory.path, baseline, others)
    return metrics


# --- Checks ----------------------------------------------------------------------


def _check_phases(
    options: PretrainConfig, phases: Sequence[Phase], strategy: tf.distribute.Strategy
) -> None:
    """Checks batch sizes and records, and logs the warnings of the records.

    Raises:
        ValueError: A batch cannot be divided among replicas or into micro-batches; or
            the records are incomplete, do not match each other, or have too few rows
            for validation.
    """
    replicas, first = strategy.num_replicas_in_sync, phases[0]
    for phase in phases:
        distribution.check_batch_size(phase.batch_size, replicas)
        distribution.check_reachable(strategy, phase.records)
        rows, size = phase.batch_size // replicas, options.micro_batch_size
        if size > 0 and rows % size:
            raise ValueError(
                "--micro_batch_size must divide the rows per replica. Received: "
                f"micro_batch_size={size}, rows={rows} (batch_size="
                f"{phase.batch_size}, replicas={replicas})"
            )
    for phase in phases:
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
        for warning in phase.manifest.get("warnings", ()):
            logging.warning("%s: %s", phase.records, warning)


def _architecture(
    options: PretrainConfig, phases: Sequence[Phase], source: Checkpoint | None
) -> BertConfig:
    """Returns the architecture to train.

    Raises:
        ValueError: It contradicts --init_from, or has too few positions.
    """
    vocabulary = phases[0].vocabulary
    if source:
        architecture = source.architecture
        _check_source(source, options, vocabulary)
    else:
        architecture = BertConfig.resolve(options.size or "base", vocabulary.size)
    architecture = _with_dropout(architecture, options.dropout)
    length = max(phase.length for phase in phases)
    if length > architecture.max_sequence_length:
        raise ValueError(
            f"{options.records} has sequences of {length} tokens, but the model has "
            f"only {architecture.max_sequence_length} positions."
        )
    return architecture


def _check_source(
    source: Checkpoint, options: PretrainConfig, vocabulary: Vocabulary
) -> None:
    """Raises ValueError if --init_from does not match the records or --size."""
    if source.vocabulary != vocabulary:
        raise ValueError(
            f"--init_from={source.path} has another vocabulary than {options.records}. "
            "Write the records with the vocabulary of the checkpoint."
        )
    if not options.size:
        return
    expected = BertConfig.resolve(options.size, vocabulary.size)
    expected = dataclasses.asdict(_with_dropout(expected, options.dropout))
    actual = dataclasses.asdict(_with_dropout(source.architecture, options.dropout))
    for name, value in actual.items():
        if value != expected[name]:
            raise ValueError(
                f"--size={options.size} has {name}={expected[name]!r}, but "
                f"--init_from={source.path} has {value!r}. Omit --size."
            )


def _with_dropout(architecture: BertConfig, dropout: float) -> BertConfig:
    if dropout < 0:
        return architecture
    return dataclasses.replace(architecture, dropout=dropout, attention_dropout=dropout)


# --- The model -------------------------------------------------------------------


def _head(options: PretrainConfig) -> dict[str, Any]:
    if options.next_sentence:
        return {"kind": "pretrainer"}
    return {"kind": "pretrainer", "newly_initialized": ["pooler", "nsp"]}


def _compiled_pretrainer(
    options: PretrainConfig, phases: Sequence[Phase], backbone: BertBackbone
) -> DistributedPretrainer:
    """Returns the compiled model. Call it in the scope of the strategy."""
    pretrainer = DistributedPretrainer(backbone)
    optimizer_class = Lamb if options.optimizer == "lamb" else AdamW
    optimizer = optimizer_class(
        options.schedule(),
        bias_correction=options.optimizer != "bert_adam",
        dynamic_loss_scale=options.precision == "mixed_float16",
    )
    size = options.micro_batch_size
    if size < 0:
        size = _estimate_micro_batch_size(options, phases, pretrainer)
    pretrainer.compile(
        optimizer,
        loss_weights={"mlm": 1.0, "nsp": float(options.next_sentence)},
        micro_batch_size=size,
        xla=options.xla,
    )
    distribution.create_training_variables(pretrainer)
    return pretrainer


def _estimate_micro_batch_size(
    options: PretrainConfig, phases: Sequence[Phase], pretrainer: BertPretrainer
) -> int:
    """Returns the rows that fit into a replica's memory in all phases."""
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    length = max(phase.length for phase in phases)
    bytes_per_row = estimates.row_bytes(
        pretrainer.backbone.config,
        length=length,
        predictions=math.ceil(length * options.mask_selection_rate),
        recompute=options.recompute,
    )
    rows = math.gcd(*(phase.batch_size // replicas for phase in phases))
    size = estimates.max_rows(
        rows,
        bytes_per_row=bytes_per_row,
        weights=pretrainer.count_params(),
        free=estimates.free_memory(replicas),
    )
    print(f"By estimate, {size} of {rows} rows fit into memory (--micro_batch_size).")
    return size


def _print_start(pretrainer: BertPretrainer, last: Phase, step: int) -> None:
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    print(
        f"{pretrainer.count_params():,} weights, {replicas} "
        f"replica{'s' * (replicas > 1)}, {last.manifest['train_pairs']:,} pairs, "
        f"{last.manifest['padding_share']:.1%} padding; "
        f"{'resuming' if step else 'starting'} at step {step:,} of {last.end:,}."
    )


# --- Training --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Batches:
    """The masked batches of each phase."""

    options: PretrainConfig
    transform: Transform | None
    replicas: int

    def train(self, phase: Phase, first_step: int) -> tf.data.Dataset:
        """Returns batches from `first_step`, counted from the start of the phase."""
        return self._dataset(phase, phase.batch_size, first_step=first_step)

    def validation(self, phase: Phase) -> tf.data.Dataset:
        """Returns the held-out batches; smaller ones if there are only few rows."""
        rows = phase.manifest["validation_rows"] // self.replicas * self.replicas
        batch_size = min(phase.batch_size, rows)
        return self._dataset(phase, batch_size, split="validation")

    def _dataset(self, phase: Phase, batch_size: int, **kwargs) -> tf.data.Dataset:
        batches = pretrain_dataset(
            phase.records,
            batch_size=batch_size,
            mask_selection_rate=self.options.mask_selection_rate,
            mask_token_rate=self.options.mask_token_rate,
            random_token_rate=self.options.random_token_rate,
            whole_word_masking=self.options.whole_word_masking,
            seed=self.options.seed,
            **kwargs,
        )
        return batches.map(self.transform) if self.transform else batches


def _train(
    options: PretrainConfig,
    phase: Phase,
    batches: _Batches,
    pretrainer: BertPretrainer,
    state: TrainingState,
    total_steps: int,
    chief: bool,
) -> None:
    """Trains until the end of a phase.

    Raises:
        ValueError: The training diverged (the failed batch is saved), or another worker
            was lost.
    """
    first_step = state.step - phase.first_step
    train = batches.train(phase, first_step)
    callbacks = [_monitor(options, phase, train, pretrainer, state, total_steps, chief)]
    if chief:
        logs = state.directory.path / "logs"
        callbacks.append(keras.callbacks.TensorBoard(logs, write_graph=False))
    # Trace each phase anew. Otherwise `tf.function` relaxes the shapes to dynamic ones,
    # which round differently: resuming would not be bit-equal.
    pretrainer.train_function = pretrainer.test_function = None
    every = options.validate_every
    epochs_before = -(-phase.first_step // every)
    try:
        pretrainer.fit(
            train,
            validation_data=batches.validation(phase),
            steps_per_epoch=every,
            initial_epoch=epochs_before + first_step // every,
            epochs=epochs_before + -(-phase.steps // every),
            shuffle=False,  # The dataset is already shuffled.
            verbose=0,
            callbacks=callbacks,
        )
    except monitor.TrainingFailed as failure:
        if not chief:
            raise
        failed_step = failure.step - 1 - phase.first_step
        batch = next(iter(batches.train(phase, failed_step)))
        path = monitor.save_failed_batch(state.directory.path, batch)
        raise ValueError(f"{failure} The failed batch is in {path}.") from failure
    except tf.errors.UnavailableError as error:
        raise ValueError(
            "Lost the connection to another worker. Rerun the same command on all "
            "hosts to resume from the last checkpoint."
        ) from error


def _monitor(
    options: PretrainConfig,
    phase: Phase,
    train: tf.data.Dataset,
    pretrainer: BertPretrainer,
    state: TrainingState,
    total_steps: int,
    chief: bool,
) -> monitor.TrainingMonitor:
    architecture = state.directory.architecture
    batch_flops = estimates.step_flops(
        architecture,
        rows=phase.batch_size,
        length=phase.length,
        predictions=train.element_spec[1]["mlm"].shape[1],
    )
    peak = math.nan
    if chief and options.strategy != "tpu":
        replicas = pretrainer.distribute_strategy.num_replicas_in_sync
        tokens = phase.batch_size // replicas * phase.length
        dtype = pretrainer.backbone.pooler.compute_dtype
        peak = replicas * estimates.measure_peak(architecture, tokens, dtype)
    real_tokens = 1 - phase.manifest["padding_share"]
    return monitor.TrainingMonitor(
        state,
        steps=phase.end,
        total_steps=total_steps,
        batch_tokens=phase.batch_size * phase.length * real_tokens,
        batch_flops=batch_flops,
        peak=peak,
        loss_band=options.loss_band,
        chief=chief,
    )
