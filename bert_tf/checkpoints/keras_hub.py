# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""KerasHub (keras-nlp) presets: folders that `save_to_preset` writes.

    config.json, model.weights.h5    the encoder
    task.json, task.weights.h5       a head: BertMaskedLM or BertTextClassifier
    tokenizer.json, assets/tokenizer/vocabulary.txt

KerasHub itself reads the files. It is imported in `open_folder`, because the import
takes seconds and only this format needs it. Presets are not written: KerasHub opens
model directories.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import keras

from bert_tf import text
from bert_tf.checkpoints import weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.weight_files import ATTENTION, OURS
from bert_tf.modeling import BertConfig
from bert_tf.text_files import check_fields, read_json_object

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

# Handles that `download` takes.
HANDLES = ("kaggle://", "modelscope://")

# Options of the preprocessor and its tokenizer that change tokens, and BERT's values.
_PREPROCESSING = {
    "special_tokens_in_strings": (False,),
    "split": (True,),
    "split_on_cjk": (True,),
    "suffix_indicator": (text.CONTINUATION_PREFIX,),
    "oov_token": (text.UNK,),
    "truncate": ("round_robin",),
}

# The tasks that have a head of BERT. keras-nlp wrote the last name.
_TASKS = ("BertMaskedLM", "BertTextClassifier", "BertClassifier")


def detect(path: pathlib.Path, config: Mapping[str, Any]) -> Callable | None:
    """Returns `open_folder` if KerasHub wrote a folder's config.json."""
    return open_folder if "registered_name" in config else None


def download(handle: str) -> str:
    """Downloads a preset, unless the cache has it; returns its folder.

    Raises:
        ValueError: It cannot be downloaded.
    """
    scheme, _, name = handle.partition("://")
    try:
        if scheme == "kaggle":
            import kagglehub

            return kagglehub.model_download(name)
        from modelscope.hub.snapshot_download import snapshot_download

        return snapshot_download(name)
    except Exception as error:  # Each package has its own types.
        raise ValueError(f"{handle} cannot be downloaded: {error}") from error


def open_folder(
    path: pathlib.Path, config: Mapping[str, Any], kind: str | None = None
) -> Checkpoint:
    """Opens a preset.

    Args:
        path: The folder.
        config: Its config.json.
        kind: The kind of head to read; by default that of the preset.

    Raises:
        ValueError: It is not a BERT, has no vocabulary, or KerasHub cannot read it.
    """
    import keras_hub

    models = keras_hub.models
    fields = {"config": dict, "class_name": ("BertBackbone",)}
    check_fields(path / "config.json", config, **fields)
    task = read_json_object(path / "task.json").get("class_name")
    has_head = task in _TASKS and kind != "encoder"
    try:
        if has_head:
            model = getattr(models, task).from_preset(str(path), preprocessor=None)
        else:
            model = models.BertBackbone.from_preset(str(path))
        preprocessor = models.BertTextClassifierPreprocessor.from_preset(str(path))
        vocabulary = text.Vocabulary(tuple(preprocessor.tokenizer.get_vocabulary()))
    except Exception as error:  # Damaged files raise errors of many types.
        raise ValueError(f"KerasHub cannot read {path}: {error}") from error
    backbone = model.backbone if has_head else model
    declared, fields = {}, BertConfig.__dataclass_fields__
    if isinstance(model, models.BertTextClassifier):
        kind = kind or "classification"
        declared["activation"] = keras.activations.serialize(model.activation)
    doubt = f"Its task.json declares the class {task}, which is not supported."
    options = preprocessor.tokenizer.get_config() | preprocessor.get_config()
    # That of another task, which KerasHub does not read for a classifier.
    own = read_json_object(path / "preprocessor.json").get("config") or {}
    names = ("sequence_length", "truncate")
    options |= {name: own[name] for name in names if name in own}
    length = min(options["sequence_length"], backbone.max_sequence_length)
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
            **{k: x for k, x in backbone.get_config().items() if k in fields},
            attention_dropout=backbone.dropout,
            classifier_dropout=getattr(model, "dropout", None) if has_head else None,
        ),
        vocabulary=vocabulary,
        lowercase=preprocessor.tokenizer.lowercase,
        kind=kind,
        doubt="" if task in (None, *_TASKS) else doubt,
        declared=declared,
        format=f"KerasHub {type(model).__name__}",
        options={"max_sequence_length": length},
        rules=_rules(path, options),
    )


def _rules(path: pathlib.Path, options: Mapping[str, Any]) -> text.TokenizerRules:
    """Returns the tokenizer's rules: google's, with the options of the preset."""
    check_fields(path, options, **_PREPROCESSING)
    strips = options["strip_accents"]
    is_default = strips == options["lowercase"]
    return text.TokenizerRules(strip_accents=None if is_default else strips)
