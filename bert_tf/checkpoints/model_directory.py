# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model directory, which every command reads or writes.

    config.json        architecture, tokenizer, head, and the options of the command
    vocab.txt          the WordPiece vocabulary, one token per line
    model.weights.h5   Keras weights of the whole model, including heads
    metrics.json       metrics of the finished training

`ModelDirectory` represents such a folder. It writes all files atomically. `Checkpoint`
is its base class, which it shares with the formats of other projects.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import inspect
import io
import os
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import h5py
import keras
import numpy as np
from absl import logging
from keras.src.saving import saving_lib

from bert_tf import storage
from bert_tf.modeling import (
    BertBackbone,
    BertConfig,
    BertModel,
    BertPretrainer,
    EmbeddingConfig,
    SentenceEncoder,
)
from bert_tf.text import GOOGLE_RULES, TokenizerRules, Vocabulary

CONFIG, VOCABULARY = "config.json", "vocab.txt"
WEIGHTS, METRICS = "model.weights.h5", "metrics.json"

# The path in the weights file of the bias of a task model's only own dense layer.
_BIAS = "layers/dense/vars/1"


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
            `{"kind": "pretrainer"}`, `{"kind": "embedding"}` with the fields of
            `EmbeddingConfig`, or the kind of a task and the settings of its head, e.g.
            labels. `"newly_initialized"` lists the untrained layers.
        options: The options of the command that wrote it; of checkpoints of other
            projects, `max_sequence_length`.
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

        The weights of a task's head are `logits/kernel` [H, C] and `logits/bias` [C].

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
        if self.head["kind"] == "embedding":
            e = EmbeddingConfig.from_dict(self.head)
            dense = f", dense layer of {e.dense_dim}" if e.dense_dim else ""
            length = ", normalized" if e.normalize else ""
            lines.append(
                f"Sentence embeddings of at most {e.max_sequence_length} tokens: "
                f"{e.pooling} pooling{dense}{length}."
            )
        for name, text in self.head.get("prompts", {}).items():
            is_default = name == self.head["default_prompt_name"]
            lines.append(f"Prompt {name}{' (default)' * is_default}: {text!r}")
        if self.head.get("labels"):
            lines.append(f"Labels: {', '.join(self.head['labels'])}")
        if self.head.get("newly_initialized"):
            missing = ", ".join(self.head["newly_initialized"])
            lines.append(f"Layers without weights: {missing}")
        return lines

    def load_into(self, model: keras.Model, *, head: bool = True) -> list[str]:
        """Loads the weights into `model`, matched by name.

        Args:
            model: A `BertBackbone` or a model that contains one.
            head: Whether to load the layer `logits` of a task model too.

        Returns:
            The names of the layers of `model` that keep their initial values. If only
            some weights of a layer are missing, their names.

        Raises:
            ValueError: A weight has another shape in `model`, or see `read_weights`.
        """
        weights = self.read_weights()
        missing, loaded_layers = [], set()
        for variable in model.weights:
            name, shape = variable.path, tuple(variable.shape)
            if name not in weights or (name.startswith("logits/") and not head):
                missing.append(name)
                continue
            if weights[name].shape != shape:
                raise ValueError(
                    f"{name} has shape {list(weights[name].shape)} in {self.path}, but "
                    f"{list(shape)} in the model."
                )
            variable.assign(weights[name])
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

    def load_sentence_encoder(self, dtype: Any = None) -> SentenceEncoder:
        """Returns the encoder with pooling; `head` must have the kind "embedding"."""
        return self.load_model(SentenceEncoder, dtype=dtype)

    def load_model(
        self,
        model_class: type[BertModel],
        *,
        dtype: Any = None,
        name: str | None = None,
        **arguments: Any,
    ) -> Any:
        """Returns the encoder and a head, see `BertModel.from_checkpoint`."""
        kind, same = self.head["kind"], self.head["kind"] == model_class.kind
        if model_class.kind == "pretrainer" and kind not in (
            "pretrainer",
            "encoder",
            "embedding",
        ):
            raise ValueError(
                f"{self.path} is a model for {kind} and has no "
                "pre-training heads. Use the output of bert_tf.pretrain."
            )
        if same and kind == "embedding":
            arguments = {"config": EmbeddingConfig.from_dict(self.head), **arguments}
        elif same:
            units = len(self.head.get("labels", ())) or 1
            arguments = dict.fromkeys(model_class._arguments, units) | arguments
        parameters = inspect.signature(model_class.__init__).parameters.values()
        required = {p.name for p in parameters if p.default is p.empty and p.kind < 2}
        if missing := required - {"self", "backbone", *arguments}:
            raise ValueError(
                f"{self.path} has no head for {model_class.kind}. Pass the argument "
                f"{', '.join(missing)} to initialize one. Received: a checkpoint of "
                f"kind {kind}"
            )
        backbone = BertBackbone(self.architecture, dtype=dtype)
        return self._load(model_class(backbone, name=name, **arguments), head=same)

    def _load(self, model: Any, *, head: bool = True) -> Any:
        newly_initialized = ", ".join(self.load_into(model, head=head))
        if newly_initialized:
            text = "%s has no weights for: %s (newly initialized)"
            logging.warning(text, self.path, newly_initialized)
        return model


