# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains the model of a task, evaluates, reports and exports it."""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import cli, data, serving, training
from bert_tf.checkpoints import Checkpoint, ModelDirectory
from bert_tf.finetuning import batching
from bert_tf.finetuning.distillation import Distiller
from bert_tf.finetuning.report import finetuning_report
from bert_tf.finetuning.task import Evaluation, Task

# Options that do not change the graphs of a training.
_NOT_IN_GRAPHS = {"init_from", "output", "export", "seed"}


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """A run: what `fine_tune` does after its checks.

    Attributes:
        task: The task.
        teacher: The result of `distillation.open_teacher`.
        directory: The model directory.
        devices: Where to train.
        cache: See `fine_tune`.
    """

    task: Task
    teacher: Checkpoint | None
    directory: ModelDirectory
    devices: training.Devices
    cache: dict[str, Any]

    @functools.cached_property
    def dataset(self) -> Any:
        """`task.dataset`, which tokenizes a split once."""
        return functools.cache(self.task.dataset)

    @property
    def dev(self) -> str:
        """The split that selects the best epoch."""
        return self.task.evaluation_splits[0]

    @property
    def limits(self) -> tuple[int, int]:
        """The size and the maximum length of batches."""
        return self.task.options.batch_size, self.task.options.max_sequence_length

    def run(self) -> dict[str, Any]:
        """Returns the metrics of the training and of each labeled split."""
        task, directory, options = self.task, self.directory, self.task.options
        model = self.build_model()
        if trained := directory.read_metrics().get("training"):
            print(f"{directory.path} is already trained; skipping training.")
        else:
            model, trained = self.train(model)
        directory.load_weights(model)  # Those of the best epoch.
        found = self.evaluate(model)
        metrics = {"training": trained}
        metrics |= {name: x.metrics for name, x in found.items() if x.metrics}
        if decision := next(iter(found.values())).decision:
            metrics["decision"] = dict(decision)
            directory = directory.write_decision(decision)
        directory.write_metrics(metrics)
        if metrics.keys() & found.keys():
            finetuning_report(task, directory.path, trained, found)
        print(f"Best epoch by {task.metric}: {trained['best_epoch']}.")
        print(f"Model, metrics, predictions and report.md are in {options.output}.")
        following = f"{cli.program(type(task))} --predict --model={options.output}"
        following += " --input=... --output=..."
        if options.export:
            print(f"Exported to {self.export(model, directory)}.")
            following = f"--model_base_path={options.export} --demo"
            following = f"python -m bert_tf.serve {following}"
        print(f"Next: {following}")
        return metrics

    def build_model(self) -> keras.Model:
        """Returns the task's model with its initial weights."""
        task, options, encoder = self.task, self.task.options, self.task.encoder
        keras.utils.set_random_seed(options.seed)
        with self.devices.scope():
            backbone = encoder.build_backbone(options.precision)
            if count := options.frozen_layers:
                for layer in (backbone.embeddings, *backbone.encoder_layers[:count]):
                    layer.trainable = False
            model = task.head.build(backbone)
            model.jit_compile = self.devices.jit_compile
            if options.init_from and not self.directory.read_metrics().get("training"):
                ours, theirs = self.directory.head, encoder.head
                same = all(ours.get(x) == theirs.get(x) for x in ("kind", "labels"))
                missing = encoder.load_into(model, part=None if same else backbone)
                if same and task.scale and "logits" not in missing:
                    task.scale.standardize_layer(model.get_layer("logits"))
                new = ", ".join(missing) or "none"
                print(
                    f"Initialized from {encoder.path}. Newly initialized layers: {new}."
                )
        return model

    def train(self, model: keras.Model) -> tuple[keras.Model, dict[str, Any]]:
        """Trains the model, or resumes from the last training state.

        Writes the weights of the best epoch and the metrics to the directory.

        Returns:
            The trained model, which may be that of `cache`; and `metric`, the name of
            the metric on the dev set; its `score` in `best_epoch` (counted from 1);
            `epochs`, the losses and scores of each epoch; `seconds`.
        """
        task, directory, options = self.task, self.directory, self.task.options
        split = self.dataset("train")
        steps_per_epoch = math.ceil(len(split) / options.batch_size)
        steps = steps_per_epoch * options.epochs
        with self.devices.scope():
            model, trainable, devices = self._compiled(model, steps)
            state = training.TrainingState(directory, trainable)
            step = state.restore()
        _check_training_data(state, split)
        print(
            f"{len(split):,} training examples, {split.lengths.mean():.0f} tokens on "
            f"average; {options.epochs} epochs of {steps_per_epoch:,} steps; "
            f"learning rate {task.learning_rate:g}; "
            f"{state.model.count_params():,} weights"
            + (f"; resuming at step {step:,} of {steps:,}." if step else ".")
        )
        loop = training.TrainingLoop(devices, state, steps, report_steps=True)
        history = loop.progress.setdefault("epochs", [])
        change = task.scale.restore_weights if task.scale else dict
        order = {"epochs": options.epochs, "seed": options.seed}
        batches = functools.partial(batching.batches, split, *self.limits, **order)
        evaluate = functools.partial(self._evaluate_epoch, model, loop)
        for epoch in loop.intervals(
            batches, evaluate, steps=steps, interval_steps=steps_per_epoch
        ):
            logs, seconds = epoch["logs"], loop.progress.get("seconds", 0.0)
            history.append(logs)
            loop.progress["seconds"] = seconds + epoch["seconds"]
            data.write_table(directory.path / "history.csv", history)
            scores = [row[f"{self.dev}_{task.metric}"] for row in history]
            best = scores.index(max(scores))
            if best + 1 == len(history):
                directory.save_weights(model, change)
            shown = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
            text = f"Epoch {len(history)} of {options.epochs}: {shown}"
            loop.report(logs, len(history) - 1, text)
            if task.should_stop(scores):
                break
            if len(history) < options.epochs:
                loop.save()
        metrics = {
            "metric": f"{self.dev} {task.metric}",
            "score": scores[best],
            "best_epoch": best + 1,
            "epochs": history,
            "seconds": round(loop.progress["seconds"], 1),
        }
        directory.write_metrics({"training": metrics})  # The training is finished.
        state.remove()
        return model, metrics

    def _compiled(
        self, model: keras.Model, steps: int
    ) -> tuple[keras.Model, keras.Model, training.Devices]:
        """Compiles a model, or takes those of `cache` if they have the same graphs.

        Returns:
            The model; the model that trains it, with its optimizer and the teacher; and
            the devices, which keep its steps.
        """
        task, devices, options = self.task, self.devices, self.task.options.to_dict()
        trainable, optimizer = task.training_model(model), task.optimizer(steps)
        graphs = {k: x for k, x in options.items() if k not in _NOT_IN_GRAPHS}
        encoder = task.encoder.architecture, task.encoder.encoder
        graphs = type(task), encoder, dict(self.directory.head), steps, graphs
        if self.cache.get("graphs") == graphs:
            _, used, _ = compiled = self.cache["compiled"]
            optimizer.build(trainable.trainable_variables)
            initial = [*trainable.variables, *optimizer.variables]
            variables = [*used.variables, *used.optimizer.variables]
            for variable, value in zip(variables, initial, strict=True):
                variable.assign(value)
            return compiled
        trainable.compile(optimizer)
        trainable.jit_compile = devices.jit_compile
        self.cache.clear()
        if self.teacher:
            training.create_training_variables(trainable)
            trainable = Distiller(task, self.teacher, trainable)
            trainable.compile(optimizer, jit_compile=devices.jit_compile)
        elif (keras.backend.backend(), options["strategy"]) == (
            "tensorflow",
            "default",
        ):
            devices.steps = functools.cache(devices.steps)
            self.cache.update(graphs=graphs, compiled=(model, trainable, devices))
        return model, trainable, devices

    def _evaluate_epoch(
        self, model: keras.Model, loop: training.TrainingLoop
    ) -> dict[str, float]:
        """Returns the metrics of the dev set; warns if all predictions are the same."""
        task, dev = self.task, self.dataset(self.dev)
        callback = keras.callbacks.LambdaCallback(
            on_predict_batch_end=lambda batch, logs: loop.check_signals()
        )
        outputs = batching.predict(model, dev, *self.limits, callbacks=[callback])
        if task.scale:
            outputs = task.scale.restore(np.asarray(outputs, np.float64))
        found = task.evaluate(dev, outputs)
        first, *others = (
            row["prediction"] for row in task.rows(dev.name, found.answers)
        )
        if others and all(value == first for value in others):
            logging.warning(
                "Epoch %d of %d: all %s predictions are %r. If they still are at the "
                "end, pass more --epochs, a smaller --batch_size or another "
                "--learning_rate.",
                len(loop.progress["epochs"]) + 1, task.options.epochs, dev.name, first,
            )  # fmt: skip
        scores = found.metrics.items()
        return {f"{dev.name}_{name}": float(score) for name, score in scores}

    def evaluate(self, model: keras.Model) -> dict[str, Evaluation]:
        """Evaluates all splits with the decision for the first; writes predictions."""
        found, decision = {}, None
        for name in self.task.evaluation_splits:
            split = self.dataset(name)
            outputs = batching.predict(model, split, *self.limits)
            result = self.task.evaluate(split, outputs, decision)
            found[name], decision = result, result.decision
            if result.report:
                print(f"\n{name}:\n{result.report}")
            if result.metrics:
                shown = (f"{key} {value:.4f}" for key, value in result.metrics.items())
                print(f"{name}: {', '.join(shown)}")
            self.task.write_predictions(name, result.answers, self.directory.path)
        return found

    def export(self, model: keras.Model, directory: ModelDirectory) -> Any:
        """Exports the model in float32, as `bert_tf.export`; returns the path."""
        task, head = self.task, self.task.build_head(directory.head)
        if task.options.precision != "float32" or self.devices.replicas > 1:
            weights = model.get_weights()
            model = head.build(directory.build_backbone())
            model.set_weights(weights)
        signatures = serving.head_signatures(head, model)
        path = task.options.export
        return serving.export_saved_model(signatures, path, checkpoint=directory)


def _check_training_data(state: training.TrainingState, split: batching.Split) -> None:
    """Raises ValueError if a training resumes with other training data."""
    parts = [split.rows.tokens, split.rows.segment_starts, split.targets, split.weights]
    content = 0
    for part in tf.nest.flatten(parts, expand_composites=True):
        if part is not None:
            content = zlib.crc32(np.ascontiguousarray(part), content)
    if state.progress.setdefault("training_examples", content) != content:
        raise ValueError(
            f"The training data have changed since step {state.step:,} of "
            f"{state.directory.path}. Restore them to resume, or choose another "
            "--output."
        )
