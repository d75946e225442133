# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pre-training: check, build, train until the end or early failure, report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import checkpoints, data, storage
from bert_tf.checkpoints import Checkpoint, ModelDirectory, open_checkpoint
from bert_tf.data import Records
from bert_tf.lazy import lazy_import
from bert_tf.modeling import BertBackbone, BertConfig, BertPretrainer, encoder_name
from bert_tf.training.distribution import Devices, check_batch_size, create_devices
from bert_tf.training.loop import TrainingLoop, TrainingState
from bert_tf.training.optimizers import AdamW, Lamb, Muon
from bert_tf.training.pretrain_config import Phase, PretrainConfig, open_phases

initialization = lazy_import("bert_tf.training.initialization")
report = lazy_import("bert_tf.training.report")

_HISTORY = "history.csv"
_TOKENS_COUNTED = 2**22  # For the bigram baseline.
_NEW_HEAD = (
    "The masked-LM head is new: in its first few hundred steps, its gradients disturb "
    "the encoder. Train it with --freeze_encoder first, and start from that --output; "
    "or start from the masked LM that the encoder came from."
)


def pretrain(
    options: PretrainConfig,
    *,
    encoder_class: type[BertBackbone] | None = None,
    build: Callable[[BertBackbone], BertPretrainer] = BertPretrainer,
    records_class: type[Records] = Records,
    after_evaluation: Callable[[Mapping[str, float], Any], Any] | None = None,
) -> dict[str, float]:
    """Pre-trains BERT and writes a model directory; resumes an interrupted run.

    Args:
        options: See `PretrainConfig`.
        encoder_class: A registered subclass of `BertBackbone`, see
            docs/adding_a_task.md. By default that of `init_from`, or `BertBackbone`.
        build: Returns the model to train, such as a subclass of `BertPretrainer`.
        records_class: Opens `options.records`. A subclass may override `dataset`.
        after_evaluation: Called with the metrics of each evaluation, a row of
            history.csv, and the model; on all hosts.

    Returns:
        The metrics of the last evaluation. With several workers, only the first one
        returns them; the others return an empty dictionary.

    Raises:
        ValueError: The options or the records are invalid, the training diverged, or
            another worker was lost.
    """
    # === Check everything before writing anything ===
    # With several workers, this must precede all other TensorFlow calls.
    devices = create_devices(options.strategy, options.precision)
    chief, replicas = devices.is_chief, devices.replicas
    phases = open_phases(options, records_class)
    _check_phases(options, phases, devices)
    source = open_checkpoint(options.init_from) if options.init_from else None
    architecture = resolve_architecture(options, phases, source)
    encoder = source.encoder if source else ""
    if encoder_class:
        encoder = encoder_name(encoder_class)
    head, learns_pairs = {"kind": "pretrainer"}, options.next_sentence_prediction
    learns_pairs &= all(phase.records.has_pairs for phase in phases)
    if not learns_pairs:
        known = source.weights if source else {}
        new = [name for name in ("pooler", "nsp") if f"{name}/kernel" not in known]
        head["newly_initialized"] = new
    # Later positions are not trained.
    lengths = [phase.records.manifest["max_sequence_length"] for phase in phases]
    lengths += [source.max_sequence_length] if source else []
    inputs = {
        "records_content": [phase.records.fingerprint for phase in phases],
        "init_from_content": source.fingerprint() if source else "",
        "max_sequence_length": max(lengths),
    }
    directory = ModelDirectory.create(
        options.output,
        architecture=architecture,
        vocabulary=phases[0].records.vocabulary,
        lowercase=phases[0].records.manifest["lowercase"],
        head=head,
        encoder=encoder,
        source=source.source if source else "",
        options=options.to_dict() | inputs,
        resumable=options.resumable() | {"max_sequence_length"},
        write=chief,
    )

    lock = storage.exclusive(directory.path) if chief else contextlib.nullcontext()
    with lock, devices.errors():
        # === Build the model ===
        keras.utils.set_random_seed(options.seed)
        with devices.scope():
            backbone = directory.build_backbone(
                options.precision, recompute=options.recompute
            )
            model = build(backbone)
            if source:
                source = source.extend_vocabulary(directory.vocabulary)
                unused = head.get("newly_initialized", ())
                missing = [x for x in source.load_into(model) if x not in unused]
                shown = ", ".join(missing) or "none"
                print(f"Loaded {source.path}. Newly initialized layers: {shown}.")
                if "mlm" in missing and not options.freeze_encoder:
                    print(_NEW_HEAD)
            backbone.trainable = not options.freeze_encoder
            optimizer = create_optimizer(options, phases[0].schedule)
            if not learns_pairs:  # Those of `init_from` stay as they are.
                unused = [*backbone.pooler.weights, *model.nsp_head.weights]
                optimizer.exclude_from_weight_decay(var_list=unused)
            model.compile(optimizer, loss_weights={"mlm": 1, "nsp": int(learns_pairs)})
            scale = functools.partial(scale_embeddings, model)
            change = scale if options.optimizer == "muon" else dict
            state = TrainingState(directory, model, write=chief, change=change)
            _restore(state, phases)
            # The last run may have been killed after it saved the state.
            _record(options, state)
        last = phases[-1]
        manifest = last.records.manifest
        print(
            f"{model.count_params():,} weights, {replicas} replica"
            f"{'s' * (replicas > 1)}, {manifest['train_rows']:,} rows, "
            f"{last.epochs:.1f} epochs, {manifest['padding_share']:.1%} padding; "
            f"{'resuming' if state.step else 'starting'} at step {state.step:,} of "
            f"{last.end:,}."
        )

        # === Train ===
        try:
            if options.initialization == "corpus" and not state.step:
                print("Counting tokens for the initial weights ...", flush=True)
                token_ids = phases[0].records.token_ids()
                with devices.scope():
                    initialization.initialize_from_corpus(
                        model, token_ids, options.seed
                    )
            loop = TrainingLoop(
                devices, state, last.end, options.save_every, options.micro_batch_size
            )
            if loop.step < last.end:
                print("Shuffling rows and compiling the first step ...", flush=True)
            for phase in phases:
                if loop.step <= phase.end:  # At its end, the evaluation may be missing.
                    _train_phase(options, loop, phase, learns_pairs, after_evaluation)

            # === Report ===
            held_out = masked_batches(options, replicas, last, split="validation")
            batch = next(iter(held_out))
            # On JAX, a model of several processes runs in all of them.
            examples = report.fill_masks(model, batch, directory.vocabulary)
            if not chief:
                return {}
            directory.save_weights(model, change)
            token_ids = last.records.token_ids(_TOKENS_COUNTED)
            baselines = data.baseline_accuracies(held_out, token_ids)
        except tf.errors.DataLossError as error:
            for phase in phases:
                phase.records.check()
            raise ValueError(f"Records cannot be read: {error.message}") from error
        history = state.progress["history"]
        metrics = history[-1] | baselines
        directory.write_metrics(metrics)
        values = {"weights": model.count_params(), "examples": examples, **baselines}
        values["start"] = state.progress.get("start")
        report.pretraining_report(directory.path, options, last, history, **values)
        return metrics