@dataclasses.dataclass(frozen=True, repr=False)
class ModelDirectory(Checkpoint):
    """A model directory on disk."""

    format: ClassVar[str] = "model directory"
    notes: ClassVar[Sequence[str]] = ()

    @classmethod
    def open(cls, path: str | os.PathLike) -> ModelDirectory:
        """Reads `config.json` and `vocab.txt`.

        Raises:
            ValueError: The folder is not a model directory. The message names the file
                that is missing or wrong.
        """
        path = pathlib.Path(path)
        if not (path / CONFIG).is_file():
            raise ValueError(
                f"{path} is not a model directory: it has no {CONFIG}. Create one "
                "with `python -m bert_tf.pretrain --output=...`."
            )
        objects = dict.fromkeys(("architecture", "tokenizer", "head", "options"), dict)
        config = read_json_object(path / CONFIG, **objects)
        try:
            architecture = BertConfig.from_dict(config["architecture"])
            rules, head = dict(config["tokenizer"]), config["head"]
            lowercase = rules.pop("lowercase")
            rules = TokenizerRules.from_dict(rules)
            check_json(
                {"kind": head["kind"], "lowercase": lowercase}, kind=str, lowercase=bool
            )
            if head["kind"] == "embedding":
                EmbeddingConfig.from_dict(head)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(
                f"{path / CONFIG} is not the config of a model directory: {error!r}"
            ) from error
        check_size(architecture, path / WEIGHTS)
        vocabulary = Vocabulary.from_file(path / VOCABULARY)
        if vocabulary.size != architecture.vocabulary_size:
            raise ValueError(
                f"{path / CONFIG} has vocabulary size {architecture.vocabulary_size}, "
                f"but {VOCABULARY} has {vocabulary.size} tokens."
            )
        options = config.get("options", {})
        return cls(
            path, architecture, vocabulary, lowercase, head, options, rules=rules
        )

    @classmethod
    def create(
        cls,
        path: str | os.PathLike,
        *,
        defaults: Mapping[str, Any] | None = None,
        resumable: Collection[str] = (),
        write: bool = True,
        **attributes: Any,
    ) -> ModelDirectory:
        """Creates the folder, or resumes one that the same command created.

        Args:
            path: The folder. If it is remote, `storage.upload` copies the files there.
            defaults: Values of options that the earlier run may not have known.
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
        if (path / CONFIG).exists():
            new._check_same(cls.open(path), defaults or {}, resumable)
        if not write:
            return new
        path.mkdir(parents=True, exist_ok=True)
        config = {
            "architecture": dataclasses.asdict(new.architecture),
            "tokenizer": {"lowercase": new.lowercase, **new.rules.to_dict()},
            "head": dict(new.head),
            "options": dict(new.options),
        }
        new.vocabulary.write(path / VOCABULARY)
        # Last, because this file marks the folder as a model directory.
        storage.write_json(path / CONFIG, config)
        return new

    def _check_same(
        self,
        old: ModelDirectory,
        defaults: Mapping[str, Any],
        resumable: Collection[str],
    ) -> None:
        def flat(directory):
            values = {**defaults, "vocabulary": directory.vocabulary.fingerprint}
            values |= dataclasses.asdict(directory.architecture)
            values |= {"lowercase": directory.lowercase, **directory.rules.to_dict()}
            values |= directory.head
            options = dict(directory.options)
            if "next_sentence" in options:  # Replaced by a weight.
                options["next_sentence_weight"] = float(options.pop("next_sentence"))
            # Earlier versions had more options; False means that one was not used.
            known = self.options.keys()
            values |= {k: v for k, v in options.items() if k in known or v}
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

    # --- Weights ---------------------------------------------------------------

    @property
    def has_weights(self) -> bool:
        return (self.path / WEIGHTS).is_file()

    def save_weights(self, model: keras.Model) -> None:
        """Writes `model.weights.h5` atomically, without the optimizer."""
        # `Model.save_weights` would include the optimizer. And it lets HDF5 write the
        # file, which crashes the process if the disk or a quota is full.
        buffer = io.BytesIO()
        store = saving_lib.H5IOStore(buffer, mode="w")
        skipped = {id(getattr(model, "optimizer", None))}
        saving_lib._save_state(model, store, None, "", skipped)
        store.close()
        with storage.atomic_write(str(self.path / WEIGHTS)) as file:
            file.write(buffer.getbuffer())

    def load_weights(self, model: keras.Model) -> None:
        """Loads `model.weights.h5` into `model`, which must match `head`.

        Raises:
            ValueError: The file is missing, truncated or belongs to another model.
        """
        if not self.has_weights:
            raise ValueError(
                f"{self.path} has no {WEIGHTS}: its training did not reach the first "
                "checkpoint. Rerun the same command to resume it."
            )
        with _hdf5_errors(self.path / WEIGHTS):
            skipped = [getattr(model, "optimizer", None)]
            model.load_weights(self.path / WEIGHTS, objects_to_skip=skipped)

    def read_weights(self) -> dict[str, np.ndarray]:
        model = matching_model(self.architecture, self.head, self._units())
        self.load_weights(model)
        untrained = self.head.get("newly_initialized", ())
        return {
            variable.path: keras.ops.convert_to_numpy(variable)
            for variable in model.weights
            if outermost_layer(variable.path) not in untrained
        }

    def _units(self) -> int | None:
        """Returns the output size of the task's head; None if there is no task."""
        without_logits = ("encoder", "pretrainer", "embedding")
        if self.head["kind"] in without_logits or not self.has_weights:
            return None
        with _hdf5_errors(self.path / WEIGHTS), h5py.File(self.path / WEIGHTS) as file:
            if _BIAS not in file:
                raise ValueError(
                    f"The head of {self.path} is not a single dense layer, so it "
                    "cannot be loaded as a checkpoint. Use the checkpoint that it was "
                    "fine-tuned from."
                )
            return file[_BIAS].shape[0]

    # --- Metrics ---------------------------------------------------------------

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        storage.write_json(self.path / METRICS, metrics)


