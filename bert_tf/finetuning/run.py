# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes an encoder on a task (paper, section 4 and appendix A.3), and predicts.

A module of `tasks/` calls `fine_tune` with its task. Input: a checkpoint of an encoder
and the task's files. Output: a model directory with config.json, vocab.txt, the weights
of the best epoch, metrics.json, TensorBoard logs, and predictions for each evaluation
split. Rerun the same command to resume. With a finished directory, it only evaluates,
predicts and exports.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

from bert_tf import checkpoints, data, lazy, serving, storage, training
from bert_tf.checkpoints import Checkpoint, ModelDirectory
from bert_tf.finetuning import batching, objectives, report
from bert_tf.finetuning.task import Example, FinetuneConfig, PredictConfig, Task
from bert_tf.modeling import sum_losses

_EXPORT_LATER = "omit it and export the model later, with python -m bert_tf.export"


def run_task(task_class: type[Task], options: FinetuneConfig | PredictConfig) -> None:
    """Runs the command of a task: fine-tunes, or predicts a file."""
    is_training = isinstance(options, FinetuneConfig)
    (fine_tune if is_training else predict_file)(task_class, options)


def fine_tune(task_class: type[Task], options: FinetuneConfig) -> dict[str, Any]:
    """Trains unless the directory is finished, evaluates, reports and exports.

    Returns:
        The metrics of the training and of each labeled split.

    Raises:
        ValueError: An option or the data are invalid.
        DivergedError: The loss became NaN or infinite.
    """
    if options.export:
        lazy.require_backend("--export", "tensorflow", fix=_EXPORT_LATER)
    devices = training.create_devices(options.strategy, options.precision)
    # Check everything before anything is written.
    encoder = _open_encoder(options)
    training.check_batch_size(options.batch_size, devices.replicas)
    if devices.has_peers:
        raise ValueError(
            "Fine-tuning runs on one host. Only pre-training uses several."
        )
    task = task_class(options, encoder)
    _check_hyperparameters(task)
    teacher = objectives.check_teacher(task)
    content = {"init_from": encoder, "teacher": teacher}
    content = {f"{k}_content": v.fingerprint() if v else "" for k, v in content.items()}
    directory = ModelDirectory.create(
        options.output,
        architecture=encoder.architecture,
        vocabulary=encoder.vocabulary,
        lowercase=encoder.lowercase,
        rules=encoder.rules,
        head={"kind": task.kind, **task.head},
        options=task.options.to_dict() | content,
        resumable=options.resumable(),
    )
    with storage.exclusive(directory.path), devices.errors():
        return _run(task, directory, devices)


def _run(
    task: Task, directory: ModelDirectory, devices: training.Devices
) -> dict[str, Any]:
    model = build_model(task, directory, devices)
    if history := directory.read_metrics().get("training"):
        print(f"{directory.path} is already trained; skipping training.")
    else:
        history = train(task, model, directory, devices)
    directory.load_weights(model)  # Those of the best epoch.
    metrics, tables = _evaluate(task, model, directory)
    metrics = {"training": history, **metrics}
    if decision := metrics.get("decision"):
        directory = directory.write_decision(decision)
    directory.write_metrics(metrics)
    if metrics.keys() & {*task.evaluation_splits}:
        report.finetuning_report(task, directory.path, metrics, tables)
    print(f"Best epoch by {task.metric}: {history['best_epoch']}.")
    output = task.options.output
    print(f"Model, metrics, predictions and report.md are in {output}.")
    following = f"tasks.{task.kind} --predict --model={output} --input=... --output=..."
    if path := task.options.export:
        signatures = serving.load_signatures(directory)
        path = serving.export_saved_model(signatures, path, checkpoint=directory)
        print(f"Exported to {path}.")
        following = f"bert_tf.serve --model_base_path={task.options.export} --demo"
    print(f"Next: python -m {following}")
    return metrics


# --- Checks ----------------------------------------------------------------------


