# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all checkpoints have, whatever their format; JSON files."""

from __future__ import annotations

import abc
import collections
import dataclasses
import inspect
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
from absl import logging

from bert_tf import heads, storage
from bert_tf.modeling import BertBackbone, BertConfig, BertModel, BertPretrainer
from bert_tf.text import GOOGLE_RULES, TokenizerRules, Vocabulary

METRICS = "metrics.json"


@dataclasses.dataclass(frozen=True, repr=False)
class Checkpoint(abc.ABC):
    """A trained BERT in a folder: a model directory or another project's format.

    Attributes:
        format: The name of the format.
        path: The folder.
        architecture: The architecture of the encoder.
        vocabulary: The WordPiece vocabulary.
        lowercase: Whether the tokenizer lowercases texts.
        rules: All other rules of the tokenizer.
        original_tokenizer: The tokenizer of a Hugging Face folder in the library
            tokenizers, which `load_tokenizer` compares with ours.
        head: The layers on top of the encoder: `{"kind": "encoder"}` for none,
            or a kind in `heads.HEADS` and its settings, e.g. labels.
            `"newly_initialized"` lists the untrained layers, `"decision"` has
            settings that were fitted on a dev set, e.g. thresholds.
        options: `max_sequence_length`, and the options of the command that wrote it.
        notes: Assumptions made while opening it, one sentence each.
    """

    format: ClassVar[str]
    notes: ClassVar[Sequence[str]]
    path: pathlib.Path
    architecture: BertConfig
    vocabulary: Vocabulary
    lowercase: bool
    head: Mapping[str, Any]
    options: Mapping[str, Any]
    rules: TokenizerRules = dataclasses.field(default=GOOGLE_RULES, kw_only=True)
    original_tokenizer: Any = dataclasses.field(default=None, kw_only=True)

    @abc.abstractmethod
    def read_weights(self) -> dict[str, np.ndarray]:
        """Reads all trained weights as float32, by their `variable.path` in Keras.

        The weights of a task's head are `logits/kernel` [H, C] and `logits/bias` [C],
        unless the head is one that transformers lacks.

        Raises:
            ValueError: A file is missing, damaged or belongs to another model.
        """

    def __repr__(self) -> str:
        name, kind = type(self).__name__, self.head["kind"]
        return f"<{name} {self.path}: {kind}, {self.describe()[0]}>"

    def describe(self) -> list[str]:
        """Returns lines for the user about what the checkpoint contains."""
        a = self.architecture
        lines = [
            f"{a.num_layers} layers, hidden size {a.hidden_dim}, {a.num_heads} heads, "
            f"{a.max_sequence_length} positions, {a.activation}; "
            f"{self.vocabulary.size:,} tokens, {'un' * self.lowercase}cased."
        ]
        lines += heads.known_head(self.head["kind"]).describe(self.head)
        if self.head.get("newly_initialized"):
            missing = ", ".join(self.head["newly_initialized"])
            lines.append(f"Layers without weights: {missing}")
        return lines

    def load_into(
        self, model: keras.Model, *, part: keras.Model | None = None
    ) -> list[str]:
        """Loads the weights into `model`, matched by name.

        Layers without a name match those of equal class, in the order in which they
        were created: Keras numbers them anew in each process.

        Args:
            model: A `BertBackbone` or a model that contains one.
            part: The part of `model` to load, e.g. its encoder. By default all of it.

        Returns:
            The names of the layers of `model` that keep their initial values. If only
            some weights of a layer are missing, their names.

        Raises:
            ValueError: A weight has another shape in `model`, or see `read_weights`.
        """
        weights = self.read_weights()
        loadable = {w.path for w in (model if part is None else part).weights}
        ours = renumbered(variable.path for variable in model.weights)
        theirs = {name: key for key, name in renumbered(weights).items()}
        missing, loaded_layers = [], set()
        for variable in model.weights:
            name, shape = variable.path, tuple(variable.shape)
            key = name if name in weights else theirs.get(ours[name])
            if key is None or name not in loadable:
                missing.append(name)
                continue
            if weights[key].shape != shape:
                raise ValueError(
                    f"{name} has shape {list(weights[key].shape)} in {self.path}, but "
                    f"{list(shape)} in the model."
                )
            variable.assign(weights[key])
            loaded_layers.add(outermost_layer(name))
        names = (
            name if outermost_layer(name) in loaded_layers else outermost_layer(name)
            for name in missing
        )
        return list(dict.fromkeys(names))

    def read_metrics(self) -> dict[str, Any]:
        """Returns the metrics; an empty dictionary without a finished training."""
        return read_json_object(self.path / METRICS)

    def load_backbone(self, dtype: Any = None, name: str | None = None) -> BertBackbone:
        """Returns the encoder with its weights, without any head."""
        return self._load(BertBackbone(self.architecture, dtype=dtype, name=name))

    def load_pretrainer(self, dtype: Any = None) -> BertPretrainer:
        """Returns the encoder and the pre-training heads with their weights."""
        return self.load_model(BertPretrainer, dtype=dtype)

    def load_model(
        self,
        model_class: type[BertModel],
        *,
        dtype: Any = None,
        name: str | None = None,
        **arguments: Any,
    ) -> Any:
        """Returns the encoder and a head, see `BertModel.from_checkpoint`."""
        kind = self.head["kind"]
        head = heads.known_head(kind)
        same = issubclass(model_class, head.model_class)
        is_encoder = issubclass(head, heads.EncoderHead)
        if issubclass(model_class, BertPretrainer) and not is_encoder:
            raise ValueError(
                f"{self.path} is a model for {kind} and has no "
                "pre-training heads. Use the output of bert_tf.pretrain."
            )
        if same:
            arguments = head.arguments(self.head) | arguments
        parameters = inspect.signature(model_class.__init__).parameters.values()
        required = {p.name for p in parameters if p.default is p.empty and p.kind < 2}
        if missing := required - {"self", "backbone", *arguments}:
            raise ValueError(
                f"{self.path} has no head for {model_class.__name__}. Pass the "
                f"argument {', '.join(missing)} to initialize one. Received: a "
                f"checkpoint of kind {kind}"
            )
        backbone = BertBackbone(self.architecture, dtype=dtype)
        model = model_class(backbone, name=name, **arguments)
        return self._load(model, None if same else backbone)

    def _load(self, model: Any, part: keras.Model | None = None) -> Any:
        newly_initialized = ", ".join(self.load_into(model, part=part))
        if newly_initialized:
            text = "%s has no weights for: %s (newly initialized)"
            logging.warning(text, self.path, newly_initialized)
        return model