def outermost_layer(name: str) -> str:
    """Returns e.g. `encoder_layer_0`, `pooler` or `mlm` for a weight name."""
    return name.partition("/")[0]


def matching_model(
    architecture: BertConfig, head: Mapping[str, Any], units: int | None
) -> keras.Model:
    """Builds a model whose weights file has the layout of models with this head.

    Args:
        architecture: The architecture of the encoder.
        head: The `head` of a `Checkpoint`.
        units: The output size of the task's layer `logits`.
    """
    backbone = BertBackbone(architecture, dtype="float32")
    if head["kind"] == "encoder":
        return backbone
    if head["kind"] == "pretrainer":
        return BertPretrainer(backbone)
    if head["kind"] == "embedding":
        return SentenceEncoder(backbone, EmbeddingConfig.from_dict(head))
    logits = keras.layers.Dense(units, dtype="float32", name="logits")
    pooled = backbone(backbone.input)["pooled_output"]
    return keras.Model(backbone.input, logits(pooled))


def check_size(architecture: BertConfig, weights: pathlib.Path) -> None:
    """Checks a config against the size of its weights, before a model is built.

    Raises:
        ValueError: The file exists and is too small for weights of 16 bits.
    """
    a = architecture
    size = 4 * a.num_layers * a.hidden_dim * (2 * a.hidden_dim + a.intermediate_dim)
    if weights.is_file() and weights.stat().st_size < size:
        raise ValueError(
            f"{weights} is too small for {a.num_layers} layers of hidden size "
            f"{a.hidden_dim}, as its config has them."
        )


@contextlib.contextmanager
def _hdf5_errors(weights: pathlib.Path) -> Iterator[None]:
    """Turns the errors of reading a damaged HDF5 file into ValueError."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{weights} is not a readable HDF5 file: {error}") from error


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
