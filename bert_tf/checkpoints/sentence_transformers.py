# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""sentence-transformers: Hugging Face folders with modules on top of the encoder.

modules.json                             the modules, in order
config.json, model.safetensors, ...      the encoder, see `hugging_face`
sentence_bert_config.json                max_seq_length
1_Pooling/config.json                    pooling modes
2_Dense/config.json, model.safetensors   optional
config_sentence_transformers.json        kind of the model, prompts

The modules must be Transformer, Pooling, Dense (optional), Normalize (optional); for
sparse vectors, a Transformer with masked-LM head and SpladePooling. The writer uses the
file formats of versions 2 and 5, which all versions since then read.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import storage
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints.checkpoint import Checkpoint, read_json_object
from bert_tf.checkpoints.foreign import (
    WEIGHTS,
    read_safetensors,
    to_float,
    write_safetensors,
)
from bert_tf.checkpoints.hugging_face import TORCH, TORCH_ACTIVATIONS
from bert_tf.heads import (
    POOLING_MODES,
    SPARSE_ACTIVATIONS,
    SPARSE_POOLINGS,
    EmbeddingConfig,
)

MODULES, _CONFIG = "modules.json", "config.json"
_TRANSFORMER_CONFIG = "sentence_bert_config.json"
_MODEL_CONFIG = "config_sentence_transformers.json"
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
_SPARSE_MODULES = ["MLMTransformer", "SpladePooling"]  # Their names in version 5.

# Our pooling mode -> its key in configs of versions before 6.
_SUFFIXES = {"cls": "_token", "max": "_tokens", "mean": "_tokens"}
_SUFFIXES["weightedmean"] = "_tokens"
_POOLING_KEYS = {m: f"pooling_mode_{m}{_SUFFIXES.get(m, '')}" for m in POOLING_MODES}

# In the config.json of cross-encoders of versions 2 and 3, and of 4 and 5.
_CROSS_ENCODER_KEYS = ("sbert_ce_default_activation_function", "sentence_transformers")

# Weights of the module Dense -> ours.
_DENSE = {
    "linear.weight": "sentence_embedding/dense/kernel",
    "linear.bias": "sentence_embedding/dense/bias",
}


# --- Reading ---------------------------------------------------------------------


def is_folder(path: pathlib.Path) -> bool:
    """Returns whether sentence-transformers saved the folder."""
    return (path / MODULES).is_file() or _is_cross_encoder(path)


def _is_cross_encoder(path: pathlib.Path) -> bool:
    if read_json_object(path / _MODEL_CONFIG).get("model_type") == "CrossEncoder":
        return True
    # Before version 6, cross-encoders had no files of their own.
    config = read_json_object(path / _CONFIG)
    is_other = "bert_tf" in config or (path / MODULES).is_file()
    return not is_other and bool(config.keys() & set(_CROSS_ENCODER_KEYS))


def open_folder(path: pathlib.Path) -> Checkpoint:
    """Opens a folder of `SentenceTransformer`, `SparseEncoder` or `CrossEncoder`.

    Raises:
        ValueError: The encoder is not a BERT, or a module or an option of it is not
            supported.
    """
    if _is_cross_encoder(path):
        checkpoint = _open_cross_encoder(path)
    elif "SpladePooling" in _list_modules(path)[1]:
        checkpoint = _open_sparse_encoder(path)
    else:
        checkpoint = _open_sentence_encoder(path)
    format = f"{checkpoint.format}, sentence-transformers"
    return dataclasses.replace(checkpoint, format=format)


def _open_cross_encoder(path: pathlib.Path) -> Checkpoint:
    config = read_json_object(path / _CONFIG, sentence_transformers=dict)
    configs = (
        read_json_object(path / _MODEL_CONFIG),
        config.get("sentence_transformers") or {},
        {"activation_fn": config.get("sbert_ce_default_activation_function")},
    )
    declared = [c["activation_fn"] for c in configs if c.get("activation_fn")]
    names = {torch: name for name, torch in TORCH_ACTIVATIONS.items()}
    names[f"{TORCH}.activation.Softmax"] = "softmax"
    if declared and declared[0] not in names:
        raise ValueError(
            f"{path}: the activation of a cross-encoder must be one of "
            f"{', '.join(names)}. Received: {declared[0]!r}"
        )
    if (path / MODULES).is_file() and _list_modules(path)[1] != ["Transformer"]:
        raise ValueError(
            f"{path / MODULES}: the only module of a cross-encoder must be "
            f"Transformer. Received: {', '.join(_list_modules(path)[1])}"
        )
    prompts = _prompts(path, {})
    if default := prompts and prompts["prompts"].get(prompts["default_prompt_name"]):
        raise ValueError(
            f"{path / _MODEL_CONFIG}: default_prompt_name of a cross-encoder must be "
            f"null, because exports add no prompt to pairs. Received: {default!r}"
        )
    activation = names[declared[0]] if declared else None
    checkpoint = hugging_face.open_folder(path, "classification", activation=activation)
    head = {**checkpoint.head, "pairs": True}
    if activation is None and head.get("problem") == "regression":
        head["activation"] = "sigmoid"  # The default of `CrossEncoder`.
    return dataclasses.replace(checkpoint, head=head)