def _open_encoder(options: FinetuneConfig) -> Checkpoint:
    """Opens `--init_from`. For `--size`, the result has no weights."""
    if options.init_from and not (options.size or options.vocabulary):
        encoder = checkpoints.open_checkpoint(options.init_from)
    elif options.size and options.vocabulary and not options.init_from:
        encoder = Checkpoint.untrained(options.size, options.vocabulary)
    else:
        raise ValueError(
            "Pass either --init_from, or both --size and --vocabulary to start from "
            f"random weights. Got init_from={options.init_from!r}, "
            f"size={options.size!r}, vocabulary={options.vocabulary!r}."
        )
    if options.layers:
        numbers, limit = options.layers.split(","), encoder.architecture.num_layers
        unknown = {*numbers} - {*map(str, range(1, limit + 1))}
        if unknown or not options.init_from:
            raise ValueError(
                f"--layers must be numbers of layers of --init_from, from 1 to {limit},"
                f" separated by commas. Received: layers={options.layers}"
            )
        encoder = encoder.keep_layers(list(map(int, numbers)))
    if options.dropout is None:
        return encoder
    names = ("dropout", "attention_dropout", "classifier_dropout")
    rates = dict.fromkeys(names, options.dropout)
    architecture = dataclasses.replace(encoder.architecture, **rates)
    return dataclasses.replace(encoder, architecture=architecture)


def _check_hyperparameters(task: Task) -> None:
    encoder = task.encoder.architecture
    limits = encoder.num_layers, encoder.max_sequence_length
    for name, limit in zip(("frozen_layers", "max_sequence_length"), limits):
        if (value := getattr(task.options, name)) > limit:
            rule = f"must be at most {limit}, as in the encoder"
            raise ValueError(f"--{name} {rule}. Got {value}.")


# --- Training --------------------------------------------------------------------


def build_model(
    task: Task, directory: ModelDirectory, devices: training.Devices
) -> keras.Model:
    """Returns the task's model with its initial weights.

    Args:
        task: The task.
        directory: The model directory, whose weights replace those of `task.encoder`.
        devices: Where to build it.
    """
    options, encoder = task.options, task.encoder
    keras.utils.set_random_seed(options.seed)
    with devices.scope():
        backbone = encoder.build_backbone(options.precision)
        if count := options.frozen_layers:
            for layer in (backbone.embeddings, *backbone.encoder_layers[:count]):
                layer.trainable = False
        model = task.served_head().build(backbone)
        model.jit_compile = devices.jit_compile
        if options.init_from and not directory.read_metrics():
            keys = ("kind", "labels")
            same_head = all(encoder.head.get(k) == directory.head.get(k) for k in keys)
            source = encoder.standardized(directory.head) if same_head else encoder
            missing = source.load_into(model, part=None if same_head else backbone)
            new = ", ".join(missing) or "none"
            print(f"Initialized from {encoder.path}. Newly initialized layers: {new}.")
    return model


def default_learning_rate(hidden_dim: int) -> float:
    """Returns the peak learning rate for an encoder of this hidden size.

    From BERT base on, the rate is the paper's (appendix A.3). Smaller encoders need
    more: `benchmarks/results/finetuning.md` has the scores.
    """
    return 5e-5 if hidden_dim >= 768 else 1e-4 if hidden_dim > 256 else 3e-4


