# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-trains BERT with masked LM and next sentence prediction (paper, section 3.1).

    python -m bert_tf.pretrain --records=records --output=models/mini --size=mini

`--records` is a folder that `python -m bert_tf.corpus` wrote. `--output` becomes a
model directory (config.json, vocab.txt, model.weights.h5, metrics.json) with
history.csv, curve.png, TensorBoard logs and the training state. The same command
run again continues an interrupted training where its last checkpoint stands. The
defaults are the recipe of the paper (appendix A.2).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_tf import config
from bert_tf.config import BertConfig

if TYPE_CHECKING:
    from bert_tf.checkpoint import Checkpoint
    from bert_tf.vocab import Vocabulary

# What a continued run may change: none of it changes what is learned.
_MAY_CHANGE = ("output", "records", "strategy", "validate_every")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainConfig(config.Options):
    """Options of `python -m bert_tf.pretrain`."""

    records: str = config.option(help="Folder that bert_tf.corpus wrote.")
    output: str = config.option(help="Model directory to write or to continue.")
    size: str = config.option(
        "",
        help="Architecture: tiny, mini, small, medium, base, large, layers/hidden size/"
        "heads (3/768/12), or the path of a bert_config.json. Without it that of "
        "--init_from, else base.",
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
    )
    strategy: str = config.option(
        "default",
        help="Where to train: default (first GPU or CPU), mirrored (all GPUs), "
        "multi_worker (those of all hosts in TF_CONFIG), tpu.",
        choices=("default", "mirrored", "multi_worker", "tpu"),
    )
    precision: str = config.option(
        "float32",
        help="Arithmetic of the layers; weights stay float32.",
        choices=("float32", "mixed_bfloat16"),
    )
    xla: bool = config.option(False, help="Compile the training step with XLA.")
    batch_size: int = config.option(
        256, help="Rows in a step, all replicas together.", minimum=1
    )
    steps: int = config.option(1_000_000, help="Steps to train.", minimum=1)
    warmup_steps: int = config.option(
        10_000, help="Steps in which the learning rate rises.", minimum=0
    )
    learning_rate: float = config.option(
        1e-4, help="Peak of the learning rate; it falls linearly to 0.", minimum=0
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
    )
    keep_all: bool = config.option(
        False,
        help="Keep the model of each evaluation, a model directory in steps/ of "
        "--output.",
    )
    seed: int = config.option(
        0, help="Of weights, dropout, shuffling and masks.", minimum=0
    )


