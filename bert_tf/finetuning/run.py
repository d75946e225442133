# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes an encoder on a task (paper, section 4 and appendix A.3).

A module of `tasks/` calls `main` with its task. In: a checkpoint to start from, of this
project or another one, and the task's files. Out: a model directory with config.json,
vocab.txt, the weights of the best epoch, metrics.json, TensorBoard logs, and
predictions for each evaluated split. The same command run again continues after the
last epoch that an interrupted training has finished; where the training is finished, it
evaluates, predicts and exports.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf import serving, storage
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.model_directory import Checkpoint, ModelDirectory
from bert_tf.finetuning import batching, sweep
from bert_tf.finetuning import report as comparison
from bert_tf.finetuning.batching import Split
from bert_tf.finetuning.task import FinetuneConfig, Task
from bert_tf.modeling.bert import BertBackbone
from bert_tf.modeling.config import BertConfig
from bert_tf.text.tokenizer import Tokenizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import strategy as distribution
from bert_tf.training.checkpoint import TrainingState
from bert_tf.training.optimizers import AdamW, WarmupDecay

_WARMUP_SHARE = 0.1  # Of all steps, as in google-research/bert.


def main(task_class: type[Task], *grid: FinetuneConfig) -> dict[str, Any]:
    """Fine-tunes once for each of the options and each of their seeds.

    Returns:
        The metrics of the run that is best on dev, whose model is kept.

    Raises:
        ValueError: An option or the data are wrong, or the loss is not finite.
    """
    runs = sweep.expand(grid)
    if len(runs) > 1:
        runs = [sweep.best(runs, functools.partial(fine_tune, task_class))]
    return fine_tune(task_class, *runs)


def fine_tune(task_class: type[Task], options: FinetuneConfig) -> dict[str, Any]:
    """Fine-tunes once, evaluates, predicts and exports; returns the metrics.

    Where a finished training left its weights, they are not trained again; where it
    left none, its metrics are all that is returned.
    """
    # === Check everything before anything is written ===
    encoder = _Encoder.open(options)
    strategy = distribution.strategy(options.strategy)
    distribution.check_batch_size(options.batch_size, strategy.num_replicas_in_sync)
    tokenizer = Tokenizer(encoder.vocabulary, lowercase=encoder.lowercase)
    task = task_class(options, tokenizer)
    directory = ModelDirectory.create(
        options.output,
        architecture=encoder.architecture,
        vocabulary=encoder.vocabulary,
        lowercase=encoder.lowercase,
        head={"kind": task.kind, **task.head},
        options=options.to_dict(),
        defaults=options.defaults(),
        resumable=options.resumable(),
    )

    # === Training ===
    training = directory.read_metrics().get("training")
    if training and not directory.has_weights:
        return directory.read_metrics()
    keras.utils.set_random_seed(options.seed)
    with strategy.scope():
        model = task.model(BertBackbone(encoder.architecture, dtype=options.precision))
        if encoder.source:
            _fill(model, encoder.source, directory.head)
    if training:
        model.jit_compile = False
        print(f"{directory.path} is finished and not trained again.")
    else:
        training = train(task, model, directory, strategy)

    # === Evaluation of the best epoch ===
    metrics = {"training": training}
    directory.load_weights(model)
    for name in task.evaluation_splits:
        split = task.dataset(name)
        outputs = _predict(task.trainable_model(model), split, options)
        if split.targets is not None:
            metrics[name] = task.evaluate(split, outputs)
            gold, predicted = task.gold_and_predicted(split, outputs)
            print(f"\n{name}:\n{comparison.table(gold, predicted)}")
            comparison.plot(
                gold,
                predicted,
                title=f"{task.kind}, {name}",
                path=directory.path / f"comparison_{name}.png",
            )
        task.write_predictions(split, outputs, directory.path)
    directory.write_metrics(metrics)
    _report(task, directory, metrics)
    if options.export:
        print(f"Exported to {_export(task, directory)}.")
    return metrics