def train(
    task: Task,
    model: keras.Model,
    directory: ModelDirectory,
    devices: training.Devices,
) -> dict[str, Any]:
    """Trains the model, or resumes from the last training state.

    Writes the weights of the best epoch and the metrics to `directory`.

    Returns:
        `metric`, the name of the metric on the dev set; its `score` in `best_epoch`
        (counted from 1); `epochs`, the losses and scores of each epoch; and `seconds`.
    """
    options, split = task.options, task.dataset("train")
    steps_per_epoch = math.ceil(len(split) / options.batch_size)
    steps = steps_per_epoch * options.epochs
    rate = options.learning_rate
    if rate is None:
        rate = default_learning_rate(directory.architecture.hidden_dim)
    schedule = training.WarmupDecay(rate, int(options.warmup_ratio * steps), steps)
    trainable = task.training_model(model)
    with devices.scope():
        optimizer = training.AdamW(schedule, weight_decay=options.weight_decay)
        loss = _loss(task)
        trainable.compile(optimizer, **({"loss": loss} if loss else {}))
        trainable.jit_compile = devices.jit_compile
        sum_losses(trainable)
        if options.teacher:
            training.create_training_variables(trainable)
            trainable = objectives.Distiller(task, trainable)
            trainable.compile(optimizer, jit_compile=devices.jit_compile)
        state = training.TrainingState(directory, trainable)
        step = state.restore()
    content = zlib.crc32(split.inputs["token_ids"].flat_values.numpy())
    if state.progress.setdefault("training_data", content) != content:
        raise ValueError(
            f"The training data have changed since step {step:,} of {directory.path}. "
            "Restore them to resume, or choose another --output."
        )
    print(
        f"{len(split):,} training examples, {split.lengths.mean():.0f} tokens on "
        f"average; {options.epochs} epochs of {steps_per_epoch:,} steps; "
        f"learning rate {rate:g}; {trainable.count_params():,} weights"
        + (f"; resuming at step {step:,} of {steps:,}." if step else ".")
    )

    limits = options.batch_size, options.max_sequence_length
    order = {"epochs": options.epochs, "seed": options.seed}
    batches = functools.partial(batching.batches, split, *limits, **order)
    loop = training.TrainingLoop(devices, state, steps, report_steps=True)
    dev = task.dataset(task.evaluation_splits[0])
    metric = f"{dev.name}_{task.metric}"
    history = loop.progress.setdefault("epochs", [])
    callback = keras.callbacks.LambdaCallback(
        on_predict_batch_end=lambda batch, logs: loop.check_signals()
    )

    def evaluate() -> dict[str, float]:
        outputs = batching.predict(model, dev, *limits, callbacks=[callback])
        if deviation := task.head.get("deviation"):  # Of standardized scores.
            outputs = [
                np.asarray(x, np.float64) * deviation + task.head["mean"]
                for x in outputs
            ]
        scores = task.evaluate(dev, outputs).metrics
        return {f"{dev.name}_{name}": float(score) for name, score in scores.items()}

    for epoch in loop.intervals(
        batches, evaluate, steps=steps, interval_steps=steps_per_epoch
    ):
        logs = epoch["logs"]
        history.append(logs)
        loop.progress["seconds"] = loop.progress.get("seconds", 0.0) + epoch["seconds"]
        data.write_table(directory.path / "history.csv", history)
        scores = [row[metric] for row in history]
        best = scores.index(max(scores))
        if best + 1 == len(history):
            directory.save_weights(model)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
        text = f"Epoch {len(history)} of {options.epochs}: {shown}"
        loop.report(logs, len(history) - 1, text)
        if 0 < options.early_stopping_patience < len(history) - best:
            break
        if len(history) < options.epochs:
            loop.save()
    metrics = {
        "metric": f"{dev.name} {task.metric}",
        "score": scores[best],
        "best_epoch": best + 1,
        "epochs": history,
        "seconds": round(loop.progress["seconds"], 1),
    }
    directory.write_metrics({"training": metrics})  # The training is finished.
    state.remove()
    return metrics


def _loss(task: Task) -> keras.losses.Loss | None:
    """Returns the loss; None for the default of the model."""
    if task.target_kind != "labels":
        return None
    return keras.losses.BinaryCrossentropy(from_logits=True, reduction="sum")


# --- Evaluation ------------------------------------------------------------------


