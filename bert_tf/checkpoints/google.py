# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of google-research/bert: TensorFlow 1, named variables.

    bert_config.json                           architecture
    bert_model.ckpt.index, .data-00000-of-...  weights
    vocab.txt

Whether they are cased stands nowhere. A folder that is written here says it, and the
form of GELU and the epsilon, which google's code does not choose, under the key
"bert_tf" of its bert_config.json, which google's code ignores.
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
from bert_tf.checkpoints import names
from bert_tf.checkpoints.foreign import ForeignCheckpoint, guess_lowercase, open_tensors
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.checkpoints.names import Row
from bert_tf.modeling.config import GOOGLE_KEYS, BertConfig
from bert_tf.text.vocabulary import Vocabulary

FORMAT = "Google TensorFlow 1"

_CONFIG, _VOCABULARY, _PREFIX = "bert_config.json", "vocab.txt", "bert_model.ckpt"

# What training leaves beside the weights.
_STATE = re.compile(r"(.*/adam_[mv]|global_step)$")

# --- The table of names ----------------------------------------------------------


def _layer(ours: str, theirs: str, *parts: str) -> list[Row]:
    return [Row(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in parts]


def _dense(ours: str, theirs: str) -> list[Row]:
    return _layer(ours, theirs, "kernel", "bias")


def _layer_norm(ours: str, theirs: str) -> list[Row]:
    return _layer(ours, theirs, "gamma", "beta")


def _output(ours: str, theirs: str) -> list[Row]:
    return [
        Row(f"{ours}/kernel", (f"{theirs}output_weights",), transposed=True),
        Row(f"{ours}/bias", (f"{theirs}output_bias",)),
    ]


_OURS, _THEIRS = "encoder_layer_{i}", "bert/encoder/layer_{i}"

_TABLE = [
    Row("embeddings/token_embedding/embeddings", ("bert/embeddings/word_embeddings",)),
    Row(
        "embeddings/position_embedding/embeddings",
        ("bert/embeddings/position_embeddings",),
    ),
    Row(
        "embeddings/segment_embedding/embeddings",
        ("bert/embeddings/token_type_embeddings",),
    ),
    *_layer_norm("embeddings/layer_norm", "bert/embeddings/LayerNorm"),
    *_dense(f"{_OURS}/query", f"{_THEIRS}/attention/self/query"),
    *_dense(f"{_OURS}/key", f"{_THEIRS}/attention/self/key"),
    *_dense(f"{_OURS}/value", f"{_THEIRS}/attention/self/value"),
    *_dense(f"{_OURS}/attention_output", f"{_THEIRS}/attention/output/dense"),
    *_layer_norm(
        f"{_OURS}/attention_layer_norm", f"{_THEIRS}/attention/output/LayerNorm"
    ),
    *_dense(f"{_OURS}/intermediate", f"{_THEIRS}/intermediate/dense"),
    *_dense(f"{_OURS}/output", f"{_THEIRS}/output/dense"),
    *_layer_norm(f"{_OURS}/output_layer_norm", f"{_THEIRS}/output/LayerNorm"),
    *_dense("pooler", "bert/pooler/dense"),
    *_dense("mlm/dense", "cls/predictions/transform/dense"),
    *_layer_norm("mlm/layer_norm", "cls/predictions/transform/LayerNorm"),
    Row("mlm/bias", ("cls/predictions/output_bias",)),
    *_output("nsp", "cls/seq_relationship/"),
]

# The heads of run_squad.py and run_classifier.py, by what their names begin with.
_TASK_HEADS = {"question_answering": "cls/squad/", "classification": ""}


def _task_of(shapes: Mapping[str, names.Shape]) -> str | None:
    for kind, theirs in _TASK_HEADS.items():
        if f"{theirs}output_weights" in shapes:
            return kind
    return None


def _rows(kind: str | None) -> list[Row]:
    return _TABLE + (
        _output("logits", _TASK_HEADS[kind]) if kind in _TASK_HEADS else []
    )


# --- Reading ---------------------------------------------------------------------


def find_prefix(path: pathlib.Path) -> str | None:
    """The path of a folder's checkpoint without endings, the newest if several."""
    if (path / f"{_PREFIX}.index").is_file():
        return str(path / _PREFIX)
    found = sorted(path.glob("*.index"), key=lambda file: file.stat().st_mtime)
    return tf.train.latest_checkpoint(str(path)) or (
        str(found[-1].with_suffix("")) if found else None
    )


def load(prefix: str) -> names.Tensors:
    """Opens a checkpoint of TensorFlow 1 or 2.

    Raises:
        ValueError: It is damaged; also when a tensor is read.
    """

    def whole(read, *args):
        try:
            return read(*args)
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise ValueError(f"{prefix}: not a whole checkpoint: {error}") from error

    reader = whole(tf.train.load_checkpoint, prefix)
    shapes = {k: tuple(v) for k, v in reader.get_variable_to_shape_map().items()}
    return names.Tensors(shapes, lambda name: whole(reader.get_tensor, name))


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder as google-research/bert publishes them.

    Raises:
        ValueError: A file is missing or damaged, or contradicts another.
    """
    tensors = load(find_prefix(path))
    shapes = {k: v for k, v in tensors.shapes.items() if not _STATE.match(k)}
    kind = _task_of(shapes)
    folder = read_folder(path)
    return open_tensors(
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
    """What stands beside a checkpoint; `head` where it was written here."""

    config: BertConfig
    vocabulary: Vocabulary
    lowercase: bool
    head: Mapping[str, Any] | None
    notes: Sequence[str]


def read_folder(path: pathlib.Path) -> Folder:
    """Reads `bert_config.json` and `vocab.txt`.

    Raises:
        ValueError: One is missing or damaged.
    """
    if not (path / _CONFIG).is_file():
        raise ValueError(
            f"{path} has a checkpoint, but no {_CONFIG}. Copy the one it was trained "
            "with there."
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


def assumed(config: BertConfig) -> dict[str, Any]:
    """What google's code computes with, whatever a config says."""
    activation = "relu" if config.activation == "relu" else "gelu_tanh"
    return {"activation": activation, "layer_norm_epsilon": 1e-12}


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a folder from which google-research/bert restores.

    Args:
        path: An empty folder.

    Returns:
        The names of the weights that the format has no place for.
    """
    head, config = checkpoint.head, checkpoint.architecture
    weights = checkpoint.read_weights()
    tensors, left_out = names.to_theirs(_rows(head["kind"]), weights, config)
    _save(str(path / _PREFIX), tensors)
    checkpoint.vocabulary.write(path / _VOCABULARY)
    google = {key: getattr(config, ours) for ours, key in GOOGLE_KEYS.items()}
    google["hidden_act"] = config.activation.removesuffix("_tanh").removesuffix("_erf")
    ours = {"lowercase": checkpoint.lowercase, "head": dict(head)}
    ours["architecture"] = {name: getattr(config, name) for name in assumed(config)}
    storage.write_json(path / _CONFIG, {**google, "bert_tf": ours})
    return left_out


def _save(prefix: str, tensors: Mapping[str, np.ndarray]) -> None:
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=[tf.constant(tensor) for tensor in tensors.values()],
    )
