# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Presets of KerasHub (keras-nlp): folders that `save_to_preset` writes.

    config.json, model.weights.h5    the encoder
    task.json, task.weights.h5       a head: BertMaskedLM or BertTextClassifier
    tokenizer.json, assets/tokenizer/vocabulary.txt

KerasHub itself reads and writes them.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints import names
from bert_tf.checkpoints.foreign import ForeignCheckpoint, open_tensors
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.checkpoints.names import Row
from bert_tf.modeling.config import BertConfig
from bert_tf.text.vocabulary import Vocabulary

FORMAT = "KerasHub"

# --- The table of names ----------------------------------------------------------


def _dense(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("kernel", "bias")]


def _layer_norm(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("gamma", "beta")]


def _embedding(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/embeddings", (f"{theirs}/embeddings",))]


def _projection(ours: str, theirs: str) -> list[Row]:
    """A dense layer whose output is split by heads."""
    return [
        Row(f"{ours}/kernel", (f"{theirs}/kernel",), heads_axis=1),
        Row(f"{ours}/bias", (f"{theirs}/bias",), heads_axis=0),
    ]


_OURS, _THEIRS = "encoder_layer_{i}", "transformer_layer_{i}"
_ATTENTION = f"{_THEIRS}/self_attention_layer"

_TABLE = [
    *_embedding("embeddings/token_embedding", "token_embedding"),
    *_embedding("embeddings/position_embedding", "position_embedding"),
    *_embedding("embeddings/segment_embedding", "segment_embedding"),
    *_layer_norm("embeddings/layer_norm", "embeddings_layer_norm"),
    *_projection(f"{_OURS}/query", f"{_ATTENTION}/query"),
    *_projection(f"{_OURS}/key", f"{_ATTENTION}/key"),
    *_projection(f"{_OURS}/value", f"{_ATTENTION}/value"),
    Row(
        f"{_OURS}/attention_output/kernel",
        (f"{_ATTENTION}/attention_output/kernel",),
        heads_axis=0,
    ),
    Row(f"{_OURS}/attention_output/bias", (f"{_ATTENTION}/attention_output/bias",)),
    *_layer_norm(
        f"{_OURS}/attention_layer_norm", f"{_THEIRS}/self_attention_layer_norm"
    ),
    *_dense(f"{_OURS}/intermediate", f"{_THEIRS}/feedforward_intermediate_dense"),
    *_dense(f"{_OURS}/output", f"{_THEIRS}/feedforward_output_dense"),
    *_layer_norm(f"{_OURS}/output_layer_norm", f"{_THEIRS}/feedforward_layer_norm"),
    *_dense("pooler", "pooled_dense"),
    *_dense("mlm/dense", "mlm_head/intermediate_dense"),
    *_layer_norm("mlm/layer_norm", "mlm_head/intermediate_layer_norm"),
    Row("mlm/bias", ("mlm_head/output_bias",)),
    *_dense("logits", "logits"),
]

# What its config has, under the same names as ours.
_FIELDS = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
    "num_segments",
)

# --- Reading ---------------------------------------------------------------------


def open_preset(preset: str | pathlib.Path) -> ForeignCheckpoint:
    """Opens a preset: a folder, or a name or handle that KerasHub fetches.

    Raises:
        ValueError: It is no BERT, has no vocabulary, or KerasHub cannot read it.
    """
    import keras_hub  # Here, as it takes seconds.

    _check_architecture(preset)
    try:
        model = _load(preset)
        tokenizer = keras_hub.models.BertTokenizer.from_preset(str(preset))
        vocabulary = Vocabulary(tuple(tokenizer.get_vocabulary()))
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"{preset}: KerasHub cannot read it: {error}") from error
    backbone = getattr(model, "backbone", model)
    fields = {name: getattr(backbone, name) for name in _FIELDS}
    variables = {variable.path: variable for variable in model.weights}
    head = None
    if isinstance(model, keras_hub.models.BertTextClassifier):
        labels = [f"LABEL_{number}" for number in range(model.num_classes)]
        head = {"kind": "classification", "labels": labels}
    return open_tensors(
        pathlib.Path(preset),
        format=f"{FORMAT} {type(model).__name__}",
        rows=_TABLE,
        tensors=names.Tensors(
            {name: tuple(variable.shape) for name, variable in variables.items()},
            lambda name: keras.ops.convert_to_numpy(variables[name]),
        ),
        config=BertConfig(**fields, attention_dropout=backbone.dropout),
        vocabulary=vocabulary,
        lowercase=tokenizer.lowercase,
        head=head,
    )


def _check_architecture(preset: str | pathlib.Path) -> None:
    config = pathlib.Path(preset) / "config.json"
    if config.is_file():
        kind = json.loads(config.read_text(encoding="utf-8"))["class_name"]
        if kind != "BertBackbone":
            raise ValueError(
                f"{preset} is a preset of KerasHub of another architecture, {kind}; "
                "only BertBackbone is read."
            )


def _load(preset: str | pathlib.Path) -> keras.Model:
    """Returns the preset with the head that it has, or the encoder alone."""
    import keras_hub

    task = pathlib.Path(preset) / "task.json"
    if task.is_file():
        kind = json.loads(task.read_text(encoding="utf-8"))["class_name"]
        if kind in ("BertMaskedLM", "BertTextClassifier"):
            task_class = getattr(keras_hub.models, kind)
            return task_class.from_preset(str(preset), preprocessor=None)
    return keras_hub.models.BertBackbone.from_preset(str(preset))


# --- Writing ---------------------------------------------------------------------


def assumed(config: BertConfig) -> dict[str, Any]:
    """What KerasHub computes with, as its config has no place for it."""
    return {
        "activation": "gelu_tanh",
        "layer_norm_epsilon": 1e-12,
        "attention_dropout": config.dropout,
        "initializer_range": 0.02,
    }


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a preset.

    Args:
        path: An empty folder.

    Returns:
        The names of the weights that KerasHub has no place for.
    """
    import keras_hub

    weights, architecture = checkpoint.read_weights(), checkpoint.architecture
    backbone = keras_hub.models.BertBackbone(
        **{name: getattr(architecture, name) for name in _FIELDS}, dtype="float32"
    )
    tokenizer = keras_hub.models.BertTokenizer(
        list(checkpoint.vocabulary.tokens), lowercase=checkpoint.lowercase
    )
    length = {"sequence_length": architecture.max_sequence_length}
    if checkpoint.head["kind"] == "classification":
        model = keras_hub.models.BertTextClassifier(
            backbone,
            num_classes=len(weights["logits/bias"]),
            preprocessor=keras_hub.models.BertTextClassifierPreprocessor(
                tokenizer, **length
            ),
        )
    elif "mlm/bias" in weights:
        model = keras_hub.models.BertMaskedLM(
            backbone,
            preprocessor=keras_hub.models.BertMaskedLMPreprocessor(tokenizer, **length),
        )
    else:
        model = backbone
        tokenizer.save_to_preset(str(path))
    tensors, left_out = names.to_theirs(_TABLE, weights, architecture)
    for variable in model.weights:
        if variable.path in tensors:
            variable.assign(tensors.pop(variable.path))
    model.save_to_preset(str(path))
    left_out += [row.ours for row in _TABLE if row.theirs[0] in tensors]
    return sorted(left_out)


# --- Running ---------------------------------------------------------------------


def run(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Runs a preset's encoder by KerasHub; returns sequence_output [B, S, H]."""
    model = _load(path)
    outputs: Any = getattr(model, "backbone", model)(dict(inputs))
    return keras.ops.convert_to_numpy(outputs["sequence_output"])