def train(
    task: Task,
    model: keras.Model,
    directory: ModelDirectory,
    strategy: tf.distribute.Strategy,
) -> dict[str, Any]:
    """Fits the model, from the last epoch on that an interrupted training finished.

    `directory` keeps the weights of the epoch that is best on dev, and the metrics.

    Returns:
        `metric`, the name of the `score` on dev of the `best_epoch` (from 1); `majority_baseline`,
        the score of one answer for everything; `epochs`, the losses and scores of each;
        and `seconds`.
    """
    options = task.options
    split = task.dataset("train")
    steps_per_epoch = math.ceil(len(split) / options.batch_size)
    steps = steps_per_epoch * options.epochs
    schedule = WarmupDecay(options.learning_rate, int(_WARMUP_SHARE * steps), steps)
    part = task.trainable_model(model)
    with strategy.scope():
        # Without XLA, which would compile for every sequence length.
        part.compile(AdamW(schedule), jit_compile=False)
        distribution.prepare(part)
        state = TrainingState(directory, part, distribution.seed_generators(part))
        first_epoch = state.restore() // steps_per_epoch
    print(
        f"{len(split):,} training examples of {split.lengths.mean():.0f} tokens on "
        f"average; {options.epochs} epochs of {steps_per_epoch:,} steps; "
        f"{part.count_params():,} weights"
        + (f"; continues after epoch {first_epoch}." if first_epoch else ".")
    )
    epochs = _Epochs(task, model, state, first_epoch)
    part.fit(
        batching.batches(
            split,
            options.batch_size,
            max_length=options.max_sequence_length,
            first_epoch=first_epoch,
            epochs=options.epochs,
            seed=options.seed,
            static_shape=_static_shape(options),
        ),
        initial_epoch=first_epoch,
        epochs=options.epochs,
        steps_per_epoch=steps_per_epoch,
        shuffle=False,  # The batches are shuffled already.
        # A bar that moves is for terminals, a line per epoch for files.
        verbose=1 if sys.stdout.isatty() else 2,
        callbacks=[
            epochs,
            keras.callbacks.TensorBoard(directory.path / "logs", write_graph=False),
        ],
    )
    training = {
        "metric": f"{epochs.split.name} {task.metric}",
        "score": epochs.scores[epochs.best],
        "majority_baseline": task.majority_baseline(epochs.split),
        "best_epoch": epochs.best + 1,
        "epochs": epochs.history,
        "seconds": round(epochs.seconds, 1),
    }
    directory.write_metrics({"training": training})  # From here on it is finished.
    state.remove()
    return training


def _fill(model: keras.Model, source: Checkpoint, head: Mapping[str, Any]) -> None:
    """Takes the encoder's weights, and the head's where it is one for the same task."""
    same_task = all(source.head.get(key) == head.get(key) for key in ("kind", "labels"))
    fresh = source.load_into(model, head=same_task)
    print(
        f"Starts from {source.path}; with random values: {', '.join(fresh) or 'none'}."
    )


class _Epochs(keras.callbacks.Callback):
    """Evaluates on dev after each epoch; keeps the best weights, and how to go on.

    Attributes:
        split: The examples of dev.
        history: Losses and scores of each epoch.
        seconds: Wall-clock time of them, evaluation included.

    Raises:
        sweep.Diverged: From within `fit`, when the loss is not finite. The weights of
            the best epoch before stay.
    """

    def __init__(
        self, task: Task, model: keras.Model, state: TrainingState, first_epoch: int
    ):
        super().__init__()
        self._task = task
        self._whole_model = model
        self._state = state
        self._file = state.path / "epochs.json"
        self.split = task.dataset(task.evaluation_splits[0])
        done = storage.read_json(self._file) if first_epoch else {}
        self.history: list[dict[str, float]] = done.get("epochs", [])[:first_epoch]
        self.seconds: float = done.get("seconds", 0.0)

    @property
    def scores(self) -> list[float]:
        """Of each epoch, on dev."""
        return [row[f"{self.split.name}_{self._task.metric}"] for row in self.history]

    @property
    def best(self) -> int:
        """The epoch with the best score, from 0; the first one of several."""
        return max(range(len(self.history)), key=self.scores.__getitem__)

    def on_train_begin(self, logs=None):
        self._start = time.perf_counter() - self.seconds

    def on_train_batch_end(self, batch, logs=None):
        if not math.isfinite(logs["loss"]):
            raise sweep.Diverged(
                f"The loss of epoch {len(self.history) + 1}, step {batch + 1} is not "
                f"finite ({logs['loss']}). A lower --learning_rate may help."
            )

    def on_epoch_end(self, epoch, logs=None):
        outputs = _predict(self.model, self.split, self._task.options)
        scores = self._task.evaluate(self.split, outputs)
        # Callbacks that come later, the progress bar's too, see the scores in `logs`.
        logs.update({f"{self.split.name}_{k}": v for k, v in scores.items()})
        self.history.append({name: float(value) for name, value in logs.items()})
        if self.best == epoch:
            self._state.directory.save_weights(self._whole_model)
        self.seconds = time.perf_counter() - self._start
        if epoch + 1 < self._task.options.epochs:
            # Before the state: of the epochs of a state, the scores are there.
            done = {"epochs": self.history, "seconds": self.seconds}
            self._file.parent.mkdir(exist_ok=True)
            storage.write_json(self._file, done)
            self._state.save(weights=False)