# --- Checks ----------------------------------------------------------------------


def _check_phases(
    options: PretrainConfig, phases: Sequence[Phase], devices: Devices
) -> None:
    """Checks batch sizes and records.

    Raises:
        ValueError: A batch cannot be divided among replicas or into micro-batches;
            several hosts cannot begin with the same weights; a masking rate is out of
            range; or the records do not match each other, or have no validation rows.
    """
    replicas, first = devices.replicas, phases[0]
    if options.initialization == "corpus" and devices.has_peers:
        raise ValueError(
            "--initialization=corpus is for one host. Several hosts may compute "
            "different initial weights. Pass --initialization=normal."
        )
    rates = {
        name: getattr(options, name)
        for name in ("mask_token_rate", "random_token_rate")
    }
    for phase in phases:
        rates["mask_selection_rate"] = phase.mask_selection_rate
        data.Masker(vocabulary=phase.records.vocabulary, **rates)  # Checks the rates.
        check_batch_size(phase.batch_size, replicas)
        rows, size = phase.batch_size // replicas, options.micro_batch_size
        if size and rows % size:
            raise ValueError(
                "--micro_batch_size must divide the rows per replica. Received: "
                f"micro_batch_size={size}, rows={rows} (batch_size="
                f"{phase.batch_size}, replicas={replicas})"
            )
        records = phase.records
        # Records of earlier versions do not tell.
        splits = [x.records.manifest.get("held_out") for x in (first, phase)]
        if None not in splits and splits[0] != splits[1]:
            logging.warning(
                "%s and %s hold out other documents (%s; %s). If they share text, "
                "validation documents of one are training text of the other, and the "
                "held-out losses too low.",
                first.records.path, records.path, *splits,
            )  # fmt: skip
        for key in ("vocabulary_fingerprint", "lowercase"):
            if records.manifest[key] != first.records.manifest[key]:
                raise ValueError(
                    f"All --records must have the same vocabulary. {records.path} and "
                    f"{first.records.path} differ in {key}."
                )
        if not records.manifest["validation_rows"]:
            raise ValueError(
                f"{records.path} has no validation rows. Write the records with a "
                "larger --held_out_share."
            )