def outermost_layer(name: str) -> str:
    """Returns e.g. `encoder_layer_0`, `pooler` or `mlm` for a weight name."""
    return name.partition("/")[0]


def renumbered(names: Iterable[str]) -> dict[str, str]:
    """Counts the numbers at the ends of layers' names from 0, for each stem.

    For example, `dense_7/bias` becomes `dense_1/bias` if there also is `dense_4/bias`.
    """
    parts = {
        name: [re.fullmatch(r"(.*?)(?:_(\d+))?", part).groups("0") for part in path]
        for name in names
        if (path := name.split("/"))
    }
    numbers = collections.defaultdict(set)
    for stem, number in (pair for pairs in parts.values() for pair in pairs):
        numbers[stem].add(int(number))
    order = {stem: sorted(found).index for stem, found in numbers.items()}
    return {
        name: "/".join(f"{stem}_{order[stem](int(number))}" for stem, number in pairs)
        for name, pairs in parts.items()
    }


def read_json_object(path: pathlib.Path, **types: type) -> dict[str, Any]:
    """Reads a JSON object; returns an empty dictionary if there is no such file.

    Args:
        path: The file.
        **types: As in `check_json`.

    Raises:
        ValueError: The file is not valid JSON, not an object, or a value has another
            type. The message names the file.
    """
    if not path.is_file():
        return {}
    value = storage.read_json(path)
    if not isinstance(value, dict):
        raise ValueError(f"{path} must contain a JSON object. Received: {value!r:.80}")
    try:
        check_json(value, **types)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return value


def check_json(values: Mapping[str, Any], **types: type) -> None:
    """Raises ValueError if a value that is neither absent nor null has another type."""
    for key, expected in types.items():
        if not isinstance(values.get(key), expected | None):
            raise ValueError(
                f"{key} must have the type {expected.__name__}. "
                f"Received: {key}={values[key]!r:.80}"
            )