def _open_sentence_encoder(path: pathlib.Path) -> Checkpoint:
    modules = _modules(path)
    encoder = hugging_face.open_folder(path / modules["Transformer"], "encoder")
    pooling = read_json_object(path / modules["Pooling"] / _CONFIG)
    flags = [mode for mode, key in _POOLING_KEYS.items() if pooling.get(key)]
    modes = pooling.get("pooling_mode") or flags or "mean"
    fields = {
        "max_sequence_length": encoder.options["max_sequence_length"],
        "pooling": "+".join(map(str, modes)) if isinstance(modes, list) else modes,
        "normalize": "Normalize" in modules,
        "truncate_dim": read_json_object(path / _MODEL_CONFIG).get("truncate_dim"),
    }
    weights = dict(encoder.weights)
    if "Dense" in modules:
        dense = _read_dense(path / modules["Dense"], may_lack_weights=not weights)
        fields |= dense[0]
        weights |= dense[1]
    try:
        head = {"kind": "embedding", **EmbeddingConfig(**fields).to_dict()}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    head = {**encoder.head, **head, **_prompts(path, pooling)}
    return dataclasses.replace(encoder, head=head, weights=weights)


def _open_sparse_encoder(path: pathlib.Path) -> Checkpoint:
    folders, names = _list_modules(path)
    if names not in (["Transformer", "SpladePooling"], _SPARSE_MODULES):
        raise ValueError(
            f"{path / MODULES}: the modules of a sparse encoder must be Transformer "
            f"and SpladePooling. Received: {', '.join(names)}"
        )
    file = path / folders[1] / _CONFIG
    config = {"pooling_strategy": "max", "activation_function": "relu"}
    config |= read_json_object(file, pooling_strategy=str, activation_function=str)
    pooling, activation = config["pooling_strategy"], config["activation_function"]
    if pooling not in SPARSE_POOLINGS or activation not in SPARSE_ACTIVATIONS:
        raise ValueError(
            f"{file}: pooling_strategy must be one of {', '.join(SPARSE_POOLINGS)}, "
            f"activation_function one of {', '.join(SPARSE_ACTIVATIONS)}. Received: "
            f"{pooling}, {activation}"
        )
    if prompts := _prompts(path, {}):
        raise ValueError(
            f"{path / _MODEL_CONFIG}: prompts of a sparse encoder must be empty. "
            f"Received: {prompts['prompts']}"
        )
    checkpoint = hugging_face.open_folder(path / folders[0], "pretrainer")
    head = checkpoint.head
    if head["kind"] == "encoder" or "mlm" in head.get("newly_initialized", ()):
        raise ValueError(
            f"{path}: a sparse encoder needs a masked-LM head, which has no weights."
        )
    head = {**head, "sparse": {"pooling": pooling, "activation": activation}}
    return dataclasses.replace(checkpoint, head=head)


def _list_modules(path: pathlib.Path) -> tuple[list[str], list[str]]:
    """Returns the folders of the modules, and the names of their classes."""
    try:
        modules = json.loads((path / MODULES).read_text(encoding="utf-8"))
        pattern = r"^sentence_transformers\..*\."
        names = [re.sub(pattern, "", module["type"]) for module in modules]
        return [str(module["path"]) for module in modules], names
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path / MODULES} is not valid: {error!r}") from error


def _modules(path: pathlib.Path) -> dict[str, str]:
    """Returns the folder of each module of a sentence encoder, by its class."""
    folders, names = _list_modules(path)
    outside = [f for f in folders if pathlib.PurePath(f).name != f]
    expected = [name for name in _ORDER if name in (*_ORDER[:2], *names)]
    if names != expected or outside:
        raise ValueError(
            f"{path / MODULES}: the modules must be Transformer, Pooling, Dense "
            "(optional), Normalize (optional), in subfolders. Received: "
            f"{', '.join(names)} {outside or ''}"
        )
    return dict(zip(names, folders, strict=True))


