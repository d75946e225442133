# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trains BERT with masked LM and next sentence prediction (paper, section 3.1).

    python -m bert_tf.pretrain --records=records --output=models/mini --size=mini

`--records` is a folder that `python -m bert_tf.corpus` wrote. `--output` becomes a
model directory (config.json, vocab.txt, model.weights.h5, metrics.json) with
history.csv, curve.png, TensorBoard logs and the training state. The same command
run again continues an interrupted training where its last checkpoint stands. The
defaults are the recipe of the paper (appendix A.2). Its two lengths, 128 tokens for
nine tenths of the steps and 512 for the rest, are two phases of one training:

    python -m bert_tf.pretrain --records=records128,records512 --steps=900000,100000 ...

A learning rate for each phase gives each a schedule of its own, as LAMB's recipe has
it (arXiv 1904.00962): --optimizer=lamb --learning_rate=6e-3,4e-3
--warmup_steps=2000,200 --decay=polynomial.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf import cli, data, modeling, training
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertConfig
from bert_tf.training import flops
from bert_tf.training.pretrain_options import Phase, PretrainConfig

model_directory = lazy_import("bert_tf.checkpoints.model_directory")
checkpoint = lazy_import("bert_tf.training.checkpoint")
formats = lazy_import("bert_tf.checkpoints.formats")
distribution = lazy_import("bert_tf.training.strategy")
keras = lazy_import("keras")
memory = lazy_import("bert_tf.training.memory")
monitoring = lazy_import("bert_tf.training.monitor")
optimization = lazy_import("bert_tf.training.optimizers")
tf = lazy_import("tensorflow")

if TYPE_CHECKING:
    from bert_tf.checkpoints.model_directory import Checkpoint
    from bert_tf.modeling import BertBackbone, BertPretrainer
    from bert_tf.text.vocabulary import Vocabulary
    from bert_tf.training.checkpoint import TrainingState
    from bert_tf.training.step import DistributedPretrainer


