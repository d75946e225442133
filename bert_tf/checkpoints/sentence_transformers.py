# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers: Hugging Face folders with modules on top of the encoder.

modules.json                             the modules, in order
config.json, model.safetensors, ...      the encoder, see `hugging_face`
sentence_bert_config.json                max_seq_length
1_Pooling/config.json                    pooling modes
2_Dense/config.json, model.safetensors   optional
config_sentence_transformers.json        kind of the model, prompts, similarity

The modules must be Transformer, Pooling, Dense (optional), Normalize (optional). Those
of the class Dropout are ignored. The writer uses the file formats of version 2, which
all versions since then read.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bert_tf import text_files
from bert_tf.checkpoints import hugging_face, weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.hugging_face import TORCH_ACTIVATIONS
from bert_tf.heads import EmbeddingConfig
from bert_tf.text_files import check_fields, read_json_object

MODULES, _CONFIG = "modules.json", "config.json"
_TRANSFORMER_CONFIG = "sentence_bert_config.json"
_MODEL_CONFIG = "config_sentence_transformers.json"

# Keys in configs of versions before 6 -> our pooling modes.
_POOLING_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}

# In the config.json of cross-encoders of versions 2 and 3, and of 4 and 5, which had no
# files of their own.
_CROSS_ENCODER_KEYS = {"sbert_ce_default_activation_function", "sentence_transformers"}

_ACTIVATIONS = {torch: name for name, torch in TORCH_ACTIVATIONS.items()}

# The feature that Pooling writes, and that the modules after it read and write.
_VECTOR = "sentence_embedding"

# Our names of the weights of the module Dense -> its names.
_DENSE = weight_files.names_of_layers(
    {"sentence_embedding/dense": "linear"}, weight_files.TORCH_SUFFIXES
)


# --- Reading ---------------------------------------------------------------------


def detect(path: pathlib.Path, config: Mapping[str, Any]) -> Callable | None:
    """Returns the function that opens a sentence encoder or a cross-encoder, if any."""
    kind = read_json_object(path / _MODEL_CONFIG).get("model_type")
    has_modules = (path / MODULES).is_file()
    is_old = not has_modules and config.keys() & _CROSS_ENCODER_KEYS
    if kind == "CrossEncoder" or (is_old and "bert_tf" not in config):
        return open_cross_encoder
    return open_sentence_encoder if has_modules else None


def _modules(path: pathlib.Path, supported: str) -> dict[str, str]:
    """Returns the folder of each module by its class.

    Raises:
        ValueError: The classes in their order do not match the pattern `supported`.
    """
    try:
        modules = json.loads((path / MODULES).read_text(encoding="utf-8"))
        pattern = r"^sentence_transformers\..*\."
        named = [(re.sub(pattern, "", m["type"]), str(m["path"])) for m in modules]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path / MODULES} is not valid: {error!r}") from error
    modules = [(name, folder) for name, folder in named if name != "Dropout"]
    found, names = dict(modules), ", ".join(name for name, _ in modules)
    outside = [f for f in found.values() if pathlib.PurePath(f).name != f]
    if not re.fullmatch(supported, names) or outside or len(found) < len(modules):
        raise ValueError(
            f"{path / MODULES}: the modules must match {supported}, in subfolders. "
            f"Received: {names} {outside or ''}"
        )
    for name, folder in found.items():
        if name != "Normalize" and not (path / folder / _CONFIG).is_file():
            raise ValueError(f"{path}: {name} must have a file {folder}/{_CONFIG}.")
    return found


def open_cross_encoder(
    path: pathlib.Path, config: Mapping[str, Any], kind: str | None = None
) -> Checkpoint:
    """Opens a folder of `CrossEncoder`, with its config.json.

    Raises:
        ValueError: It is not a BERT, or a module or an option is not supported.
    """
    check_fields(path / _CONFIG, config, sentence_transformers=dict)
    if (path / MODULES).is_file():
        _modules(path, "Transformer")
    torch = (
        read_json_object(path / _MODEL_CONFIG).get("activation_fn")
        or (config.get("sentence_transformers") or {}).get("activation_fn")
        or config.get("sbert_ce_default_activation_function")
    )
    found = {"activation_fn": torch, **_prompts(path)}
    # Exports would not add the prompts.
    check_fields(path, found, activation_fn=tuple(_ACTIVATIONS), prompts=())
    activation = _ACTIVATIONS.get(torch)
    checkpoint = hugging_face.open_folder(
        path, config, "classification", activation=activation
    )
    head = {**checkpoint.head, "pairs": True}
    if activation or head.get("problem") == "regression":
        head["activation"] = activation or "sigmoid"  # The default of `CrossEncoder`.
    return dataclasses.replace(checkpoint, head=head, format=_format(checkpoint))


