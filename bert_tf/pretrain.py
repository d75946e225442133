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
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from absl import logging

from bert_tf import config, flops
from bert_tf.config import BertConfig
from bert_tf.lazy import (
    checkpoint,
    convert,
    distribution,
    input_pipeline,
    keras,
    memory,
    model,
    monitoring,
    optimization,
    train_step,
)

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.checkpoint import Checkpoint, TrainingState
    from bert_tf.model import BertPretrainer
    from bert_tf.vocab import Vocabulary

# What a continued run may change: none of it changes what is learned.
_MAY_CHANGE = (
    "compare",
    "loss_band",
    "micro_batch_size",
    "output",
    "recompute",
    "records",
    "strategy",
    "validate_every",
    "xla",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(config.Options):
    """Options of `python -m bert_tf.pretrain`."""

    records: str = config.option(
        help="Folder that bert_tf.corpus wrote; several, separated by commas, are "
        "phases of the training, one after the other."
    )
    output: str = config.option(help="Model directory to write or to continue.")
    size: str = config.option(
        "",
        help="Architecture: tiny, mini, small, medium, base, large, layers/hidden size/"
        "heads (3/768/12), or the path of a bert_config.json. Without it that of "
        "--init_from, else base.",
        common=True,
    )
    dropout: float = config.option(
        -1.0,
        help="Dropout everywhere in the encoder; below 0: what --size has, 0.1. Little "
        "training is better off with 0.",
        maximum=0.9,
    )
    init_from: str = config.option(
        "",
        help="Model directory, or a checkpoint of Google, Hugging Face or KerasHub, "
        "whose weights to start from; the steps begin at 0.",
        common=True,
    )
    strategy: str = config.option(
        "default",
        help="Where to train: default (first GPU or CPU), mirrored (all GPUs), "
        "multi_worker (those of all hosts in TF_CONFIG), tpu.",
        choices=("default", "mirrored", "multi_worker", "tpu"),
        common=True,
    )
    precision: str = config.option(
        "float32",
        help="Arithmetic of the layers; weights stay float32.",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        common=True,
    )
    xla: bool = config.option(
        False, help="Compile the training step with XLA: for GPUs, slower on CPUs."
    )
    batch_size: int | tuple[int, ...] = config.option(
        256,
        help="Rows in a step, all replicas together; one number, or one for each of "
        "--records.",
        minimum=1,
        per_phase=True,
        common=True,
    )
    micro_batch_size: int = config.option(
        0,
        help="Rows that a replica computes at once; it sums their gradients over its "
        "part of the batch. 0: all of them; -1: as many as fit into memory, by "
        "estimate.",
        minimum=-1,
    )
    recompute: bool = config.option(
        False,
        help="Keep the input of each layer only and compute the rest again when it is "
        "needed: less memory, a third more time.",
    )
    steps: int | tuple[int, ...] = config.option(
        1_000_000,
        help="Steps to train; where --records are several, a number for each.",
        minimum=1,
        per_phase=True,
        common=True,
    )
    warmup_steps: int | tuple[int, ...] = config.option(
        10_000,
        help="Steps in which the learning rate rises; a number for each rate.",
        minimum=0,
        per_phase=True,
        common=True,
    )
    learning_rate: float | tuple[float, ...] = config.option(
        1e-4,
        help="Peak of the learning rate; one for the whole training, or one for each "
        "of --records, each with a rise and a fall of its own.",
        minimum=0,
        per_phase=True,
        common=True,
    )
    decay: str = config.option(
        "linear",
        help="How the learning rate falls after its peak.",
        choices=("linear", "cosine", "polynomial", "constant"),
    )
    optimizer: str = config.option(
        "adamw",
        help="adamw as in the paper, or lamb for batches of many thousand rows.",
        choices=("adamw", "lamb"),
    )
    bias_correction: bool = config.option(
        True, help="Correct Adam's moments; google-research/bert does not."
    )
    mask_selection_rate: float = config.option(
        0.15, help="Share of the tokens to predict.", minimum=0, maximum=1
    )
    mask_token_rate: float = config.option(
        0.8, help="Share of those shown as [MASK].", minimum=0, maximum=1
    )
    random_token_rate: float = config.option(
        0.1, help="Share of those shown as a random token.", minimum=0, maximum=1
    )
    whole_word_masking: bool = config.option(
        False, help="Mask all pieces of a word together."
    )
    left_to_right: bool = config.option(
        False,
        help="Instead of the masked LM: each token sees what is left of it, and the "
        "next one is predicted; all are with --mask_selection_rate=1.",
    )
    next_sentence: bool = config.option(
        True, help="Train next sentence prediction, too."
    )
    validate_every: int = config.option(
        1000,
        help="Steps from one evaluation on the held-out documents, and checkpoint, to "
        "the next.",
        minimum=1,
        common=True,
    )
    keep_all: bool = config.option(
        False,
        help="Keep the model of each evaluation, a model directory in steps/ of "
        "--output.",
    )
    loss_band: float = config.option(
        1.0,
        help="Halt when the mean loss of 100 steps is this much above the lowest one "
        "before; 0: never.",
        minimum=0,
    )
    compare: str = config.option(
        "",
        help="Other runs to draw beside this one in curve.png: model directories or "
        "history.csv files, separated by commas.",
    )
    seed: int = config.option(
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
            return optimization.InTurn(
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


def main(options: PretrainConfig) -> dict[str, float]:
    """Trains as `options` say.

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
    manifests, vocabulary = _read_records(phases, replicas)
    source = convert.open_checkpoint(options.init_from) if options.init_from else None
    architecture = _architecture(options, manifests, vocabulary, source)
    others = monitoring.read_others(options.compare)
    chief = distribution.is_chief(strategy)
    directory = checkpoint.ModelDirectory.create(
        options.output,
        architecture=architecture,
        vocabulary=vocabulary,
        lowercase=manifests[0]["lowercase"],
        head=_head(options),
        options=options.to_dict(),
        defaults=options.defaults(),
        may_change=_MAY_CHANGE,
        write=chief,
    )

    # === Model ===
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        pretrainer = _pretrainer(options, phases, manifests, architecture)
        if source:
            fresh = ", ".join(source.fill(pretrainer)) or "none"
            print(f"Starts from {source.path}; with random values: {fresh}.")
        seed_generators = distribution.seed_generators(pretrainer)
        state = checkpoint.TrainingState(
            directory, pretrainer, seed_generators, keep_all=options.keep_all
        )
        state.restore()
    print(
        f"{pretrainer.count_params():,} weights, {replicas} "
        f"replica{'s' * (replicas > 1)}, {manifests[-1]['train_pairs']:,} pairs, "
        f"{manifests[-1]['padding_share']:.1%} padding; "
        + (f"continues at step {state.step:,}" if state.step else "starts at step 0")
        + f" of {phases[-1].end:,}."
    )

    # === Training ===
    for phase, manifest in zip(phases, manifests, strict=True):
        if state.step < phase.end:
            _train(options, phase, manifest, state, pretrainer, chief=chief)
    if not chief:
        return {}

    # === Report ===
    validation = _validation(options, phases[-1], manifests[-1], architecture, replicas)
    unigram_accuracy = input_pipeline.unigram_accuracy(validation)
    history = monitoring.read_history(directory.path)
    metrics = history[-1] | {"unigram_accuracy": unigram_accuracy}
    directory.write_metrics(metrics)
    curve = monitoring.plot_history(directory.path, unigram_accuracy, others)
    print(
        f"Pre-trained for {phases[-1].end:,} steps: held-out MLM "
        f"accuracy {metrics['val_mlm_accuracy']:.2%} (always the most frequent token: "
        f"{unigram_accuracy:.2%}), NSP accuracy {metrics['val_nsp_accuracy']:.2%}. "
        f"Model in {directory.path}, curve in {curve}."
    )
    return metrics


def _pretrainer(
    options: PretrainConfig,
    phases: Sequence[Phase],
    manifests: Sequence[Mapping[str, Any]],
    architecture: BertConfig,
) -> BertPretrainer:
    """Returns the model, compiled as `options` say; in the scope of a strategy."""
    backbone = model.BertBackbone(
        architecture,
        packed=manifests[0]["pairs_per_row"] > 1,
        dtype=options.precision,
    )
    pretrainer = model.BertPretrainer(backbone)
    optimizers = {"adamw": optimization.AdamW, "lamb": optimization.Lamb}
    optimizer = optimizers[options.optimizer](
        options.schedule(),
        bias_correction=options.bias_correction,
        dynamic_loss_scale=options.precision == "mixed_float16",
    )
    size = options.micro_batch_size
    if size < 0:
        size = _fitting_rows(options, phases, manifests, pretrainer)
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    in_parts = size > 0 or (options.xla and replicas > 1)
    pretrainer.compile(
        optimizer,
        loss_weights={"mlm": 1.0, "nsp": float(options.next_sentence)},
        jit_compile=options.xla and not in_parts,
    )
    if options.recompute:
        train_step.recompute(backbone)
    if in_parts:
        train_step.micro_batches(pretrainer, size, xla=options.xla)
    distribution.prepare(pretrainer)
    return pretrainer


def _train(
    options: PretrainConfig,
    phase: Phase,
    manifest: Mapping[str, Any],
    state: TrainingState,
    pretrainer: BertPretrainer,
    *,
    chief: bool,
) -> None:
    """Trains to the end of a phase.

    Raises:
        ValueError: The training failed; the batch it failed at is kept.
    """
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    architecture = state.directory.architecture
    first_step = state.step - phase.first_step
    train = input_pipeline.pretrain_dataset(
        phase.records,
        batch_size=phase.batch_size,
        first_step=first_step,
        **_masking(options, architecture),
    )
    length = manifest["max_sequence_length"]
    batch_flops = flops.training_step(
        architecture,
        rows=phase.batch_size,
        length=length,
        predictions=train.element_spec[1]["mlm"].shape[1],
    )
    peak = math.nan
    if chief and options.strategy != "tpu":
        tokens = phase.batch_size // replicas * length
        dtype = pretrainer.backbone.pooler.compute_dtype
        peak = replicas * flops.peak(architecture, tokens, dtype)
    shown = 1 - manifest["padding_share"]
    monitor = monitoring.TrainingMonitor(
        state,
        steps=phase.end,
        total_steps=options.phases()[-1].end,
        batch_tokens=phase.batch_size * length * shown,
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
            validation_data=_validation(
                options, phase, manifest, architecture, replicas
            ),
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
        again = input_pipeline.pretrain_dataset(
            phase.records,
            batch_size=phase.batch_size,
            first_step=failure.step - 1 - phase.first_step,
            **_masking(options, architecture),
        )
        path = monitoring.save_batch(state.directory.path, next(iter(again)))
        raise ValueError(f"{failure} The batch of that step is in {path}.") from failure


def _masking(options: PretrainConfig, architecture: BertConfig) -> dict[str, Any]:
    names = ("mask_selection_rate", "mask_token_rate", "random_token_rate")
    names += ("whole_word_masking", "seed")
    masking = {name: getattr(options, name) for name in names}
    # Of the encoder, which --init_from may have brought.
    return masking | {"left_to_right": architecture.left_to_right}


def _validation(
    options: PretrainConfig,
    phase: Phase,
    manifest: Mapping[str, Any],
    architecture: BertConfig,
    replicas: int,
) -> tf.data.Dataset:
    """Batches of what is held out, smaller where there are so few rows."""
    rows = manifest["validation_rows"] // replicas * replicas
    return input_pipeline.pretrain_dataset(
        phase.records,
        split="validation",
        batch_size=min(phase.batch_size, rows),
        **_masking(options, architecture),
    )


def _head(options: PretrainConfig) -> dict[str, Any]:
    if options.next_sentence:
        return {"kind": "pretrainer"}
    return {"kind": "pretrainer", "fresh": ["pooler", "nsp"]}


def _read_records(
    phases: Sequence[Phase], replicas: int
) -> tuple[list[dict[str, Any]], Vocabulary]:
    """Returns the manifest of each phase's records and the vocabulary of all.

    Raises:
        ValueError: Records are incomplete, differ in what they must share, or hold too
            few rows for validation.
    """
    read = [input_pipeline.read_manifest(phase.records) for phase in phases]
    first, vocabulary = read[0]
    for phase, (manifest, _) in zip(phases, read, strict=True):
        for fact in ("vocabulary_fingerprint", "lowercase"):
            if manifest[fact] != first[fact]:
                raise ValueError(
                    f"{phase.records} and {phases[0].records} differ in {fact}: all "
                    "--records of a training must share the vocabulary."
                )
        if (manifest["pairs_per_row"] > 1) != (first["pairs_per_row"] > 1):
            raise ValueError(
                f"Of {phase.records} and {phases[0].records} only one is packed: make "
                "all --records with the same --pack."
            )
        if manifest["validation_rows"] < replicas:
            raise ValueError(
                f"{phase.records} holds {manifest['validation_rows']} rows for "
                f"validation and at least {replicas} are needed: make the records with "
                "a larger --held_out_share."
            )
        for warning in manifest.get("warnings", ()):
            logging.warning("%s: %s", phase.records, warning)
    return [manifest for manifest, _ in read], vocabulary


def _architecture(
    options: PretrainConfig,
    manifests: Sequence[Mapping[str, Any]],
    vocabulary: Vocabulary,
    source: Checkpoint | None,
) -> BertConfig:
    """Returns the architecture to train.

    Raises:
        ValueError: It contradicts --init_from, or takes too few tokens.
    """
    if source:
        architecture = source.architecture
        _check_source(source, options, vocabulary)
    else:
        architecture = BertConfig.resolve(options.size or "base", vocabulary.size)
    architecture = _with_dropout(architecture, options.dropout)
    if options.left_to_right:
        architecture = dataclasses.replace(architecture, left_to_right=True)
    length = max(manifest["max_sequence_length"] for manifest in manifests)
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
    options: PretrainConfig,
    phases: Sequence[Phase],
    manifests: Sequence[Mapping[str, Any]],
    pretrainer: BertPretrainer,
) -> int:
    """Returns the rows that a replica can compute at once, in each of the phases."""
    replicas = pretrainer.distribute_strategy.num_replicas_in_sync
    length = max(manifest["max_sequence_length"] for manifest in manifests)
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
    config.run(main, PretrainConfig)