def _read_dense(
    path: pathlib.Path, *, may_lack_weights: bool
) -> tuple[dict[str, Any], dict[str, Callable[[], np.ndarray]]]:
    """Returns fields of `EmbeddingConfig`, and the weights by our names."""
    types = {"activation_function": str, "bias": bool, "out_features": int}
    config = read_json_object(path / _CONFIG, **types)
    names = {torch: name for name, torch in TORCH_ACTIVATIONS.items()}
    activation = config.get("activation_function") or TORCH_ACTIVATIONS["tanh"]
    bias = config.get("bias", True)
    tensors = read_safetensors(path, may_lack_weights=may_lack_weights)
    expected = set(_DENSE) if bias else {"linear.weight"}
    expected = expected if tensors or not may_lack_weights else set()
    is_known = activation in names and not config.get("use_residual")
    if not is_known or tensors.keys() != expected:
        raise ValueError(
            f"{path}: activation_function must be one of {', '.join(names)}, "
            f"use_residual false, and the weights {sorted(expected)}. Received: "
            f"{config}, {sorted(tensors)}"
        )
    weight = tensors.get("linear.weight")
    size = weight.shape[0] if weight else config["out_features"]
    fields = {"dense_dim": size, "dense_bias": bias}

    def read(name: str) -> np.ndarray:
        # `.T` leaves the bias as it is.
        return np.ascontiguousarray(to_float(name, tensors[name].read()).T)

    weights = {_DENSE[name]: functools.partial(read, name) for name in tensors}
    return {**fields, "dense_activation": names[activation]}, weights


def _prompts(path: pathlib.Path, pooling: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of the head for prompts; none if all are empty."""
    types = {"prompts": dict, "default_prompt_name": str}
    config = read_json_object(path / _MODEL_CONFIG, **types)
    prompts = {k: v or "" for k, v in (config.get("prompts") or {}).items()}
    default = config.get("default_prompt_name")
    if default not in (None, *prompts) or not all(map(_is_string, prompts.values())):
        raise ValueError(
            f"{path / _MODEL_CONFIG}: prompts must be strings, and default_prompt_name "
            f"the name of one or null. Received: {prompts}, {default!r}"
        )
    if not any(prompts.values()):
        return {}
    head = {"prompts": prompts, "default_prompt_name": default}
    return head | {"include_prompt": pooling.get("include_prompt", True)}


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


# --- Writing ---------------------------------------------------------------------


def write_modules(checkpoint: Checkpoint) -> None:
    """Writes the modules of an encoder of sentences into `checkpoint.path`, if any."""
    path, head = checkpoint.path, checkpoint.head
    package = "sentence_transformers"
    if head["kind"] == "embedding":
        modules = _dense_modules(checkpoint)
    elif "sparse" in head:
        package += ".sparse_encoder"
        keys = ("pooling_strategy", "activation_function")
        sparse = (head["sparse"][name] for name in ("pooling", "activation"))
        length = {"max_seq_length": checkpoint.options["max_sequence_length"]}
        configs = ({**length, "do_lower_case": False}, dict(zip(keys, sparse)))
        modules = dict(zip(_SPARSE_MODULES, configs, strict=True))
    else:
        return
    listed = []
    for i, (name, config) in enumerate(modules.items()):
        folder, file = (f"{i}_{name}", _CONFIG) if i else ("", _TRANSFORMER_CONFIG)
        (path / folder).mkdir(exist_ok=True)
        storage.write_json(path / folder / file, config)
        kind = f"{package}.models.{name}"
        listed.append({"idx": i, "name": str(i), "path": folder, "type": kind})
    storage.write_json(path / MODULES, listed)
    keys = ("prompts", "default_prompt_name", "truncate_dim")
    values = {k: head[k] for k in keys if head.get(k)}
    values |= {"model_type": "SparseEncoder"} if "sparse" in head else {}
    if values:
        storage.write_json(path / _MODEL_CONFIG, values)


def _dense_modules(checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """Returns the configs of the modules of a sentence encoder, by their classes."""
    config = EmbeddingConfig.from_dict(checkpoint.head)
    hidden_dim, modes = checkpoint.architecture.hidden_dim, config.modes
    flags = {key: mode in modes for mode, key in _POOLING_KEYS.items()}
    # Only version 6 knows other orders of concatenation.
    in_order = modes == [mode for mode in POOLING_MODES if mode in modes]
    pooling = flags if in_order else {"pooling_mode": modes}
    if not checkpoint.head.get("include_prompt", True):
        pooling["include_prompt"] = False
    length = {"max_seq_length": config.max_sequence_length}
    modules = {
        "Transformer": {**length, "do_lower_case": False},
        "Pooling": {"word_embedding_dimension": hidden_dim, **pooling},
    }
    if config.dense_dim:
        modules["Dense"] = {
            "in_features": len(modes) * hidden_dim,
            "out_features": config.dense_dim,
            "bias": config.dense_bias,
            "activation_function": TORCH_ACTIVATIONS.get(config.dense_activation),
        }
    return {**modules, "Normalize": {}} if config.normalize else modules


def write_dense(
    path: pathlib.Path, weights: Mapping[str, np.ndarray], left_out: Sequence[str]
) -> list[str]:
    """Writes the dense layer of a sentence encoder, if it has one.

    Returns:
        The names in `left_out` that are not the layer's.
    """
    tensors = {n: weights[ours].T for n, ours in _DENSE.items() if ours in weights}
    if tensors:
        write_safetensors(path / "2_Dense" / WEIGHTS, tensors)
    return [name for name in left_out if name not in _DENSE.values()]
