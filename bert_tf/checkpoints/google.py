# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of google-research/bert (TensorFlow 1, named variables).

    bert_config.json                           architecture
    bert_model.ckpt.index, .data-00000-of-...  weights
    vocab.txt

The format does not record whether the model is cased, nor the form of GELU and the
epsilon, which are fixed in google's code. Our writer stores them under the key
"bert_tf" of bert_config.json, which google's code ignores.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import storage
from bert_tf.checkpoints.foreign import (
    KERAS_SUFFIXES,
    ForeignCheckpoint,
    Row,
    Shape,
    Tensors,
    guess_lowercase,
    rows_of_layers,
    to_foreign,
)
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.modeling import GOOGLE_KEYS, BertConfig
from bert_tf.text import Vocabulary

FORMAT = "Google TensorFlow 1"

_CONFIG, _VOCABULARY, _PREFIX = "bert_config.json", "vocab.txt", "bert_model.ckpt"

# Optimizer state that training leaves in the file.
_OPTIMIZER_STATE = re.compile(r"(.*/adam_[mv]|global_step)$")

# --- Table of weight names -------------------------------------------------------

_OURS, _THEIRS = "encoder_layer_{i}", "bert/encoder/layer_{i}"

_LAYERS = {
    "embeddings/token_embedding": "bert/embeddings/word_embeddings",
    "embeddings/position_embedding": "bert/embeddings/position_embeddings",
    "embeddings/segment_embedding": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    f"{_OURS}/query": f"{_THEIRS}/attention/self/query",
    f"{_OURS}/key": f"{_THEIRS}/attention/self/key",
    f"{_OURS}/value": f"{_THEIRS}/attention/self/value",
    f"{_OURS}/attention_output": f"{_THEIRS}/attention/output/dense",
    f"{_OURS}/attention_layer_norm": f"{_THEIRS}/attention/output/LayerNorm",
    f"{_OURS}/intermediate": f"{_THEIRS}/intermediate/dense",
    f"{_OURS}/output": f"{_THEIRS}/output/dense",
    f"{_OURS}/output_layer_norm": f"{_THEIRS}/output/LayerNorm",
    "pooler": "bert/pooler/dense",
    "mlm/dense": "cls/predictions/transform/dense",
    "mlm/layer_norm": "cls/predictions/transform/LayerNorm",
}


def _output_rows(ours: str, theirs: str) -> list[Row]:
    suffixes = {"kernel": ("output_weights",), "bias": ("output_bias",)}
    return rows_of_layers({ours: theirs}, suffixes, transposed=True)


_TABLE = [
    *rows_of_layers(_LAYERS, KERAS_SUFFIXES | {"embeddings": ("",)}),
    Row("mlm/bias", ("cls/predictions/output_bias",)),
    *_output_rows("nsp", "cls/seq_relationship/"),
]

# Prefixes of the heads of run_squad.py and run_classifier.py.
_TASK_HEADS = {"question_answering": "cls/squad/", "classification": ""}


def _task_of(shapes: Mapping[str, Shape]) -> str | None:
    for kind, prefix in _TASK_HEADS.items():
        if f"{prefix}output_weights" in shapes:
            return kind
    return None


def _rows(kind: str | None) -> list[Row]:
    if kind in _TASK_HEADS:
        return _TABLE + _output_rows("logits", _TASK_HEADS[kind])
    return _TABLE


# --- Reading ---------------------------------------------------------------------


def find_prefix(path: pathlib.Path) -> str | None:
    """Returns a folder's checkpoint path without suffix, the newest if several."""
    if (path / f"{_PREFIX}.index").is_file():
        return str(path / _PREFIX)
    found = sorted(path.glob("*.index"), key=lambda file: file.stat().st_mtime)
    return tf.train.latest_checkpoint(str(path)) or (
        str(found[-1].with_suffix("")) if found else None
    )


def load(prefix: str) -> Tensors:
    """Opens a TensorFlow 1 or 2 checkpoint.

    Raises:
        ValueError: It is damaged. Reading a tensor may also raise this.
    """

    def checked(read, *args):
        try:
            return read(*args)
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise ValueError(
                f"{prefix} is damaged or incomplete. TensorFlow reports: {error}"
            ) from error

    reader = checked(tf.train.load_checkpoint, prefix)
    shapes = {k: tuple(v) for k, v in reader.get_variable_to_shape_map().items()}
    return Tensors(shapes, lambda name: checked(reader.get_tensor, name))


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder in the layout that google-research/bert publishes.

    Raises:
        ValueError: A file is missing or damaged, or contradicts another one.
    """
    tensors = load(find_prefix(path))
    shapes = {k: v for k, v in tensors.shapes.items() if not _OPTIMIZER_STATE.match(k)}
    kind = _task_of(shapes)
    folder = read_folder(path)
    return ForeignCheckpoint.from_tensors(
        path,
        format=FORMAT,
        rows=_rows(kind),
        tensors=tensors._replace(shapes=shapes),
        config=folder.config,
        vocabulary=folder.vocabulary,
        lowercase=folder.lowercase,
        head=folder.head or ({"kind": kind} if kind else None),
        notes=folder.notes,
    )


class Folder(NamedTuple):
    """The config and vocabulary beside a checkpoint; `head` if we wrote the config."""

    config: BertConfig
    vocabulary: Vocabulary
    lowercase: bool
    head: Mapping[str, Any] | None
    notes: Sequence[str]


def read_folder(path: pathlib.Path) -> Folder:
    """Reads `bert_config.json` and `vocab.txt`.

    Raises:
        ValueError: A file is missing or damaged.
    """
    if not (path / _CONFIG).is_file():
        raise ValueError(
            f"{path} contains a checkpoint but no {_CONFIG}. Copy the {_CONFIG} that "
            "the model was trained with into the folder."
        )
    config = BertConfig.from_google(path / _CONFIG)
    vocabulary = Vocabulary.from_file(path / _VOCABULARY)
    ours = json.loads((path / _CONFIG).read_text(encoding="utf-8")).get("bert_tf", {})
    config = dataclasses.replace(config, **ours.get("architecture", {}))
    lowercase, notes = ours.get("lowercase"), []
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        notes.append(note)
    return Folder(config, vocabulary, lowercase, ours.get("head"), notes)


# --- Writing ---------------------------------------------------------------------


def fixed_settings(config: BertConfig) -> dict[str, Any]:
    """Returns the settings that google's code uses whatever the config contains."""
    activation = "relu" if config.activation == "relu" else "gelu_tanh"
    return {"activation": activation, "layer_norm_epsilon": 1e-12}


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a folder that google-research/bert can restore.

    Args:
        path: An empty folder.
        checkpoint: The checkpoint to write.

    Returns:
        The names of the weights that the format cannot hold.
    """
    head, config = checkpoint.head, checkpoint.architecture
    weights = checkpoint.read_weights()
    tensors, left_out = to_foreign(_rows(head["kind"]), weights, config)
    _save(str(path / _PREFIX), tensors)
    checkpoint.vocabulary.write(path / _VOCABULARY)
    google = {key: getattr(config, ours) for ours, key in GOOGLE_KEYS.items()}
    google["hidden_act"] = config.activation.removesuffix("_tanh").removesuffix("_erf")
    ours = {"lowercase": checkpoint.lowercase, "head": dict(head)}
    ours["architecture"] = {n: getattr(config, n) for n in fixed_settings(config)}
    storage.write_json(path / _CONFIG, {**google, "bert_tf": ours})
    return left_out


def _save(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(tensor) for tensor in tensors.values()],
    )
