# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model directory: the unit that every command reads and writes.

    config.json        architecture, tokenizer, head, and the options of the command
    vocab.txt          the WordPiece vocabulary, one token a line
    model.weights.h5   Keras weights of the whole model, heads included
    metrics.json       what was measured, written by the command that trained it

`ModelDirectory` is that folder as an object. Every file is written beside its place
and renamed, so a reader never sees half of one. `Checkpoint` is what it has in common
with the folders of others, which `bert_tf.convert` opens.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import h5py
import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import storage
from bert_tf.modeling.bert import BertBackbone, BertPretrainer
from bert_tf.modeling.config import BertConfig
from bert_tf.text.vocabulary import Vocabulary

CONFIG, VOCABULARY = "config.json", "vocab.txt"
WEIGHTS, METRICS = "model.weights.h5", "metrics.json"
_TRAINING_STATES = "training_state"

# Where Keras files the bias of the only dense layer that a model has itself.
_BIAS = "layers/dense/vars/1"
_STATES_KEPT = 2

# What TensorFlow raises, here and there, for a state that is truncated or another's.
_UNREADABLE = (
    tf.errors.OpError,
    AssertionError,
    LookupError,
    RuntimeError,
    ValueError,
)


@dataclasses.dataclass(frozen=True)
class Checkpoint(abc.ABC):
    """A trained BERT in a folder, of this project or another one.

    Attributes:
        path: The folder.
        architecture: The encoder's architecture.
        vocabulary: The WordPiece vocabulary.
        lowercase: Whether the tokenizer lower-cases and strips accents.
        head: What stands on the encoder: `{"kind": "encoder"}` for nothing,
            `{"kind": "pretrainer"}`, or the kind of a task and what it needs to be
            built again, e.g. its labels. Layers that were never trained stand in
            `"newly_initialized"`.
    """

    path: pathlib.Path
    architecture: BertConfig
    vocabulary: Vocabulary
    lowercase: bool
    head: Mapping[str, Any]

    @abc.abstractmethod
    def read_weights(self) -> dict[str, np.ndarray]:
        """Reads all trained weights, float32, by their `variable.path` in Keras.

        Those of a task's head are `logits/kernel` [H, C] and `logits/bias` [C].

        Raises:
            ValueError: A file is missing, damaged or of another model.
        """

    def load_into(self, model: keras.Model, *, head: bool = True) -> list[str]:
        """Gives the weights of `model` their values from here, each by its name.

        Args:
            model: A `BertBackbone` or a model that holds one.
            head: Whether to fill the head of a task too, the layer `logits`.

        Returns:
            The names of the layers that are not here and stay as they are; of those
            that are here in part the names of the weights.

        Raises:
            ValueError: A weight has another shape here; or as in `read_weights`.
        """
        weights = self.read_weights()
        fresh = []
        for variable in model.weights:
            name, shape = variable.path, tuple(variable.shape)
            if name not in weights or (name.startswith("logits/") and not head):
                fresh.append(name)
            elif weights[name].shape != shape:
                raise ValueError(
                    f"{self.path}: {name} has shape {list(weights[name].shape)}, and "
                    f"in the model to fill it is {list(shape)}."
                )
            else:
                variable.assign(weights[name])

        return _layers(fresh, [variable.path for variable in model.weights])

    def load_backbone(self, dtype: Any = None) -> BertBackbone:
        """Returns the encoder with its weights, whatever head the model has."""
        backbone = BertBackbone(self.architecture, dtype=dtype)
        self._name_fresh(self.load_into(backbone))
        return backbone

    def load_pretrainer(self, dtype: Any = None) -> BertPretrainer:
        """Returns encoder and pre-training heads with their weights.

        Raises:
            ValueError: It is a fine-tuned model.
        """
        if self.head["kind"] not in ("pretrainer", "encoder"):
            raise ValueError(
                f"{self.path} holds a model for {self.head['kind']}; the pre-training "
                "heads are in the directory that bert_tf.pretrain wrote."
            )
        model = BertPretrainer(BertBackbone(self.architecture, dtype=dtype))
        self._name_fresh(self.load_into(model))
        return model

    def _name_fresh(self, fresh: list[str]) -> None:
        if fresh:
            logging.warning(
                "%s has no %s: random values stand there.", self.path, ", ".join(fresh)
            )


