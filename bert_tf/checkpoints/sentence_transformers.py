# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers: Hugging Face folders with modules on top of the encoder.

modules.json                             the modules, in order
config.json, model.safetensors, ...      the encoder, see `hugging_face`
sentence_bert_config.json                max_seq_length
1_Pooling/config.json                    pooling modes
2_Dense/config.json, model.safetensors   optional
config_sentence_transformers.json        kind of the model, prompts

The modules must be Transformer, Pooling, Dense (optional), Normalize (optional). The
writer uses the file formats of version 2, which all versions since then read.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import safetensors.numpy

from bert_tf import storage
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.foreign import (
    ForeignCheckpoint,
    Row,
    Tensors,
    to_foreign,
)
from bert_tf.checkpoints.model_directory import Checkpoint, read_json_object
from bert_tf.modeling import POOLING_MODES, EmbeddingConfig

MODULES = "modules.json"

_CONFIG, _TOKENIZER_CONFIG = "config.json", "tokenizer_config.json"
_TRANSFORMER_CONFIG = "sentence_bert_config.json"
_MODEL_CONFIG = "config_sentence_transformers.json"
_SUPPORTED = "Transformer, Pooling, Dense (optional), Normalize (optional)"

# Our pooling mode -> its key in configs of versions before 6.
_POOLING_KEYS = {mode: f"pooling_mode_{mode}" for mode in POOLING_MODES} | {
    mode: f"pooling_mode_{mode}_tokens" for mode in ("max", "mean", "weightedmean")
}
_POOLING_KEYS["cls"] = "pooling_mode_cls_token"

# Activations in Keras -> in torch.
_ACTIVATIONS = {
    "tanh": "torch.nn.modules.activation.Tanh",
    "linear": "torch.nn.modules.linear.Identity",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
}

_DENSE = "sentence_embedding/dense"
_DENSE_ROWS = (
    Row(f"{_DENSE}/kernel", ("linear.weight",), "", "", transposed=True),
    Row(f"{_DENSE}/bias", ("linear.bias",), "", ""),
)


# --- Reading ---------------------------------------------------------------------


