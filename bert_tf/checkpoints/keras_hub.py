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

import dataclasses
import functools
import pathlib
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf.checkpoints import weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.google import ATTENTION, OURS
from bert_tf.modeling import BertConfig
from bert_tf.storage import check_fields, read_json_object
from bert_tf.text import (
    CONTINUATION_PREFIX,
    SPECIAL_TOKENS,
    UNK,
    AddedToken,
    TokenizerRules,
    Vocabulary,
)

_HUB = "transformer_layer_{i}"
_HUB_LAYERS = {
    "embeddings/token_embedding": "token_embedding",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "segment_embedding",
    "embeddings/layer_norm": "embeddings_layer_norm",
    **{f"{OURS}/{part}": f"{_HUB}/self_attention_layer/{part}" for part in ATTENTION},
    f"{OURS}/attention_layer_norm": f"{_HUB}/self_attention_layer_norm",
    f"{OURS}/intermediate": f"{_HUB}/feedforward_intermediate_dense",
    f"{OURS}/output": f"{_HUB}/feedforward_output_dense",
    f"{OURS}/output_layer_norm": f"{_HUB}/feedforward_layer_norm",
    "pooler": "pooled_dense",
    "mlm/dense": "mlm_head/intermediate_dense",
    "mlm/layer_norm": "mlm_head/intermediate_layer_norm",
    "logits": "logits",
}
_NAMES = weight_files.names_of_layers(_HUB_LAYERS)
_NAMES["mlm/bias"] = ["mlm_head/output_bias"]

# Settings that KerasHub's encoder lacks. The others have the same names as ours.
_FIXED = ("attention_dropout", "activation", "layer_norm_epsilon", "initializer_range")
_FIXED += ("classifier_dropout", "embedding_dim", "model_type")
_SETTINGS = [f.name for f in dataclasses.fields(BertConfig) if f.name not in _FIXED]


# Options of the preprocessor and its tokenizer that change tokens, and BERT's values.
_PREPROCESSING = {
    "split": (True,),
    "suffix_indicator": (CONTINUATION_PREFIX,),
    "oov_token": (UNK,),
    "truncate": ("round_robin",),
}

# The tasks that have a head of BERT. keras-nlp wrote the last name.
_TASKS = ("BertMaskedLM", "BertTextClassifier", "BertClassifier")

# --- Reading ---------------------------------------------------------------------


def open_preset(preset: str | pathlib.Path, kind: str | None = None) -> Checkpoint:
    """Opens a preset: a folder, or a name or handle that KerasHub downloads.

    Args:
        preset: The folder, name or handle.
        kind: The kind of head to read; by default that of the preset.

    Raises:
        ValueError: It is not a BERT, has no vocabulary, or KerasHub cannot read it.
    """
    import keras_hub

    path, models = pathlib.Path(preset), keras_hub.models
    # KerasHub downloads handles, which have no files here.
    read_json_object(path / "config.json", config=dict, class_name=("BertBackbone",))
    task = read_json_object(path / "task.json").get("class_name")
    has_head = task in _TASKS and kind != "encoder"
    try:
        if has_head:
            model = getattr(models, task).from_preset(str(preset), preprocessor=None)
        else:
            model = models.BertBackbone.from_preset(str(preset))
        preprocessor = models.BertTextClassifierPreprocessor.from_preset(str(preset))
        vocabulary = Vocabulary(tuple(preprocessor.tokenizer.get_vocabulary()))
    except Exception as error:  # Damaged files raise errors of many types.
        raise ValueError(f"KerasHub cannot read {preset}: {error}") from error
    backbone = model.backbone if has_head else model
    declared, options = {}, {}
    if isinstance(model, models.BertTextClassifier):
        kind = kind or "classification"
        declared["activation"] = keras.activations.serialize(model.activation)
        length = min(preprocessor.sequence_length, backbone.max_sequence_length)
        options = {"max_sequence_length": length}
    doubt = f"Its task.json declares the class {task}, which is not supported."
    return weight_files.open_tensors(
        path,
        _NAMES,
        {
            variable.path: weight_files.Tensor(
                tuple(variable.shape),
                functools.partial(keras.ops.convert_to_numpy, variable),
            )
            for variable in model.weights
        },
        architecture=BertConfig(  # KerasHub lacks the other fields: they are fixed.
            **{name: getattr(backbone, name) for name in _SETTINGS},
            attention_dropout=backbone.dropout,
            classifier_dropout=getattr(model, "dropout", None) if has_head else None,
        ),
        vocabulary=vocabulary,
        lowercase=preprocessor.tokenizer.lowercase,
        kind=kind,
        doubt="" if task in (None, *_TASKS) else doubt,
        declared=declared,
        format=f"KerasHub {type(model).__name__}",
        options=options,
        rules=_rules(preset, preprocessor),
    )