def main(options: PretrainConfig) -> dict[str, float]:
    """Trains as `options` say.

    Returns:
        The last held-out metrics; of several workers, in the first one only.
    """
    import keras

    from bert_tf import (
        checkpoint,
        convert,
        distribution,
        input_pipeline,
        model,
        monitoring,
    )
    from bert_tf.optimization import AdamW, WarmupDecay

    # === Check everything before anything is written ===
    strategy = distribution.strategy(options.strategy)  # Workers meet first of all.
    manifest, vocabulary = input_pipeline.read_manifest(options.records)
    source = None
    if options.init_from:
        source = convert.open_checkpoint(options.init_from)
        architecture = source.architecture
        _check_source(source, options, vocabulary)
    else:
        architecture = BertConfig.resolve(options.size or "base", vocabulary.size)
    architecture = _with_dropout(architecture, options.dropout)
    if options.left_to_right:
        architecture = dataclasses.replace(architecture, left_to_right=True)
    if manifest["max_sequence_length"] > architecture.max_sequence_length:
        raise ValueError(
            f"{options.records} has sequences of {manifest['max_sequence_length']} "
            f"tokens, the model takes {architecture.max_sequence_length}."
        )
    schedule = WarmupDecay(options.learning_rate, options.warmup_steps, options.steps)
    replicas = strategy.num_replicas_in_sync
    distribution.check_batch_size(options.batch_size, replicas)
    chief = distribution.is_chief(strategy)
    directory = checkpoint.ModelDirectory.create(
        options.output,
        architecture=architecture,
        vocabulary=vocabulary,
        lowercase=manifest["lowercase"],
        head=_head(options),
        options=options.to_dict(),
        may_change=_MAY_CHANGE,
        write=chief,
    )

    # === Model ===
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        backbone = model.BertBackbone(
            architecture,
            packed=manifest["pairs_per_row"] > 1,
            dtype=options.precision,
        )
        pretrainer = model.BertPretrainer(backbone)
        if source:
            fresh = ", ".join(source.fill(pretrainer)) or "none"
            print(f"Starts from {source.path}; with random values: {fresh}.")
        optimizer = AdamW(schedule, bias_correction=options.bias_correction)
        pretrainer.compile(
            optimizer,
            loss_weights={"mlm": 1.0, "nsp": float(options.next_sentence)},
            jit_compile=options.xla,
        )
        distribution.prepare(pretrainer)
        seed_generators = distribution.seed_generators(pretrainer)
        state = checkpoint.TrainingState(
            directory, pretrainer, seed_generators, keep_all=options.keep_all
        )
        first_step = state.restore()
    print(
        f"{pretrainer.count_params():,} weights, {replicas} "
        f"replica{'s' * (replicas > 1)}, {manifest['train_pairs']:,} pairs; "
        + (f"continues at step {first_step:,}" if first_step else "starts at step 0")
        + f" of {options.steps:,}."
    )

    # === Data ===
    masking = {
        "mask_selection_rate": options.mask_selection_rate,
        "mask_token_rate": options.mask_token_rate,
        "random_token_rate": options.random_token_rate,
        "whole_word_masking": options.whole_word_masking,
        "left_to_right": architecture.left_to_right,
        "seed": options.seed,
    }
    train = input_pipeline.pretrain_dataset(
        options.records,
        batch_size=options.batch_size,
        first_step=first_step,
        **masking,
    )
    validation = input_pipeline.pretrain_dataset(
        options.records,
        split="validation",
        batch_size=_validation_batch_size(options, manifest, replicas),
        **masking,
    )

    # === Training ===
    if first_step < options.steps:
        shown = 1 - manifest["padding_share"]
        batch_tokens = options.batch_size * manifest["max_sequence_length"] * shown
        callbacks = [
            monitoring.TrainingMonitor(state, options.steps, batch_tokens, chief=chief)
        ]
        if chief:
            logs = directory.path / "logs"
            callbacks.append(keras.callbacks.TensorBoard(logs, write_graph=False))
        pretrainer.fit(
            train,
            validation_data=validation,
            steps_per_epoch=options.validate_every,
            initial_epoch=first_step // options.validate_every,
            epochs=-(-options.steps // options.validate_every),
            shuffle=False,  # The pipeline shuffles.
            verbose=0,
            callbacks=callbacks,
        )
    if not chief:
        return {}

    # === Report ===
    unigram_accuracy = input_pipeline.unigram_accuracy(validation)
    history = monitoring.read_history(directory.path)
    metrics = history[-1] | {"unigram_accuracy": unigram_accuracy}
    directory.write_metrics(metrics)
    curve = monitoring.plot_history(directory.path, unigram_accuracy)
    print(
        f"Pre-trained for {options.steps:,} steps: held-out MLM "
        f"accuracy {metrics['val_mlm_accuracy']:.2%} (always the most frequent token: "
        f"{unigram_accuracy:.2%}), NSP accuracy {metrics['val_nsp_accuracy']:.2%}. "
        f"Model in {directory.path}, curve in {curve}."
    )
    return metrics


def _head(options: PretrainConfig) -> dict[str, Any]:
    if options.next_sentence:
        return {"kind": "pretrainer"}
    return {"kind": "pretrainer", "fresh": ["pooler", "nsp"]}


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


def _validation_batch_size(
    options: PretrainConfig, manifest: Mapping[str, Any], replicas: int
) -> int:
    """The training's batch size, or less where so few rows are held out."""
    rows = manifest["validation_rows"]
    if rows < replicas:
        raise ValueError(
            f"{options.records} holds {rows} rows for validation and at least "
            f"{replicas} are needed: make the records with a larger --held_out_share."
        )
    return min(options.batch_size, rows // replicas * replicas)


if __name__ == "__main__":
    config.run(main, PretrainConfig)