def main(
    options: PretrainConfig,
    *,
    backbone_class: type[BertBackbone] | None = None,
    transform: Callable[..., tuple] | None = None,
) -> dict[str, float]:
    """Trains as `options` say.

    Args:
        options: See `PretrainConfig`.
        backbone_class: A subclass of `BertBackbone` to train instead, for experiments.
        transform: Maps each batch, `(x, y, sample_weight)`, to another one.

    Returns:
        The last held-out metrics; of several workers, in the first one only.
    """
    # === Check everything before anything is written ===
    strategy = distribution.strategy(options.strategy)  # Workers meet first of all.
    replicas = strategy.num_replicas_in_sync
    phases = options.phases()
    options.schedule()  # Says what is wrong with it.
    for phase in phases:
        distribution.check_batch_size(phase.batch_size, replicas)
        distribution.check_reachable(strategy, phase.records)
        _check_micro_batch_size(options, phase, replicas)
    _check_records(phases, replicas)
    source = formats.open_checkpoint(options.init_from) if options.init_from else None
    architecture = _architecture(options, phases, source)
    others = monitoring.read_others(options.compare)
    chief = distribution.is_chief(strategy)
    directory = model_directory.ModelDirectory.create(
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

    # === Model ===
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        backbone = (backbone_class or modeling.BertBackbone)(
            architecture, recompute=options.recompute, dtype=options.precision
        )
        pretrainer = _pretrainer(options, phases, backbone)
        if source:
            fresh = ", ".join(source.load_into(pretrainer)) or "none"
            print(f"Starts from {source.path}; with random values: {fresh}.")
        seed_generators = distribution.seed_generators(pretrainer)
        state = checkpoint.TrainingState(
            directory, pretrainer, seed_generators, keep_all=options.keep_all
        )
        state.restore()
    last = phases[-1]
    print(
        f"{pretrainer.count_params():,} weights, {replicas} "
        f"replica{'s' * (replicas > 1)}, {last.manifest['train_pairs']:,} pairs, "
        f"{last.manifest['padding_share']:.1%} padding; "
        + (f"continues at step {state.step:,}" if state.step else "starts at step 0")
        + f" of {last.end:,}."
    )

    # === Training ===
    for phase in phases:
        if state.step < phase.end:
            _train(
                options,
                phase,
                state,
                pretrainer,
                total=last.end,
                chief=chief,
                transform=transform,
            )
    if not chief:
        return {}

    # === Report ===
    validation = _validation(options, last, transform, replicas)
    unigram_accuracy = data.unigram_accuracy(validation)
    history = monitoring.read_history(directory.path)
    metrics = history[-1] | {"unigram_accuracy": unigram_accuracy}
    directory.write_metrics(metrics)
    curve = monitoring.plot_history(directory.path, unigram_accuracy, others)
    print(
        f"Pre-trained for {last.end:,} steps: held-out MLM "
        f"accuracy {metrics['val_mlm_accuracy']:.2%} (always the most frequent token: "
        f"{unigram_accuracy:.2%}), NSP accuracy {metrics['val_nsp_accuracy']:.2%}. "
        f"Model in {directory.path}, curve in {curve}."
    )
    return metrics


def _pretrainer(
    options: PretrainConfig, phases: Sequence[Phase], backbone: BertBackbone
) -> DistributedPretrainer:
    """Returns the compiled model; call it in the scope of the strategy."""
    pretrainer = training.DistributedPretrainer(backbone)
    optimizers = {"adamw": optimization.AdamW, "lamb": optimization.Lamb}
    optimizer = optimizers[options.optimizer](
        options.schedule(),
        bias_correction=options.bias_correction,
        dynamic_loss_scale=options.precision == "mixed_float16",
    )
    size = options.micro_batch_size
    if size < 0:
        size = _fitting_rows(options, phases, pretrainer)
    pretrainer.compile(
        optimizer,
        loss_weights={"mlm": 1.0, "nsp": float(options.next_sentence)},
        micro_batch_size=size,
        xla=options.xla,
    )
    distribution.create_training_variables(pretrainer)
    return pretrainer


def _train(
    options: PretrainConfig,
    phase: Phase,
    state: TrainingState,
    pretrainer: BertPretrainer,
    *,
    total: int,
    chief: bool,
    transform: Callable[..., tuple] | None,
) -> None:
    """Trains to the end of a phase, of `total` steps of all of them.

    Raises:
        ValueError: The training failed; the batch it failed at is kept. Or a worker
            was lost.
    """
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    architecture = state.directory.architecture
    first_step = state.step - phase.first_step
    train = _batches(options, phase, transform, first_step=first_step)
    batch_flops = flops.training_step(
        architecture,
        rows=phase.batch_size,
        length=phase.length,
        predictions=train.element_spec[1]["mlm"].shape[1],
    )
    peak = math.nan
    if chief and options.strategy != "tpu":
        tokens = phase.batch_size // replicas * phase.length
        dtype = pretrainer.backbone.pooler.compute_dtype
        peak = replicas * flops.peak(architecture, tokens, dtype)
    shown = 1 - phase.manifest["padding_share"]
    monitor = monitoring.TrainingMonitor(
        state,
        steps=phase.end,
        total_steps=total,
        batch_tokens=phase.batch_size * phase.length * shown,
        batch_flops=batch_flops,
        peak=peak,
        loss_band=options.loss_band,
        chief=chief,
    )
    callbacks = [monitor]
    if chief:
        logs = state.directory.path / "logs"
        callbacks.append(keras.callbacks.TensorBoard(logs, write_graph=False))
    every = options.validate_every
    earlier = -(-phase.first_step // every)
    try:
        pretrainer.fit(
            train,
            validation_data=_validation(options, phase, transform, replicas),
            steps_per_epoch=every,
            initial_epoch=earlier + first_step // every,
            epochs=earlier + -(-phase.steps // every),
            shuffle=False,  # The pipeline shuffles.
            verbose=0,
            callbacks=callbacks,
        )
    except monitoring.TrainingFailed as failure:
        if not chief:
            raise
        # The pipeline gives the batch of any step again.
        failed = failure.step - 1 - phase.first_step
        again = _batches(options, phase, transform, first_step=failed)
        path = monitoring.save_batch(state.directory.path, next(iter(again)))
        raise ValueError(f"{failure} The batch of that step is in {path}.") from failure
    except tf.errors.UnavailableError as error:
        raise ValueError(
            "Another worker, or the connection to it, was lost. Start the same command "
            "again on all hosts: the training goes on from its last checkpoint."
        ) from error


def _batches(
    options: PretrainConfig,
    phase: Phase,
    transform: Callable[..., tuple] | None,
    **which: Any,
) -> tf.data.Dataset:
    """Masked batches of a phase; `which` are options of `pretrain_dataset`."""
    names = ("mask_selection_rate", "mask_token_rate", "random_token_rate")
    names += ("whole_word_masking", "seed")
    masking = {name: getattr(options, name) for name in names}
    batches = data.pretrain_dataset(
        phase.records, **masking | {"batch_size": phase.batch_size} | which
    )
    return batches.map(transform) if transform else batches


def _validation(
    options: PretrainConfig,
    phase: Phase,
    transform: Callable[..., tuple] | None,
    replicas: int,
) -> tf.data.Dataset:
    """Batches of what is held out, smaller where there are so few rows."""
    rows = phase.manifest["validation_rows"] // replicas * replicas
    size = min(phase.batch_size, rows)
    return _batches(options, phase, transform, split="validation", batch_size=size)


def _head(options: PretrainConfig) -> dict[str, Any]:
    if options.next_sentence:
        return {"kind": "pretrainer"}
    return {"kind": "pretrainer", "newly_initialized": ["pooler", "nsp"]}


def _check_records(phases: Sequence[Phase], replicas: int) -> None:
    """Passes on the warnings that came with the records.

    Raises:
        ValueError: Records are incomplete, differ in what they must share, or hold too
            few rows for validation.
    """
    first = phases[0]
    for phase in phases:
        for fact in ("vocabulary_fingerprint", "lowercase"):
            if phase.manifest[fact] != first.manifest[fact]:
                raise ValueError(
                    f"{phase.records} and {first.records} differ in {fact}: all "
                    "--records of a training must share the vocabulary."
                )
        rows = phase.manifest["validation_rows"]
        if rows < replicas:
            raise ValueError(
                f"{phase.records} holds {rows} rows for validation and at least "
                f"{replicas} are needed: make the records with a larger "
                "--held_out_share."
            )
        for warning in phase.manifest.get("warnings", ()):
            logging.warning("%s: %s", phase.records, warning)


def _architecture(
    options: PretrainConfig, phases: Sequence[Phase], source: Checkpoint | None
) -> BertConfig:
    """Returns the architecture to train.

    Raises:
        ValueError: It contradicts --init_from, or takes too few tokens.
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
            f"{options.records} has sequences of {length} tokens, the model takes "
            f"{architecture.max_sequence_length}."
        )
    return architecture


def _check_micro_batch_size(
    options: PretrainConfig, phase: Phase, replicas: int
) -> None:
    rows, size = phase.batch_size // replicas, options.micro_batch_size
    if size > 0 and rows % size:
        raise ValueError(
            "--micro_batch_size must divide the rows of a replica in a step. Received: "
            f"micro_batch_size={size}, rows={rows} (batch_size={phase.batch_size}, "
            f"replicas={replicas})"
        )


def _check_source(
    source: Checkpoint, options: PretrainConfig, vocabulary: Vocabulary
) -> None:
    """Raises ValueError where --init_from is not for these records or this --size."""
    if source.vocabulary != vocabulary:
        raise ValueError(
            f"--init_from: {source.path} has another vocabulary than {options.records}"
            ". Make the records with its vocabulary."
        )
    if options.size:
        asked = BertConfig.resolve(options.size, vocabulary.size)
        asked = _with_dropout(asked, options.dropout)
        wanted = _with_dropout(source.architecture, options.dropout)
        for name, value in dataclasses.asdict(wanted).items():
            if value != getattr(asked, name):
                raise ValueError(
                    f"--size={options.size} means {name}={getattr(asked, name)!r}, and "
                    f"{source.path} has {value!r}. Leave --size out."
                )


def _with_dropout(architecture: BertConfig, dropout: float) -> BertConfig:
    if dropout < 0:
        return architecture
    return dataclasses.replace(architecture, dropout=dropout, attention_dropout=dropout)


def _fitting_rows(
    options: PretrainConfig, phases: Sequence[Phase], pretrainer: BertPretrainer
) -> int:
    """Returns the rows that a replica can compute at once, in each of the phases."""
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    length = max(phase.length for phase in phases)
    bytes_per_row = memory.row_bytes(
        pretrainer.backbone.config,
        length=length,
        predictions=math.ceil(length * options.mask_selection_rate),
        recompute=options.recompute,
    )
    rows = math.gcd(*(phase.batch_size // replicas for phase in phases))
    size = memory.fitting_rows(
        rows,
        bytes_per_row=bytes_per_row,
        weights=pretrainer.count_params(),
        free=memory.free_memory(replicas),
    )
    print(
        f"Of {rows} rows {size} at a time are estimated to fit into memory "
        f"(--micro_batch_size={size})."
    )
    return size


if __name__ == "__main__":
    cli.run(main, PretrainConfig)
