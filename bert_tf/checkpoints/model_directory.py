# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model directory, which every command writes: a Hugging Face folder.

    config.json                  transformers' settings; under "bert_tf", ours
    vocab.txt                    the WordPiece vocabulary, one token per line
    tokenizer.json, tokenizer_config.json
    model.safetensors            weights, under the names of transformers
    modules.json, 1_Pooling/     sentence encoders, as sentence-transformers needs them
    metrics.json                 metrics of the finished training

transformers and sentence-transformers open it, and `open_checkpoint` opens folders that
they wrote. Heads that transformers lacks have their Keras paths as names of weights,
and `config.json` then declares no model class.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np

from bert_tf import storage
from bert_tf.checkpoints import folder_tokenizer, hugging_face, sentence_transformers
from bert_tf.checkpoints.checkpoint import (
    METRICS,
    Checkpoint,
    outermost_layer,
    read_json_object,
)
from bert_tf.checkpoints.foreign import ForeignCheckpoint

CONFIG, WEIGHTS = hugging_face.CONFIG, hugging_face.WEIGHTS

# Entries of a head that follow from the weights or the data.
_NOT_COMPARED = {"decision", "deviation", "mean", "newly_initialized"}


@dataclasses.dataclass(frozen=True, repr=False)
class ModelDirectory(Checkpoint):
    """A model directory to write.

    The `head` of a regression may have the `mean` and `deviation` of standardized
    scores that the model is trained on. The folder has the weights of a model whose
    output is the score itself.
    """

    format: ClassVar[str] = "model directory"
    notes: ClassVar[Sequence[str]] = ()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike,
        *,
        resumable: Collection[str] = (),
        write: bool = True,
        **attributes: Any,
    ) -> ModelDirectory:
        """Creates the folder, or resumes one that the same command created.

        Args:
            path: The folder. If it is remote, `storage.upload` copies the files there.
            resumable: Names of `options` that may differ from the earlier run.
            write: Whether to write files. With several workers, only one writes.
            **attributes: `architecture`, `vocabulary`, `lowercase`, `rules`, `head`
                and `options` of the model directory.

        Raises:
            ValueError: The folder contains a model with another configuration. The
                message lists each difference with both values.
        """
        path = pathlib.Path(storage.local_copy(os.fspath(path)))
        new = cls(path, **attributes)
        class_name = hugging_face.model_class(new.head)
        if (path / CONFIG).exists():
            old = open_folder(path)
            new._check_same(old, resumable)
            class_name = new._declared_class()
            if "decision" in old.head:
                head = {**new.head, "decision": old.head["decision"]}
                new = dataclasses.replace(new, head=head)
        if write:
            path.mkdir(parents=True, exist_ok=True)
            folder_tokenizer.write_tokenizer(path, new)
            if new.head["kind"] == "embedding":
                sentence_transformers.write_modules(new)
            # Last, because this file marks the folder as a model directory.
            new._write_config(class_name)
        return new

    def _check_same(self, old: Checkpoint, resumable: Collection[str]) -> None:
        def flat(checkpoint):
            values = dataclasses.asdict(checkpoint.architecture)
            values |= {"vocabulary": checkpoint.vocabulary.fingerprint}
            values |= {"lowercase": checkpoint.lowercase}
            added = sorted(checkpoint.rules.added_tokens, key=str)
            rules = dataclasses.replace(checkpoint.rules, added_tokens=added)
            values |= rules.to_dict()
            head = {k: v for k, v in checkpoint.head.items() if k not in _NOT_COMPARED}
            values |= {**head, **checkpoint.options}
            return {k: v for k, v in values.items() if k not in resumable}

        before, now = flat(old), flat(self)
        differences = [
            f"  {name}: {before.get(name)!r} before, {now.get(name)!r} now"
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]
        if differences:
            raise ValueError(
                f"{self.path} contains a model with other options:\n"
                + "\n".join(differences)
                + "\nUse the same options to resume, or choose another --output."
            )

    def _write_config(self, class_name: str | None) -> None:
        config = hugging_face.to_config(self, class_name)
        storage.write_json(self.path / CONFIG, config)

    def _declared_class(self) -> str | None:
        config = read_json_object(self.path / CONFIG)
        return (config.get("architectures") or [None])[0]

    def write_decision(self, decision: Mapping[str, Any]) -> ModelDirectory:
        """Adds settings that were fitted on a dev set to the head."""
        head = {**self.head, "decision": dict(decision)}
        new = dataclasses.replace(self, head=head)
        new._write_config(self._declared_class())
        return new

    # --- Weights ---------------------------------------------------------------

    @property
    def has_weights(self) -> bool:
        return (self.path / WEIGHTS).is_file()

    def save_weights(self, model: keras.Model) -> None:
        """Writes the weights of `model` atomically, without the optimizer."""
        untrained = self.head.get("newly_initialized", ())
        self.write_weights(
            {
                variable.path: keras.ops.convert_to_numpy(variable)
                for variable in model.weights
                if outermost_layer(variable.path) not in untrained
            }
        )

    def write_weights(self, weights: Mapping[str, np.ndarray]) -> list[str]:
        """Writes weights by our names, atomically.

        Returns:
            The names of the weights that the format cannot hold.
        """
        if scale := self.head.get("deviation"):
            names = ("logits/kernel", "logits/bias")
            kernel, bias = (weights[name] * scale for name in names)
            scores = zip(names, (kernel, bias + self.head["mean"]))
            weights = {**weights, **dict(scores)}
        class_name = hugging_face.model_class(self.head, weights)
        if class_name != self._declared_class():
            self._write_config(class_name)
        tensors, left_out = hugging_face.to_tensors(
            class_name, weights, self.architecture
        )
        if self.head["kind"] == "embedding":
            # A training that is killed between both files resumes from a state before
            # them, and writes them again.
            left_out = sentence_transformers.write_dense(self.path, weights, left_out)
        hugging_face.write_tensors(self.path / WEIGHTS, tensors)
        return left_out

    def read_weights(self) -> dict[str, np.ndarray]:
        return open_folder(self.path).read_weights()

    def load_weights(self, model: keras.Model) -> None:
        """Loads the weights that were written into `model`.

        Raises:
            ValueError: A file is missing, truncated or belongs to another model.
        """
        written = open_folder(self.path)
        unused = {"pooler", *self.head.get("newly_initialized", ())}
        missing = set(written.load_into(model)) - unused
        if missing:
            raise ValueError(
                f"{self.path} has no weights for {', '.join(sorted(missing))}."
            )

    # --- Metrics ---------------------------------------------------------------

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        storage.write_json(self.path / METRICS, metrics)


def model_files(path: pathlib.Path) -> list[str]:
    """Returns the paths of a model's files in its directory, `config.json` last."""
    patterns = (WEIGHTS, "vocab.txt", "[0-9]_*/*", "*.json")
    files = (file for pattern in patterns for file in path.glob(pattern))
    names = [str(file.relative_to(path)) for file in files]
    return sorted(names, key=lambda name: name == CONFIG)


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder that `ModelDirectory` wrote, with or without weights."""
    if (path / sentence_transformers.MODULES).is_file():
        return sentence_transformers.open_folder(path)
    return hugging_face.open_folder(path)