def _evaluate(
    task: Task, model: keras.Model, directory: ModelDirectory
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Writes predictions, and prints scores.

    Returns:
        The metrics of each labeled split, and the `decision` of the first, if any;
        the scores of each class as text, by split.
    """
    metrics, tables, decision, options = {}, {}, None, task.options
    for name in task.evaluation_splits:
        split = task.dataset(name)
        limits = options.batch_size, options.max_sequence_length
        outputs = batching.predict(model, split, *limits)
        found = task.evaluate(split, outputs, decision)
        decision = found.decision
        if found.report:
            print(f"\n{name}:\n{found.report}")
            tables[name] = found.report
        if found.metrics:
            metrics[name] = found.metrics
            shown = (f"{key} {value:.4f}" for key, value in found.metrics.items())
            print(f"{name}: {', '.join(shown)}")
        task.write_predictions(split, found, directory.path)
    return {**metrics, "decision": decision} if decision else metrics, tables


# --- Predicting files ------------------------------------------------------------


def predict_file(task_class: type[Task], options: PredictConfig) -> None:
    """Predicts `options.input` with a finished model, without its training files.

    The rows of `options.output` have the columns of `predictions_<split>.tsv`. Input
    and output are streamed, so that they may be larger than the memory. The output
    appears when it is complete.

    Raises:
        ValueError: The model is for another task, the input is malformed, or it is the
            output.
        OSError: A file cannot be read or written.
    """
    output = pathlib.Path(options.output)
    if output.is_dir() or (output.exists() and output.samefile(options.input)):
        raise ValueError(f"--output must be a file other than --input. Got {output}.")
    model, config_class = serving.load(options.model), task_class.Config
    checkpoint, head = model.checkpoint, model.checkpoint.head
    if head["kind"] != task_class.kind:
        raise ValueError(
            f"--model must be a model for {task_class.kind}. {checkpoint.path} is a "
            f"model for {head['kind']}."
        )
    # A model of another project names no columns; they are the inputs of its signature.
    inputs = [spec.name for spec in model.signatures["serving_default"].input_signature]
    known = dict(zip(inputs, inputs)) | checkpoint.options
    fields = [field.name for field in dataclasses.fields(config_class)]
    known = {name: known.get(name, getattr(config_class, name, "")) for name in fields}
    examples = iter(task_class.read_input(config_class(**known), options.input))
    names = head.get("labels", ()), checkpoint.options.get("label_separator")

    def rows() -> Iterator[dict[str, Any]]:
        while batch := list(itertools.islice(examples, options.batch_size)):
            columns = list(zip(*(example.inputs for example in batch), strict=True))
            answers = task_class.answer(model, columns, options.batch_size)
            yield from prediction_rows(batch, answers, *names)

    count = data.write_table(options.output, tqdm(rows(), unit=" rows", disable=None))
    print(f"{count:,} rows in {options.output}.")


def prediction_rows(
    examples: Iterable[Example],
    answers: Mapping[str, Sequence[Any]],
    labels: Sequence[str] = (),
    separator: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a table of predictions.

    Args:
        examples: The inputs, N examples.
        answers: The outputs of the exported model that define the predictions, each
            with N rows: `label` or `labels`, and `probabilities`; `choice` and
            `probabilities`; `answer` and `score`; `tags` and `scores`; or only `score`,
            a number or a vector.
        labels: The names of the probabilities.
        separator: Separator of several labels, a comma by default.

    Yields:
        `id`; the texts; `prediction`; `confidence`, its probability; `gold`, if the
        input has it; and the probability of each label, `P(<label>)`. Several labels
        are independent: the confidence is the probability that all are right.
    """
    for index, example in enumerate(examples):
        answer = {name: values[index] for name, values in answers.items()}
        prediction = _prediction(answer, labels, separator or ",")
        texts = example.texts
        if texts is None:
            names = ("text_a", "text_b") if len(example.inputs) > 1 else ("text",)
            texts = dict(zip(names, example.inputs))
        row = {"id": example.id, **texts, **prediction}
        probabilities = answer.get("probabilities", ())
        if example.gold is not None:
            row["gold"] = example.gold
        row |= {f"P({n})": _rounded(p) for n, p in zip(labels, probabilities)}
        if "choice" in answer:  # Their number may vary. Batches are padded.
            if example.choices:
                row["prediction"] = example.choices[row["prediction"]]
            row["probabilities"] = _rounded(probabilities[: len(example.inputs[1])])
        yield row


def _prediction(
    answer: Mapping[str, Any], labels: Sequence[str], separator: str
) -> dict[str, Any]:
    """Returns the prediction and, if it has one, its probability.

    Returns other outputs as they are, those of a task of the user.
    """
    match answer:
        case {"label": prediction, "probabilities": probabilities}:
            confidence = max(probabilities)
        case {"labels": chosen, "probabilities": probabilities}:
            prediction = separator.join(filter(None, chosen))
            pairs = zip(labels, probabilities)
            confidence = math.prod(p if name in chosen else 1 - p for name, p in pairs)
        case {"choice": choice, "probabilities": probabilities}:
            prediction, confidence = int(choice), max(probabilities)
        case {"answer": prediction, "score": confidence}:
            pass
        case {"tags": tags, "scores": scores}:
            tags = [tag for tag in tags if tag]  # Of the padded row.
            prediction, confidence = " ".join(tags), scores[: len(tags)]
        case {"score": score}:
            vector = np.ndim(score) > 0
            return {"prediction": _rounded(score) if vector else float(f"{score:.7g}")}
        case _:
            return {name: np.asarray(value).tolist() for name, value in answer.items()}
    return {"prediction": prediction, "confidence": _rounded(confidence)}


def _rounded(value: Any) -> float | str:
    """Returns a number, or numbers separated by spaces, with six decimals."""
    if np.ndim(value):
        return " ".join(f"{x:.6f}" for x in value)
    return round(float(value), 6)