def open_sentence_encoder(
    path: pathlib.Path, config: Mapping[str, Any], kind: str | None = None
) -> Checkpoint:
    """Opens a folder of `SentenceTransformer`, with its config.json.

    Raises:
        ValueError: The encoder is not a BERT, or a module or an option of it is not
            supported.
    """
    modules = _modules(path, r"Transformer, Pooling(, Dense)?(, Normalize)?")
    if folder := modules["Transformer"]:
        config = read_json_object(path / folder / _CONFIG)
    encoder = hugging_face.open_folder(path / folder, config, "encoder")
    pooling = read_json_object(
        path / modules["Pooling"] / _CONFIG, include_prompt=(True,)
    )
    model_config = read_json_object(path / _MODEL_CONFIG)
    flags = [
        _POOLING_MODES.get(key, key)
        for key, value in pooling.items()
        if key.startswith("pooling_mode_") and value
    ]
    fields = {
        "max_sequence_length": encoder.options["max_sequence_length"],
        "pooling": pooling.get("pooling_mode") or "+".join(flags) or "mean",
        "normalize": "Normalize" in modules,
        "truncate_dim": model_config.get("truncate_dim"),
        "similarity_fn_name": model_config.get("similarity_fn_name") or "cosine",
    }
    weights = encoder.weights
    if "Dense" in modules:
        dense_fields, dense_weights = _read_dense(path / modules["Dense"], encoder)
        fields, weights = fields | dense_fields, weights | dense_weights
    try:
        head = {"kind": "embedding", **EmbeddingConfig(**fields).to_dict()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    head = {**encoder.head, **head, **_prompts(path)}
    changes = {"head": head, "weights": weights, "format": _format(encoder)}
    return dataclasses.replace(encoder, **changes)


def _format(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.format}, sentence-transformers"


def _read_dense(
    path: pathlib.Path, encoder: Checkpoint
) -> tuple[dict[str, Any], dict[str, Callable[[], np.ndarray]]]:
    """Returns fields of `EmbeddingConfig`, and the weights by our names."""
    config = read_json_object(
        path / _CONFIG,
        activation_function=tuple(_ACTIVATIONS),
        bias=(True,),
        module_input_name=(_VECTOR,),
        module_output_name=(_VECTOR,),
        out_features=int,
        use_residual=(False,),
    )
    tensors = weight_files.read_safetensors(path, required=bool(encoder.weights))
    names, unused = weight_files.match(path, _DENSE, tensors, num_layers=0)
    if unused:
        raise ValueError(f"{path}: a Dense has no tensors {', '.join(unused)}.")
    fields = {
        "dense_dim": config.get("out_features") or tensors["linear.weight"].shape[0],
        "dense_activation": _ACTIVATIONS.get(config.get("activation_function"), "tanh"),
    }
    return fields, weight_files.lazy_weights(names, tensors, encoder.architecture)


def _prompts(path: pathlib.Path) -> dict[str, Any]:
    """Returns the entries of the head for prompts; none if all are empty."""
    config = read_json_object(path / _MODEL_CONFIG, prompts=dict)
    prompts = {k: v or "" for k, v in (config.get("prompts") or {}).items()}
    default = {"default_prompt_name": config.get("default_prompt_name")}
    check_fields(path / _MODEL_CONFIG, prompts, **dict.fromkeys(prompts, str))
    check_fields(path / _MODEL_CONFIG, default, default_prompt_name=tuple(prompts))
    return {"prompts": prompts, **default} if any(prompts.values()) else {}


# --- Writing ---------------------------------------------------------------------


def write_modules(checkpoint: Checkpoint) -> None:
    """Writes the modules of a sentence encoder into `checkpoint.path`, if it is one."""
    path, head, listed = checkpoint.path, checkpoint.head, []
    if head["kind"] != "embedding":
        return
    config = EmbeddingConfig.from_dict(head)
    hidden_dim = checkpoint.architecture.hidden_dim
    length, modes = config.max_sequence_length, _POOLING_MODES.items()
    modules = {
        "Transformer": {"max_seq_length": length, "do_lower_case": False},
        "Pooling": {"word_embedding_dimension": hidden_dim}
        | {key: mode == config.pooling for key, mode in modes},
    }
    if config.dense_dim:
        modules["Dense"] = {
            "in_features": hidden_dim,
            "out_features": config.dense_dim,
            "bias": True,
            "activation_function": TORCH_ACTIVATIONS.get(config.dense_activation),
        }
    if config.normalize:
        modules["Normalize"] = {}
    for i, (name, values) in enumerate(modules.items()):
        folder, file = (f"{i}_{name}", _CONFIG) if i else ("", _TRANSFORMER_CONFIG)
        (path / folder).mkdir(exist_ok=True)
        text_files.write_json(path / folder / file, values)
        kind = f"sentence_transformers.models.{name}"
        listed.append({"idx": i, "name": str(i), "path": folder, "type": kind})
    text_files.write_json(path / MODULES, listed)
    keys = ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")
    if values := {key: head[key] for key in keys if head.get(key)}:
        text_files.write_json(path / _MODEL_CONFIG, values)


def write_dense(
    path: pathlib.Path, weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Writes the dense layer of a sentence encoder, if it has one.

    Returns:
        The other weights.
    """
    tensors, others = weight_files.to_tensors(_DENSE, weights, num_layers=0)
    if tensors:
        weight_files.write_safetensors(path / "2_Dense" / weight_files.WEIGHTS, tensors)
    return {name: weights[name] for name in others}
