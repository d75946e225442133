# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all checkpoints have, whatever their format."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf import heads, text, text_files
from bert_tf.modeling import BertBackbone, BertConfig, BertModel, find_encoder

Weights = Mapping[str, Callable[[], np.ndarray]]

METRICS = "metrics.json"
TOKEN_EMBEDDING = "embeddings/token_embedding/embeddings"
_LAYER = "encoder_layer_"
# Attributes that follow from the folder.
_NOT_STORED = {"path", "format", "weights"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Checkpoint:
    """A trained BERT in a folder: a model directory or another project's format.

    Attributes:
        path: The folder.
        architecture: The architecture of the encoder.
        vocabulary: The WordPiece vocabulary.
        lowercase: Whether the tokenizer lowercases texts.
        head: The layers on top of the encoder: `{"kind": "encoder"}` for none,
            or a kind in `heads.HEADS` and its settings, e.g. labels.
            `"newly_initialized"` lists the untrained layers, `"decision"` has
            settings that were fitted on a dev set, e.g. thresholds.
        options: `max_sequence_length`, and the options of the command that wrote it.
        format: The name of the format, e.g. "Hugging Face BertModel".
        weights: Functions that read the weights, by our names. Empty if a training did
            not reach its first checkpoint yet.
        rules: All other rules of the tokenizer.
        encoder: The name under which Keras finds the class of the encoder, see
            `modeling.encoder_name`; "" for `BertBackbone`.
        source: The handle that it, or the training, began with: `hf://owner/name@commit`
            or, for example, `kaggle://...`; "" for none.
    """

    path: pathlib.Path
    architecture: BertConfig
    vocabulary: text.Vocabulary
    lowercase: bool
    head: Mapping[str, Any]
    options: Mapping[str, Any]
    _: dataclasses.KW_ONLY
    format: str = "model directory"
    weights: Weights = dataclasses.field(default_factory=dict)
    rules: text.TokenizerRules = text.GOOGLE_RULES
    encoder: str = ""
    source: str = ""

    def __post_init__(self):
        segments = self.architecture.num_segments
        if segments < 2 and self.rules.second_segment:
            message = "%s: the encoder has one segment: both texts of a pair are in it."
            logging.log_if(logging.WARNING, message, segments == 1, self.path)
            rules = dataclasses.replace(self.rules, second_segment=0)
            object.__setattr__(self, "rules", rules)  # The class is frozen.

    def __repr__(self) -> str:
        name, kind = type(self).__name__, self.head["kind"]
        return f"<{name} {self.path}: {kind}, {self.describe()[0]}>"

    def describe(self) -> list[str]:
        """Returns lines for the user about what the checkpoint contains."""
        a, head = self.architecture, self.head
        lines = [
            f"{a.num_layers} layers, hidden size {a.hidden_dim}, {a.num_heads} heads, "
            f"{a.max_sequence_length} positions, {a.activation}; "
            f"{self.vocabulary.size:,} tokens, {'un' * self.lowercase}cased."
        ]
        lines += [f"encoder: {self.encoder}"] if self.encoder else []
        lines += [f"{name}: {value}" for name, value in head.items()]
        if self.weights:
            lines.append(f"{len(self.weights)} weights found.")
        return lines

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes that a model directory stores, by name."""
        names = {field.name for field in dataclasses.fields(Checkpoint)}
        return {name: getattr(self, name) for name in names - _NOT_STORED}

    @property
    def max_sequence_length(self) -> int:
        """The maximum number of tokens of a row, by default that of positions."""
        positions = self.architecture.max_sequence_length
        return self.options.get("max_sequence_length", positions)

    # --- Weights ---------------------------------------------------------------

    def read_weights(self) -> dict[str, np.ndarray]:
        """Reads all trained weights as float32, by their `variable.path` in Keras.

        The weights of a task's head are `logits/kernel` [H, C] and `logits/bias` [C],
        unless the head is one that transformers lacks.

        Raises:
            ValueError: A file is missing or damaged.
        """
        if not self.weights:
            raise ValueError(
                f"{self.path} has no weights: its training did not reach the first "
                "checkpoint. Rerun the same command to resume it."
            )
        try:
            return {name: read() for name, read in self.weights.items()}
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def fingerprint(self, layers: Collection[str] = ()) -> str:
        """Returns a checksum of all weights, or of those of some layers."""
        checksum = 0
        for name in sorted(self.weights):
            if not layers or outermost_layer(name) in layers:
                weight = np.ascontiguousarray(self.weights[name]())
                checksum = zlib.crc32(weight, zlib.crc32(name.encode(), checksum))
        return f"{checksum:08x}"

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
        keys = _matching_names([weight.path for weight in model.weights], weights)
        loadable = {w.path for w in (model if part is None else part).weights}
        missing, loaded_layers = [], set()
        for variable in model.weights:
            name, shape = variable.path, tuple(variable.shape)
            if name not in keys or name not in loadable:
                missing.append(name)
                continue
            weight = weights[keys[name]]
            if weight.shape != shape:
                raise ValueError(
                    f"{name} has shape {list(weight.shape)} in {self.path}, but "
                    f"{list(shape)} in the model."
                )
            variable.assign(weight)
            loaded_layers.add(outermost_layer(name))
        names = (
            name if outermost_layer(name) in loaded_layers else outermost_layer(name)
            for name in missing
        )
        return list(dict.fromkeys(names))

    # --- Models ----------------------------------------------------------------

    def build_backbone(self, dtype: Any = None, **options: Any) -> BertBackbone:
        """Returns the encoder with initial weights.

        Args:
            dtype: Keras dtype policy of all layers.
            **options: Other arguments of `BertBackbone`.

        Raises:
            ValueError: The encoder has a class that no imported module defines.
        """
        encoder_class = find_encoder(self.encoder, self.path)
        return encoder_class(self.architecture, dtype=dtype, **options)

    def load_backbone(self, dtype: Any = None, name: str | None = None) -> BertBackbone:
        """Returns the encoder with its weights, without any head."""
        return self._load(self.build_backbone(dtype, name=name))

    def load(self, dtype: Any = None) -> keras.Model:
        """Returns the encoder and its own head, e.g. a `SequenceClassifier`."""
        head = heads.find_head(self.head["kind"])
        head = head(self.head, self.options, text.Tokenizer.from_checkpoint(self))
        return self._load(head.build(self.build_backbone(dtype)))

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
        if same:
            arguments = head.arguments(self.head) | arguments
        backbone = self.build_backbone(dtype)
        try:
            model = model_class(backbone, name=name, **arguments)
        except TypeError as error:  # An argument is missing or unknown.
            raise ValueError(
                f"{self.path} is a checkpoint of kind {kind}. Pass the arguments of a "
                f"new head: {error}"
            ) from error
        return self._load(model, None if same else backbone)

    def _load(self, model: Any, part: keras.Model | None = None) -> Any:
        if missing := self.load_into(model, part=part):
            message = "%s has no weights for: %s (newly initialized)"
            logging.warning(message, self.path, ", ".join(missing))
        return model

    # --- New and derived checkpoints -------------------------------------------

    @staticmethod
    def untrained(size: str, vocabulary: str) -> Checkpoint:
        """Returns an encoder without weights, to train from random ones.

        Args:
            size: See `BertConfig.from_size`.
            vocabulary: The vocabulary file. Its tokens tell whether it is cased.
        """
        tokens = text.Vocabulary.from_file(vocabulary)
        lowercase, note = text.guess_lowercase(tokens)
        print(f"{vocabulary}: {note}")
        architecture = BertConfig.from_size(size, tokens.size)
        path, head = pathlib.Path(vocabulary), {"kind": "encoder"}
        return Checkpoint(path, architecture, tokens, lowercase, head, {})

    def keep_layers(self, layers: Sequence[int]) -> Checkpoint:
        """Returns the checkpoint with some of the encoder layers, counted from 1."""
        weights = {n: x for n, x in self.weights.items() if not n.startswith(_LAYER)}
        for new, old in enumerate(layers):
            for name, read in self.weights.items():
                layer, _, variable = name.partition("/")
                if layer == f"{_LAYER}{old - 1}":
                    weights[f"{_LAYER}{new}/{variable}"] = read
        architecture = dataclasses.replace(self.architecture, num_layers=len(layers))
        return dataclasses.replace(self, weights=weights, architecture=architecture)

    def extend_vocabulary(self, vocabulary: text.Vocabulary) -> Checkpoint:
        """Returns the checkpoint with more tokens.

        The weights of a new token are the mean over the pieces that it was split into:
        its embedding, and its bias in the masked-LM head. All other weights stay the
        same.

        Args:
            vocabulary: Extends that of the checkpoint, see `Vocabulary.extends`.
        """
        old, new = self.vocabulary, vocabulary.tokens
        ids = [i for i, token in enumerate(new) if old.tokens[i : i + 1] != (token,)]
        words = [new[i].removeprefix(text.CONTINUATION_PREFIX) for i in ids]

        def extended(read: Callable[[], np.ndarray]) -> np.ndarray:
            values = read()
            result = np.resize(values, [len(new), *values.shape[1:]])
            for index, pieces in zip(ids, text.split_words(words, old), strict=True):
                result[index] = values[pieces].mean(axis=0)
            return result

        weights = dict(self.weights)
        for name in weights.keys() & {TOKEN_EMBEDDING, "mlm/bias"}:
            weights[name] = functools.partial(extended, weights[name])
        config = dataclasses.replace(self.architecture, vocabulary_size=len(new))
        changes = {"architecture": config, "vocabulary": vocabulary}
        return dataclasses.replace(self, weights=weights, **changes)

    def of_pairs(self) -> Checkpoint:
        """Returns a classifier from another project as one that reads pairs of texts.

        Raises:
            ValueError: It has another head, or was trained on single texts.
        """
        kind, pairs = self.head["kind"], self.head.get("pairs", True)
        if kind != "classification" or not pairs:
            raise ValueError(
                "pairs=True (--pairs) requires a model for classification or "
                f"regression of pairs. Received: {self.path}, a model for {kind}"
                f"{' of single texts' * (not pairs)}"
            )
        return dataclasses.replace(self, head={**self.head, "pairs": True})

    # --- Metrics ---------------------------------------------------------------

    def read_metrics(self) -> dict[str, Any]:
        """Returns the metrics; an empty dictionary without a finished training."""
        return text_files.read_json_object(self.path / METRICS)


def outermost_layer(name: str) -> str:
    """Returns e.g. `encoder_layer_0`, `pooler` or `mlm` for a weight name."""
    return name.partition("/")[0]


def _matching_names(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """Maps names of weights to equal ones.

    Names that differ only in the numbers of their layers, such as `dense_7/bias` and
    `dense_4/bias`, match in the order of these numbers if there are equally many.
    """
    groups = collections.defaultdict(lambda: ([], []))
    for side, names in enumerate((ours, theirs)):
        for name in names:
            groups[re.sub(r"_\d+(?=/|$)", "", name)][side].append(name)
    pairs: dict[str, str] = {}
    for a, b in groups.values():
        if len(a) == len(b):
            pairs |= zip(sorted(a, key=_numbers), sorted(b, key=_numbers))
        else:
            pairs |= {name: name for name in a if name in b}
    return pairs


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"_(\d+)(?=/|$)", name)]