def resolve_architecture(
    options: PretrainConfig, phases: Sequence[Phase], source: Checkpoint | None
) -> BertConfig:
    """Returns the architecture to train.

    Raises:
        ValueError: --init_from has another vocabulary or tokenizer than the records,
            or is combined with --size or --initialization; or the model has too few
            positions.
    """
    vocabulary = phases[0].records.vocabulary
    if source:
        check_tokens(source, phases[0].records)
        if options.size or options.initialization != "normal":
            raise ValueError(
                f"--init_from={source.path} has an architecture and trained weights. "
                "Omit --size and pass --initialization=normal. Received: "
                f"size={options.size!r}, initialization={options.initialization!r}"
            )
        architecture = source.architecture
    else:
        architecture = BertConfig.from_size(options.size or "base", vocabulary.size)
    changes: dict[str, Any] = {"vocabulary_size": vocabulary.size}
    if options.dropout >= 0:
        changes |= dict.fromkeys(("dropout", "attention_dropout"), options.dropout)
    architecture = dataclasses.replace(architecture, **changes)
    length = max(x.records.manifest["max_sequence_length"] for x in phases)
    if length > architecture.max_sequence_length:
        raise ValueError(
            f"{options.records} has sequences of {length} tokens, but the model has "
            f"only {architecture.max_sequence_length} positions."
        )
    return architecture


def check_tokens(checkpoint: Checkpoint, records: Records) -> None:
    """Checks that a checkpoint's tokenizer gives the token ids of the records.

    The vocabulary of the records may have further tokens.

    Raises:
        ValueError: It has another vocabulary or other rules.
    """
    lowercase = records.manifest["lowercase"]
    if not records.vocabulary.extends(checkpoint.vocabulary):
        raise ValueError(
            f"{checkpoint.path} has another vocabulary than {records.path}. Write the "
            "records with the vocabulary of the checkpoint, or one with further tokens "
            "at its end or in the place of [unused...]."
        )
    check_rules(checkpoint, lowercase, str(records.path))


def check_rules(checkpoint: Checkpoint, lowercase: bool, records: str) -> None:
    """Checks that a checkpoint's tokenizer has the rules of records.

    Args:
        checkpoint: The checkpoint.
        lowercase: Whether the text of the records is lowercased.
        records: Their name in the message.

    Raises:
        ValueError: It has other rules.
    """
    vocabulary, rules = checkpoint.vocabulary, checkpoint.rules
    ours = lowercase, rules.strip_accents in (None, lowercase), True
    others = (x for x in rules.added_tokens if not x.is_word(lowercase))
    special = {vocabulary.tokens[number] for number in vocabulary.special_ids}
    split = sorted({x.content for x in others} - special)
    if split or (checkpoint.lowercase, True, rules.split_chinese) != ours:
        raise ValueError(
            f"{checkpoint.path} has another tokenizer than {records}: lowercase="
            f"{lowercase}, which also strips accents if True, Chinese characters are "
            f"split, and so are added tokens: {split}. Received: "
            f"lowercase={checkpoint.lowercase}, {rules}"
        )