def is_sentence_encoder(path: pathlib.Path) -> bool:
    """Returns whether `SentenceTransformer` saved the folder, not `CrossEncoder`."""
    kind = read_json_object(path / _MODEL_CONFIG).get("model_type")
    return (path / MODULES).is_file() and kind != "CrossEncoder"


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder that `SentenceTransformer` can load.

    Raises:
        ValueError: The encoder is not a BERT, or a module or an option of it is not
            supported.
    """
    modules = _modules(path)
    encoder = hugging_face.open_folder(path / modules["Transformer"])
    fields = {
        "max_sequence_length": _max_length(encoder),
        "pooling": _read_pooling(path / modules["Pooling"]),
        "normalize": "Normalize" in modules,
    }
    rows, tensors = list(encoder.rows), encoder.tensors
    if "Dense" in modules:
        dense, dense_tensors = _read_dense(path / modules["Dense"])
        fields |= dense
        rows += [row for row in _DENSE_ROWS if row.theirs[0] in dense_tensors.shapes]
        tensors = _merged(tensors, dense_tensors)
    try:
        config = EmbeddingConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    head = {"kind": "embedding", **config.to_dict()}
    if "newly_initialized" in encoder.head:
        head["newly_initialized"] = encoder.head["newly_initialized"]
    return dataclasses.replace(
        encoder,
        format=f"{encoder.format}, sentence-transformers",
        head=head,
        rows=rows,
        tensors=tensors,
        notes=[*encoder.notes, *_prompts(path)],
    )


def _modules(path: pathlib.Path) -> dict[str, str]:
    """Returns the folder of each module, by the name of its class."""
    try:
        modules = json.loads((path / MODULES).read_text(encoding="utf-8"))
        names = [
            re.sub(r"^sentence_transformers\..*\.", "", m["type"]) for m in modules
        ]
        folders = dict(zip(names, [module["path"] for module in modules], strict=True))
        if any(pathlib.PurePath(folder).name != folder for folder in folders.values()):
            raise ValueError(f"each path must be a subfolder, got {folders}")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path / MODULES} is not valid: {error!r}") from error
    order = ["Transformer", "Pooling", "Dense", "Normalize"]
    if names != [n for n in order if n in names] or names[:2] != order[:2]:
        raise ValueError(
            f"{path / MODULES}: the modules must be {_SUPPORTED}. Received: "
            f"{', '.join(names)}"
        )
    return folders


def _max_length(encoder: Checkpoint) -> int:
    types = {"max_seq_length": int, "do_lower_case": bool}
    config = read_json_object(encoder.path / _TRANSFORMER_CONFIG, **types)
    if config.get("do_lower_case") and not encoder.lowercase:
        raise ValueError(
            f"{encoder.path / _TRANSFORMER_CONFIG}: do_lower_case must be false, "
            "because the tokenizer is cased."
        )
    # Version 6 writes the length to the tokenizer's config.
    file = encoder.path / _TOKENIZER_CONFIG
    tokenizer = read_json_object(file, model_max_length=int)
    limit = encoder.architecture.max_sequence_length
    length = config.get("max_seq_length") or tokenizer.get("model_max_length") or limit
    return min(length, limit)


def _read_pooling(path: pathlib.Path) -> str:
    config = read_json_object(path / _CONFIG)
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [mode for mode, key in _POOLING_KEYS.items() if config.get(key)]
    return "+".join(map(str, modes or ["mean"])) if isinstance(modes, list) else modes


def _read_dense(path: pathlib.Path) -> tuple[dict[str, Any], Tensors]:
    """Returns fields of `EmbeddingConfig`, and the weights."""
    config = read_json_object(path / _CONFIG, activation_function=str)
    activations = {torch: name for name, torch in _ACTIVATIONS.items()}
    activation = config.get("activation_function") or _ACTIVATIONS["tanh"]
    if activation not in activations or config.get("use_residual"):
        raise ValueError(
            f"{path / _CONFIG}: activation_function must be one of "
            f"{', '.join(activations)}, and use_residual must be false. Received: "
            f"activation_function={activation!r}, "
            f"use_residual={config.get('use_residual', False)}"
        )
    units, inputs = config.get("out_features"), config.get("in_features")
    shapes = {"linear.weight": (units, inputs)}
    if config.get("bias", True):
        shapes["linear.bias"] = (units,)
    tensors = hugging_face.open_tensors(path)
    if tensors.shapes != shapes:
        raise ValueError(
            f"{path}: the config implies the weights {shapes}. Received: "
            f"{dict(tensors.shapes)}"
        )
    fields = {
        "dense_dim": units,
        "dense_activation": activations[activation],
        "dense_bias": "linear.bias" in shapes,
    }
    return fields, tensors


def _merged(first: Tensors, second: Tensors) -> Tensors:
    return Tensors(
        {**first.shapes, **second.shapes},
        lambda name: (second if name in second.shapes else first).read(name),
    )


def _prompts(path: pathlib.Path) -> list[str]:
    """Returns notes about prompts, which users prepend to their texts."""
    types = {"prompts": dict, "default_prompt_name": str}
    config = read_json_object(path / _MODEL_CONFIG, **types)
    prompts = {k: v for k, v in (config.get("prompts") or {}).items() if v}
    default = config.get("default_prompt_name")
    if default in prompts:
        raise ValueError(
            f"{path / _MODEL_CONFIG}: default_prompt_name must be null, because "
            f"exports add no prompt. Received: {default!r}. Set it to null and prepend "
            f"{prompts[default]!r} to your texts."
        )
    return [f"Prompt to prepend, {k}: {v!r}" for k, v in prompts.items()]


# --- Writing ---------------------------------------------------------------------


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a folder that `SentenceTransformer` loads.

    Args:
        path: An empty folder.
        checkpoint: A checkpoint whose head has the kind "embedding".

    Returns:
        The names of the weights that the format cannot hold.
    """
    left_out = hugging_face.write_folder(path, checkpoint)
    config = EmbeddingConfig.from_dict(checkpoint.head)
    storage.write_json(
        path / _TRANSFORMER_CONFIG,
        {"max_seq_length": config.max_sequence_length, "do_lower_case": False},
    )
    hidden_dim = checkpoint.architecture.hidden_dim
    modules = {"Transformer": None, "Pooling": _pooling_config(config, hidden_dim)}
    if config.dense_dim:
        modules["Dense"] = {
            "in_features": len(config.modes) * hidden_dim,
            "out_features": config.dense_dim,
            "bias": config.dense_bias,
            "activation_function": _ACTIVATIONS[config.dense_activation],
        }
    if config.normalize:
        modules["Normalize"] = {}
    folders = [f"{i}_{name}" if i else "" for i, name in enumerate(modules)]
    for folder, module in zip(folders[1:], list(modules.values())[1:]):
        (path / folder).mkdir()
        storage.write_json(path / folder / _CONFIG, module)
    if config.dense_dim:
        weights, architecture = checkpoint.read_weights(), checkpoint.architecture
        tensors, _ = to_foreign(_DENSE_ROWS, weights, architecture)
        file = path / folders[2] / hugging_face.WEIGHTS
        safetensors.numpy.save_file(tensors, file, metadata={"format": "pt"})
    storage.write_json(
        path / MODULES,
        [
            {
                "idx": i,
                "name": str(i),
                "path": folder,
                "type": f"sentence_transformers.models.{name}",
            }
            for i, (name, folder) in enumerate(zip(modules, folders, strict=True))
        ],
    )
    return [name for name in left_out if not name.startswith(_DENSE)]


def _pooling_config(config: EmbeddingConfig, hidden_dim: int) -> Mapping[str, Any]:
    modes = config.modes
    in_order = sorted(modes, key=POOLING_MODES.index) == modes
    flags = {key: mode in modes for mode, key in _POOLING_KEYS.items()}
    # Only version 6 knows other orders of concatenation.
    pooling = flags if in_order else {"pooling_mode": modes}
    return {"word_embedding_dimension": hidden_dim, **pooling}