def _rules(preset: str | pathlib.Path, preprocessor: Any) -> TokenizerRules:
    """Returns the tokenizer's rules: google's, with the options of the preset."""
    tokenizer = preprocessor.tokenizer
    options = {**preprocessor.get_config(), **tokenizer.get_config()}
    check_fields(preset, options, **_PREPROCESSING)
    strips = tokenizer.strip_accents
    in_strings = options.get("special_tokens_in_strings", False)
    return TokenizerRules(
        strip_accents=None if strips == tokenizer.lowercase else strips,
        split_chinese=options.get("split_on_cjk", True),
        added_tokens=tuple(map(AddedToken, SPECIAL_TOKENS if in_strings else ())),
    )


# --- Writing ---------------------------------------------------------------------


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a preset. Logs a warning about what KerasHub computes differently.

    Args:
        path: An empty folder.
        checkpoint: The checkpoint to write.

    Returns:
        The names of the weights that the format cannot hold.

    Raises:
        ValueError: The checkpoint is not a BERT.
    """
    from keras_hub import models

    weights, architecture = checkpoint.read_weights(), checkpoint.architecture
    family = {"model_type": architecture.model_type}
    check_fields(f"{checkpoint.path} as KerasHub preset", family, model_type=("bert",))
    for name in ("activation", "layer_norm_epsilon"):
        theirs, ours = getattr(BertConfig, name), getattr(architecture, name)
        if theirs != ours:
            text = "KerasHub always computes with %s=%r; the checkpoint has %r."
            logging.warning(text, name, theirs, ours)
    model = backbone = models.BertBackbone(
        **{name: getattr(architecture, name) for name in _SETTINGS}, dtype="float32"
    )
    strips = checkpoint.rules.strip_accents
    tokenizer = models.BertTokenizer(
        list(checkpoint.vocabulary.tokens),
        lowercase=checkpoint.lowercase,
        strip_accents=checkpoint.lowercase if strips is None else strips,
        split_on_cjk=checkpoint.rules.split_chinese,
        special_tokens_in_strings=bool(checkpoint.rules.added_tokens),
    )
    tokenizer.save_to_preset(str(path))
    length = checkpoint.options.get(
        "max_sequence_length", architecture.max_sequence_length
    )
    head = checkpoint.head
    if head["kind"] == "classification":
        is_multi_label = head.get("problem") == "multi_label"
        model = models.BertTextClassifier(
            backbone,
            num_classes=len(weights["logits/bias"]),
            preprocessor=models.BertTextClassifierPreprocessor(tokenizer, length),
            activation="sigmoid" if is_multi_label else head.get("activation"),
            dropout=architecture.head_dropout,
        )
    elif "mlm/bias" in weights:
        preprocessor = models.BertMaskedLMPreprocessor(tokenizer, length)
        model = models.BertMaskedLM(backbone, preprocessor)
    tensors, left_out = weight_files.to_tensors(
        _NAMES, weights, architecture.num_layers
    )
    for variable in model.weights:
        if variable.path in tensors:
            variable.assign(np.reshape(tensors.pop(variable.path), variable.shape))
        else:
            text = "%s has no %s, which is newly initialized."
            logging.warning(text, checkpoint.path, variable.path)
    model.save_to_preset(str(path))
    return sorted([*left_out, *tensors])
