# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""KerasHub (keras-nlp) presets: folders that `save_to_preset` writes.

    config.json, model.weights.h5    the encoder
    task.json, task.weights.h5       a head: BertMaskedLM or BertTextClassifier
    tokenizer.json, assets/tokenizer/vocabulary.txt

KerasHub itself reads and writes the files. It is imported in the functions because the
import takes seconds and only this format needs it.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints.foreign import (
    KERAS_SUFFIXES,
    ForeignCheckpoint,
    Row,
    Tensors,
    rows_of_layers,
    to_foreign,
)
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

FORMAT = "KerasHub"

# --- Table of weight names -------------------------------------------------------

_OURS, _THEIRS = "encoder_layer_{i}", "transformer_layer_{i}"
_ATTENTION = f"{_THEIRS}/self_attention_layer"

_LAYERS = {
    "embeddings/token_embedding": "token_embedding",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "segment_embedding",
    "embeddings/layer_norm": "embeddings_layer_norm",
    f"{_OURS}/query": f"{_ATTENTION}/query",
    f"{_OURS}/key": f"{_ATTENTION}/key",
    f"{_OURS}/value": f"{_ATTENTION}/value",
    f"{_OURS}/attention_output": f"{_ATTENTION}/attention_output",
    f"{_OURS}/attention_layer_norm": f"{_THEIRS}/self_attention_layer_norm",
    f"{_OURS}/intermediate": f"{_THEIRS}/feedforward_intermediate_dense",
    f"{_OURS}/output": f"{_THEIRS}/feedforward_output_dense",
    f"{_OURS}/output_layer_norm": f"{_THEIRS}/feedforward_layer_norm",
    "pooler": "pooled_dense",
    "mlm/dense": "mlm_head/intermediate_dense",
    "mlm/layer_norm": "mlm_head/intermediate_layer_norm",
    "logits": "logits",
}
_TABLE = [
    *rows_of_layers(_LAYERS, KERAS_SUFFIXES, per_head=True),
    Row("mlm/bias", ("mlm_head/output_bias",)),
]

# The fields of its config; they have the same names as ours.
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
    """Opens a preset: a folder, or a name or handle that KerasHub downloads.

    Raises:
        ValueError: It is not a BERT, has no vocabulary, or KerasHub cannot read it.
    """
    import keras_hub

    _check_architecture(preset)
    try:
        model = _load(preset)
        tokenizer = keras_hub.models.BertTokenizer.from_preset(str(preset))
        vocabulary = Vocabulary(tuple(tokenizer.get_vocabulary()))
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(f"KerasHub cannot read {preset}: {error}") from error
    backbone = getattr(model, "backbone", model)
    fields = {name: getattr(backbone, name) for name in _FIELDS}
    variables = {variable.path: variable for variable in model.weights}
    head = None
    if isinstance(model, keras_hub.models.BertTextClassifier):
        labels = [f"LABEL_{number}" for number in range(model.num_classes)]
        head = {"kind": "classification", "labels": labels}
    return ForeignCheckpoint.from_tensors(
        pathlib.Path(preset),
        format=f"{FORMAT} {type(model).__name__}",
        rows=_TABLE,
        tensors=Tensors(
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
                f"{preset} is a KerasHub preset of {kind}; only BertBackbone is "
                "supported."
            )


def _load(preset: str | pathlib.Path) -> keras.Model:
    """Returns the preset with its head, or the encoder if it has none."""
    import keras_hub

    task = pathlib.Path(preset) / "task.json"
    if task.is_file():
        kind = json.loads(task.read_text(encoding="utf-8"))["class_name"]
        if kind in ("BertMaskedLM", "BertTextClassifier"):
            task_class = getattr(keras_hub.models, kind)
            return task_class.from_preset(str(preset), preprocessor=None)
    return keras_hub.models.BertBackbone.from_preset(str(preset))


# --- Writing ---------------------------------------------------------------------


def fixed_settings(config: BertConfig) -> dict[str, Any]:
    """Returns the settings that KerasHub fixes because its config lacks them."""
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
        checkpoint: The checkpoint to write.

    Returns:
        The names of the weights that the format cannot hold.
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
    tensors, left_out = to_foreign(_TABLE, weights, architecture)
    for variable in model.weights:
        if variable.path in tensors:
            variable.assign(tensors.pop(variable.path))
    model.save_to_preset(str(path))
    left_out += [row.ours for row in _TABLE if row.theirs[0] in tensors]
    return sorted(left_out)


# --- Running ---------------------------------------------------------------------


def run(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Runs a preset's encoder in KerasHub and returns sequence_output [B, S, H]."""
    model = _load(path)
    outputs: Any = getattr(model, "backbone", model)(dict(inputs))
    return keras.ops.convert_to_numpy(outputs["sequence_output"])