def _layers(fresh: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names layers instead of their weights, where all of these are `fresh`."""
    filled = {name.partition("/")[0] for name in set(names) - set(fresh)}
    layers = {name: name.partition("/")[0] for name in fresh}
    return list(dict.fromkeys(n if of in filled else of for n, of in layers.items()))


@dataclasses.dataclass(frozen=True)
class ModelDirectory(Checkpoint):
    """A model directory on disk, a `Checkpoint` of this project.

    Attributes:
        options: The options of the command that made it.
    """

    options: Mapping[str, Any]

    @classmethod
    def open(cls, path: str | os.PathLike) -> ModelDirectory:
        """Reads `config.json` and `vocab.txt`.

        Raises:
            ValueError: The folder is not a model directory; the message says what
                is missing or wrong.
        """
        path = pathlib.Path(path)
        if not (path / CONFIG).is_file():
            raise ValueError(
                f"{path} is not a model directory: it has no {CONFIG}. Train one "
                "with `python -m bert_tf.pretrain --output=...`."
            )
        try:
            config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
            architecture = BertConfig(**config["architecture"])
            lowercase, head = config["tokenizer"]["lowercase"], config["head"]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path / CONFIG}: not the config of a model directory: {error!r}"
            ) from error
        vocabulary = Vocabulary.from_file(path / VOCABULARY)
        if vocabulary.size != architecture.vocabulary_size:
            raise ValueError(
                f"{path}: {CONFIG} says {architecture.vocabulary_size} tokens, "
                f"{VOCABULARY} has {vocabulary.size}."
            )
        options = config.get("options", {})
        return cls(path, architecture, vocabulary, lowercase, head, options)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike,
        *,
        architecture: BertConfig,
        vocabulary: Vocabulary,
        lowercase: bool,
        head: Mapping[str, Any],
        options: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        resumable: Collection[str] = (),
        write: bool = True,
    ) -> ModelDirectory:
        """Makes the folder, or takes up one that the same command made before.

        Args:
            defaults: What an option was that the earlier run did not know yet.
            resumable: Names of `options` that may differ from the earlier run's.
            write: Whether to make it; of several workers one does, and all check.

        Raises:
            ValueError: The folder holds a model of another configuration; the
                message lists each difference with both values.
        """
        path = pathlib.Path(path)
        new = cls(path, architecture, vocabulary, lowercase, head, options)
        if (path / CONFIG).exists():
            new._refuse_if_different(cls.open(path), defaults or {}, resumable)
        if not write:
            return new
        path.mkdir(parents=True, exist_ok=True)
        config = {
            "architecture": dataclasses.asdict(architecture),
            "tokenizer": {"lowercase": lowercase},
            "head": dict(head),
            "options": dict(options),
        }
        vocabulary.write(path / VOCABULARY)
        storage.write_json(path / CONFIG, config)  # Last: it makes the folder a model.
        return new

    def _refuse_if_different(self, old: ModelDirectory, defaults, resumable) -> None:
        def flat(directory):
            facts = {**defaults, "vocabulary": directory.vocabulary.fingerprint}
            facts |= dataclasses.asdict(directory.architecture)
            facts |= {"lowercase": directory.lowercase, **directory.head}
            facts |= dict(directory.options)
            return {k: v for k, v in facts.items() if k not in resumable}

        before, now = flat(old), flat(self)
        differences = [
            f"  {name}: {before.get(name)!r} before, {now.get(name)!r} now"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        if differences:
            raise ValueError(
                f"{self.path} holds a model that was begun with other options:\n"
                + "\n".join(differences)
                + "\nContinue with the same ones, or choose another --output."
            )

    # --- Weights ---------------------------------------------------------------

    @property
    def has_weights(self) -> bool:
        return (self.path / WEIGHTS).is_file()

    def save_weights(self, model: keras.Model) -> None:
        """Writes `model.weights.h5`, replacing the one that is there."""
        with storage.atomic_path(self.path / WEIGHTS) as unfinished:
            model.save_weights(unfinished)

    def load_weights(self, model: keras.Model) -> None:
        """Fills `model`, built as `head` says, from `model.weights.h5`.

        Raises:
            ValueError: The file is missing, truncated, or of another model.
        """
        weights = self.path / WEIGHTS
        if not weights.is_file():
            raise ValueError(
                f"{self.path} has no {WEIGHTS}: its training has not come to the "
                "first checkpoint. Run the same command again to continue it."
            )
        with _readable(weights):
            model.load_weights(weights)

    def read_weights(self) -> dict[str, np.ndarray]:
        model = matching_model(self.architecture, self.head["kind"], self._units())
        self.load_weights(model)
        fresh = self.head.get("newly_initialized", ())
        return {
            variable.path: keras.ops.convert_to_numpy(variable)
            for variable in model.weights
            if variable.path.split("/")[0] not in fresh
        }

    def _units(self) -> int | None:
        """Outputs of the task's head, from its weights; None for other models."""
        if self.head["kind"] in ("encoder", "pretrainer") or not self.has_weights:
            return None
        with _readable(self.path / WEIGHTS), h5py.File(self.path / WEIGHTS) as file:
            if _BIAS not in file:
                raise ValueError(
                    f"{self.path}: its head is not one dense layer on the encoder, so "
                    "that it is nothing to start from. Take what it was started from."
                )
            return file[_BIAS].shape[0]

    def copy(self, path: pathlib.Path) -> None:
        """Makes `path` a model directory of these weights, whatever is there."""
        shutil.rmtree(path, ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        with storage.atomic_path(path) as unfinished:
            unfinished.mkdir()
            for name in (CONFIG, VOCABULARY, WEIGHTS):
                shutil.copyfile(self.path / name, unfinished / name)

    # --- Metrics ---------------------------------------------------------------

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        storage.write_json(self.path / METRICS, metrics)

    def read_metrics(self) -> dict[str, Any]:
        """Returns what was measured; nothing before the training is finished."""
        path = self.path / METRICS
        return storage.read_json(path) if path.exists() else {}


def matching_model(
    architecture: BertConfig, kind: str, units: int | None
) -> keras.Model:
    """Returns a model whose weights file is that of models with such a head.

    Args:
        architecture: Of the encoder.
        kind: `"encoder"`, `"pretrainer"`, or that of a task.
        units: Outputs of the task's layer `logits`.
    """
    backbone = BertBackbone(architecture, dtype="float32")
    if kind == "encoder":
        return backbone
    if kind == "pretrainer":
        return BertPretrainer(backbone)
    logits = keras.layers.Dense(units, dtype="float32", name="logits")
    pooled = backbone(backbone.input)["pooled_output"]
    return keras.Model(backbone.input, logits(pooled))


@contextlib.contextmanager
def _readable(weights: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"{weights}: not a readable HDF5 file: {error}") from error