def _predict(model: keras.Model, split: Split, options: FinetuneConfig) -> list[Any]:
    return batching.predict(
        model,
        split,
        options.batch_size,
        max_length=options.max_sequence_length,
        static_shape=_static_shape(options),
    )


def _static_shape(options: FinetuneConfig) -> bool:
    return options.strategy == "tpu"


def _export(task: Task, directory: ModelDirectory) -> pathlib.Path:
    # A model of its own, of one device and without what only training needs.
    precision = task.options.export_precision
    model = task.model(BertBackbone(directory.architecture, dtype=precision))
    directory.load_weights(model)
    functions = task.serve(serving.optimize_for_inference(model))
    return serving.export_saved_model(
        functions, task.options.export, directory=directory
    )


def _report(task: Task, directory: ModelDirectory, metrics: dict[str, Any]) -> None:
    for name in task.evaluation_splits:
        if name in metrics:
            scores = ", ".join(f"{k} {v:.4f}" for k, v in metrics[name].items())
            print(f"{name}: {scores}")
    training = metrics["training"]
    if sweep.has_collapsed(training["score"], training["majority_baseline"]):
        print(
            f"It learned nothing: one answer for everything has {task.metric} "
            f"{training['majority_baseline']:.4f}. Try another --learning_rate or --seed, or more "
            "--epochs."
        )
    print(
        f"Epoch {training['best_epoch']} of {len(training['epochs'])} was the best by "
        f"{task.metric}. Model, metrics and predictions in {directory.path}."
    )


@dataclasses.dataclass(frozen=True)
class _Encoder:
    """What fine-tuning starts from: a checkpoint, or random weights."""

    architecture: BertConfig
    vocabulary: Vocabulary
    lowercase: bool
    source: Checkpoint | None = None

    @classmethod
    def open(cls, options: FinetuneConfig) -> _Encoder:
        random = bool(options.size and options.vocabulary)
        if random == bool(options.init_from) or (
            options.init_from and (options.size or options.vocabulary)
        ):
            raise ValueError(
                "Give either --init_from, or both --size and --vocabulary to start "
                f"from random weights. Received: init_from={options.init_from!r}, "
                f"size={options.size!r}, vocabulary={options.vocabulary!r}"
            )
        if random:
            vocabulary = Vocabulary.from_file(options.vocabulary)
            architecture = BertConfig.resolve(options.size, vocabulary.size)
            encoder = cls(architecture, vocabulary, options.lowercase)
        else:
            source = formats.open_checkpoint(options.init_from)
            encoder = cls(
                source.architecture, source.vocabulary, source.lowercase, source
            )
        if options.bilstm:
            architecture = dataclasses.replace(encoder.architecture, bilstm=True)
            encoder = dataclasses.replace(encoder, architecture=architecture)
        limit = encoder.architecture.max_sequence_length
        if options.max_sequence_length > limit:
            raise ValueError(
                f"The encoder has {limit} positions. Received: --max_sequence_length="
                f"{options.max_sequence_length}"
            )
        return encoder