# --- The model -------------------------------------------------------------------


def create_optimizer(
    options: PretrainConfig, schedule: keras.optimizers.schedules.LearningRateSchedule
) -> AdamW:
    """Returns the optimizer of --optimizer."""
    arguments = {
        "bias_correction": options.optimizer != "bert_adam",
        "dynamic_loss_scale": options.precision == "mixed_float16",
    }
    classes = {"lamb": Lamb, "muon": Muon}
    if options.optimizer == "muon" and options.precision == "mixed_bfloat16":
        arguments["orthogonalization_dtype"] = "bfloat16"
    return classes.get(options.optimizer, AdamW)(schedule, **arguments)


def scale_embeddings(
    model: BertPretrainer, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns weights whose token embeddings are about `initializer_range`.

    They are better for fine-tuning. The outputs of the model stay the same: LayerNorm
    removes the scale of the sum of all embeddings, and the LayerNorm of the masked-LM
    head takes up that of its output matrix. The factor is a power of two, so no weight
    is rounded.

    Adam changes all weights by about the learning rate in a step. The short recipe
    leaves token embeddings of 0.1, five times larger than those of a new model, which
    would learn five times slower. benchmarks/results/gain.md has the scores.

    Args:
        model: The model.
        weights: Its weights by path.
    """
    embeddings, norm = model.backbone.embeddings, model.mlm_head.layer_norm
    names = ("token_embedding", "position_embedding", "segment_embedding")
    layers = filter(None, (getattr(embeddings, name) for name in names))
    tables = [layer.embeddings.path for layer in layers]  # The first has the tokens.
    target, tokens = model.backbone.config.initializer_range, weights[tables[0]]
    factor = np.float32(2) ** np.round(np.log2(target / np.sqrt(np.mean(tokens**2))))
    factors = dict.fromkeys(tables, factor)
    factors |= dict.fromkeys((norm.gamma.path, norm.beta.path), 1 / factor)
    return {**weights, **{path: weights[path] * x for path, x in factors.items()}}


def _restore(state: TrainingState, phases: Sequence[Phase]) -> None:
    """Restores the training state.

    Raises:
        ValueError: There is a history, but no readable state; or the steps changed, and
            not only the last phase is longer.
    """
    state.progress["history"] = []
    step, directory = state.restore(), state.directory.path
    history = read_history(directory)
    if history and not step:
        raise ValueError(
            f"{directory} has a history of {history[-1]['step']:,.0f} steps but no "
            "training state to resume from. Choose another --output, with "
            f"--init_from={directory} to start from its weights."
        )
    steps = [phase.steps for phase in phases]
    before = state.progress.get("steps", steps)
    if steps[:-1] != before[:-1] or steps[-1] < before[-1]:
        raise ValueError(
            "--steps must have the same numbers as before, or a larger last one. "
            f"Received: {steps}, before: {before}"
        )
    state.progress["steps"] = steps
    if steps != before:
        if state.write:  # The metrics are those of a finished training.
            (directory / "metrics.json").unlink(missing_ok=True)
        rate = float(keras.ops.convert_to_numpy(phases[-1].schedule(step)))
        print(
            f"Training to step {phases[-1].end:,} instead of {sum(before):,}, with the "
            f"learning rates of the longer schedule, from {rate:.2g} on."
        )


# --- The phases ------------------------------------------------------------------


def _train_phase(
    options: PretrainConfig,
    loop: TrainingLoop,
    phase: Phase,
    learns_pairs: bool,
    after_evaluation: Callable | None,
) -> None:
    """Trains to the end of a phase; each evaluation adds a row to `history.csv`."""
    replicas = loop.devices.replicas
    batches = functools.partial(masked_batches, options, replicas, phase)
    # Opened once: its rows are masked and counted first.
    held_out = functools.cache(functools.partial(batches, split="validation"))
    history, optimizer = loop.progress["history"], loop.model.optimizer
    optimizer.learning_rate = phase.schedule
    for interval in loop.intervals(
        batches,
        lambda: loop.evaluate(held_out()),
        first_step=phase.first_step,
        steps=phase.steps,
        interval_steps=options.validate_every,
        evaluate_start=bool(options.init_from),
    ):
        norms = interval["gradient_norms"]
        tokens = interval["steps"] * phase.tokens_per_step
        row = interval["logs"] | {
            "step": loop.step,
            "tokens": round(tokens + (history[-1]["tokens"] if history else 0)),
            "learning_rate": float(keras.ops.convert_to_numpy(optimizer.learning_rate)),
            "gradient_norm": float(np.mean(norms)) if norms else math.nan,
            "gradient_norm_max": max(norms, default=math.nan),
            "tokens_per_second": round(tokens / interval["seconds"]),
        }
        row = {k: float(row[k]) for k in sorted(row) if learns_pairs or "nsp" not in k}
        history.append(row)
        loop.save(weights=True)
        _record(options, loop.state)
        loop.report(
            row,
            loop.step,
            f"step {loop.step:,}: loss {row['loss']:.3f}; held-out loss "
            f"{row['val_loss']:.3f}, {report.accuracies(row)}; gradient norm "
            f"{row['gradient_norm']:.2f}; {row['tokens_per_second']:,.0f} tokens/s",
        )
        if after_evaluation:
            after_evaluation(row, loop.model)


def _record(options: PretrainConfig, state: TrainingState) -> None:
    """Writes `history.csv`, and the copies of `--keep_checkpoints`.

    Call it after the state, which has the history: so a history implies a state.
    """
    history, directory = state.progress["history"], state.directory
    if not (history and state.write):
        return
    if options.keep_checkpoints and history[-1]["step"] == state.step:
        keep_checkpoints(directory, history, options.keep_checkpoints)
    data.write_table(directory.path / _HISTORY, history)


def keep_checkpoints(
    directory: ModelDirectory, history: Sequence[Mapping[str, float]], count: int
) -> None:
    """Copies the model of the newest evaluation, and removes copies of older ones.

    Args:
        directory: Its folder `checkpoints` has a model directory for each of the last
            `count` steps, and for the one with the lowest held-out loss.
        history: The evaluations.
        count: How many to keep, besides the best one.
    """
    best = min(history, key=lambda row: row["val_loss"])
    kept = {f"step-{row['step']:.0f}" for row in (*history[-count:], best)}
    newest, folder = f"step-{history[-1]['step']:.0f}", directory.path / "checkpoints"
    folder.mkdir(exist_ok=True)
    if not (folder / newest).exists():  # Else a killed run wrote it.
        checkpoints.write_checkpoint(open_checkpoint(directory.path), folder / newest)
    for other in folder.iterdir():
        if other.name not in kept:
            shutil.rmtree(other)
    storage.upload(directory.path)


def masked_batches(
    options: PretrainConfig,
    replicas: int,
    phase: Phase,
    first_step: int = 0,
    split: str = "train",
) -> tf.data.Dataset:
    """Returns the masked batches of a phase from a step on, counted from its start.

    A phase continues where an earlier one with the same records ended.
    """
    batch_size = phase.batch_size
    masking: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("mask_token_rate", "random_token_rate")
    }
    if split == "train":
        first_step += math.ceil(phase.rows_read / batch_size)
        masking["mask_selection_rate"] = phase.mask_selection_rate
        masking["whole_word_masking"] = options.whole_word_masking
    else:  # There may be fewer rows than in a batch.
        rows = phase.records.manifest["validation_rows"]
        batch_size = min(batch_size, math.ceil(rows / replicas) * replicas)
        if options.micro_batch_size:
            batch_size = min(batch_size, options.micro_batch_size * replicas)
        # The tokens are selected as in the paper, so that the losses of runs compare.
    return phase.records.dataset(
        split,
        batch_size=batch_size,
        first_step=first_step,
        seed=options.seed,
        **masking,
    )


def read_history(path: pathlib.Path | str) -> list[dict[str, float]]:
    """Reads a `history.csv`, which has one row per evaluation.

    Args:
        path: The file, or its model directory.

    Returns:
        The rows; none if the file does not exist.
    """
    path = pathlib.Path(path)
    path = path / _HISTORY if path.is_dir() else path
    if not path.is_file():
        return []
    return [{k: float(v) for k, v in row.items()} for row in data.read_table(path)]
