# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face checkpoints: folders that `transformers` reads and writes.

config.json             architecture, class of the model
model.safetensors       weights
vocab.txt               or tokenizer.json, which also contains a vocabulary
tokenizer_config.json   cased or uncased
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf import heads, text_files
from bert_tf.checkpoints import weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.folder_tokenizer import open_tokenizer
from bert_tf.families import FAMILIES, Family
from bert_tf.modeling import HUGGING_FACE_ACTIVATIONS, BertConfig

CONFIG = "config.json"

# --- Classes and names of weights ------------------------------------------------

# The last part of names in TensorFlow and in early versions -> in torch.
_PARTS = dict.fromkeys(("kernel", "gamma", "embeddings"), "weight") | {"beta": "bias"}

# Every encoder has this tensor, and no file has a copy of it under another name.
_ANCHOR = "embeddings.position_embeddings.weight"


def _kinds() -> dict[str, str]:
    """Returns the kind of the head of each class in transformers."""
    return {
        f"{family.name}{suffix}": kind
        for family in FAMILIES.values()
        for kind, suffixes in family.classes.items()
        for suffix in suffixes
    }


def _listed_kind(kind: str) -> str | None:
    """Returns a kind with classes: `kind` or that of a base class of its head."""
    kinds = [vars(x).get("kind") for x in heads.known_head(kind).__mro__]
    return next((kind for kind in kinds if kind in _kinds().values()), None)


def _declared_kind(kind: str) -> str | None:
    """Returns the kind of the class in config.json; None for heads of the user.

    transformers has no class for these, even if they extend a head of the package.
    """
    return _listed_kind(kind) if kind in heads.BUILT_IN else None


def _names(architecture: BertConfig, kind: str | None) -> weight_files.Names:
    """Returns the table for models with a head of this kind, see `open_tensors`.

    Args:
        architecture: The architecture.
        kind: None for an encoder or a pre-trained model.
    """
    layers = architecture.family.layers(kind or "pretrainer")
    if architecture.embedding_dim == architecture.hidden_dim:
        layers.pop("embeddings/projection", None)
    return weight_files.names_of_layers(layers, weight_files.TORCH_SUFFIXES)


def _with_torch_names(
    path: pathlib.Path, tensors: weight_files.Tensors, family: Family
) -> weight_files.Tensors:
    """Renames tensors to their names in torch, and transposes kernels of TensorFlow.

    Removes the prefix of a model that contains the whole model, such as `module.` of
    DataParallel, adds e.g. `bert.` to the names of a `BertModel`, and leaves out
    buffers.

    Raises:
        ValueError: There are two encoders.
    """
    names = {name: _torch_name(name) for name in tensors}
    encoder = weight_files.find_prefix(path, names.values(), _ANCHOR)
    wrapper = encoder.removesuffix(family.prefix)
    parts = {name.partition(".")[0] for name in family.encoder.values()}
    renamed = {}
    for source, name in names.items():
        name, tensor = name.removeprefix(wrapper), tensors[source]
        if wrapper == encoder and name.partition(".")[0] in parts:
            name = family.prefix + name
        if re.search(r"\bkernel(:0)?$", source):
            tensor = weight_files.Tensor(
                tensor.shape[::-1], lambda read=tensor.read: read().T
            )
        if not name.endswith((".position_ids", ".token_type_ids")):
            renamed[name] = tensor
    return renamed


def _torch_name(name: str) -> str:
    """Returns the name that transformers gives to a weight in torch.

    Example: `bert/encoder/layer_._0/output/LayerNorm/gamma:0` in TensorFlow is
    `bert.encoder.layer.0.output.LayerNorm.weight`.
    """
    name = name.removesuffix(":0").replace("_._", ".").replace("/", ".")
    # TensorFlow's heads are called `mlm___cls` and `nsp___cls`.
    stem, dot, part = re.sub(r"[^.]*___", "", name).rpartition(".")
    return stem + dot + _PARTS.get(part, part)


# --- Config ----------------------------------------------------------------------

# A config.json with one of these keys was written by transformers.
_CONFIG_KEYS = {"model_type", "architectures", "num_hidden_layers"}

# `problem_type` -> `problem` of classifiers.
_PROBLEMS = {
    "single_label_classification": "classification",
    "multi_label_classification": "multi_label",
    "regression": "regression",
}

# Activations of heads in Keras -> in torch.
TORCH_ACTIVATIONS = {
    name.lower(): f"torch.nn.modules.activation.{name}"
    for name in ("Tanh", "ReLU", "GELU", "Sigmoid", "Softmax")
} | {"linear": "torch.nn.modules.linear.Identity"}

# Fields of config.json: their types or values.
_FIELDS = {
    "architectures": list,
    "auto_map": (),
    "id2label": dict,
    "num_labels": int,
    "bert_tf": dict,
    "problem_type": tuple(_PROBLEMS),
}


def _architecture(path: pathlib.Path, config: Mapping[str, Any]) -> BertConfig:
    name = _class_name(config)  # Early versions did not write model_type.
    named = [x for x, family in FAMILIES.items() if name.startswith(family.name)]
    kind = config.get("model_type") or (named or ["unknown"])[0]
    return BertConfig.from_hugging_face(path, {**config, "model_type": kind})


def _class_name(config: Mapping[str, Any]) -> str:
    """Returns the name of the model's class, BertModel if there is none."""
    return str((config.get("architectures") or ["BertModel"])[0])


def _labels(path: pathlib.Path, config: Mapping[str, Any]) -> list[str] | None:
    """Returns the names of the outputs; None if there are none."""
    names, size = config.get("id2label"), config.get("num_labels")
    if size not in (None, len(names or ())):  # As in transformers.
        return [f"LABEL_{number}" for number in range(size)]
    if names is None:
        return None
    labels = [names.get(str(number)) for number in range(len(names))]
    if not all(isinstance(label, str | int | float) for label in labels):
        raise ValueError(
            f"{path / CONFIG}: id2label must map the numbers from 0 to labels. "
            f"Received: id2label={names!r:.80}"
        )
    return list(map(str, labels))


def _own_settings(path: pathlib.Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the `head`, `options`, ... that `write_config` wrote, by these names.

    The result is empty for folders of other projects, and if transformers saved a model
    of another class with a config of ours.

    Raises:
        ValueError: Somebody has changed them to values of other types.
    """
    ours, place = config.get("bert_tf") or {}, f"{path / CONFIG}: bert_tf"
    types = dict.fromkeys(("head", "options", "tokenizer"), dict)
    types |= {"model_type": str, "source": str}
    text_files.check_fields(place, ours, **types)
    head, classes = ours.get("head") or {}, config.get("architectures")
    text_files.check_fields(f"{place}: head", head, kind=str, decision=dict)
    kind = head.get("kind")
    if not kind or (classes and _declared_kind(kind) != _kinds().get(classes[0], "")):
        return {}
    if kind == "embedding":  # Only with modules of sentence-transformers, see there.
        return {**ours, "head": {**head, "kind": "encoder"}}
    return ours


# --- Reading ---------------------------------------------------------------------


def detect(path: pathlib.Path, config: Mapping[str, Any]) -> Callable | None:
    """Returns `open_folder` if transformers or this project wrote a config.json."""
    return open_folder if config.keys() & _CONFIG_KEYS else None


def open_folder(
    path: pathlib.Path,
    config: Mapping[str, Any],
    kind: str | None = None,
    *,
    activation: str | None = None,
) -> Checkpoint:
    """Opens a folder that `BertModel.from_pretrained` or a head class can load.

    Args:
        path: The folder.
        config: Its config.json.
        kind: The kind of head to read; by default that of the declared class.
        activation: As in `heads.Head.declare`.

    Raises:
        ValueError: It is not a BERT, has no safetensors, or a file is damaged or
            contradicts another one.
    """
    text_files.check_fields(path / CONFIG, config, **_FIELDS)
    encoder = ""
    if family := (config.get("bert_tf") or {}).get("model_type"):
        encoder = config["model_type"]
        config = {**config, "model_type": family}
    class_name = _class_name(config)
    architecture = _architecture(path / CONFIG, config)
    doubt = f"{CONFIG} declares the class {class_name}, which is not supported."
    declared = _kinds().get(class_name)
    if declared != "pretrainer" and not class_name.endswith("Model"):
        kind = kind or declared
    labels, problem = _labels(path, config), _PROBLEMS.get(config.get("problem_type"))
    head = {"labels": labels, "problem": problem, "activation": activation}
    ours, settings = _own_settings(path, config), {}
    if ours:
        settings = {name: x for name, x in head.items() if x} | ours["head"]
        if problem == "regression":
            settings.pop("labels", None)
    elif kind == "tagging":  # Pipelines of transformers tag every piece of a word.
        settings = {"aggregation": "simple"}
    own_names = bool(ours) and not config.get("architectures")
    tensors = weight_files.read_safetensors(path, required=not ours)
    if not own_names:
        tensors = _with_torch_names(path, tensors, architecture.family)
    tokenizer = open_tokenizer(
        path, config, architecture.max_sequence_length, ours.get("tokenizer")
    )
    # transformers and sentence-transformers may have changed the length.
    tokenizer["options"] = {**(ours.get("options") or {}), **tokenizer["options"]}
    checkpoint = weight_files.open_tensors(
        path,
        _names(architecture, _listed_kind(kind) or kind),
        tensors,
        architecture=architecture,
        kind=kind,
        doubt="" if declared else doubt,
        declared=head,
        settings=settings,
        own_names=own_names,
        format=f"Hugging Face {class_name}",
        encoder=encoder,
        source=ours.get("source") or "",
        **tokenizer,
    )
    decision = checkpoint.head.get("decision") if checkpoint.weights else None
    if decision and decision.get("fingerprint") != checkpoint.fingerprint(["logits"]):
        message = "%s: dropped %s, which was fitted for other weights of the head."
        logging.warning(message, path, checkpoint.head.pop("decision"))
    return checkpoint


# --- Writing ---------------------------------------------------------------------

# Entries of a head that transformers or sentence-transformers have a place for.
_ELSEWHERE = {"labels", "newly_initialized", "problem"}
_IN_MODULES = {"prompts", "default_prompt_name"}
_IN_MODULES |= {field.name for field in dataclasses.fields(heads.EmbeddingConfig)}


def model_class(checkpoint: Checkpoint) -> str | None:
    """Returns the name of the model class of transformers; None if it has none."""
    if checkpoint.encoder:
        return None
    family, head = checkpoint.architecture.family, checkpoint.head
    kind, untrained = _declared_kind(head["kind"]), head.get("newly_initialized", ())
    suffixes = family.classes.get(kind, ())
    if kind == "pretrainer":
        has_mlm, has_nsp = "mlm" not in untrained, "nsp" not in untrained
        suffix = ("Model", "ForNextSentencePrediction", "ForMaskedLM", "ForPreTraining")
        suffix = suffix[2 * has_mlm + has_nsp]
        suffixes = [suffix] if suffix in (*suffixes, "Model") else ()
    return f"{family.name}{suffixes[0]}" if suffixes else None


def write_config(checkpoint: Checkpoint, class_name: str | None) -> None:
    """Writes `config.json`.

    Args:
        checkpoint: The checkpoint to write.
        class_name: Name of its model class; None if transformers has none.
    """
    architecture, head = checkpoint.architecture, checkpoint.head
    family, values = architecture.family, dataclasses.asdict(architecture)
    by_form = {form: name for name, form in reversed(HUGGING_FACE_ACTIVATIONS.items())}
    values["activation"] = by_form[architecture.activation]
    values = {ours: x for ours, x in values.items() if x is not None}
    config = {
        **({"architectures": [class_name]} if class_name else {}),
        # Of another encoder, a type that transformers does not open as BERT.
        "model_type": checkpoint.encoder or architecture.model_type,
        **{key: allowed[0] for key, allowed in family.required.items()},
        **{key: values[ours] for ours, key in family.keys.items() if ours in values},
        "pad_token_id": checkpoint.vocabulary.pad_id,
        "dtype": "float32",
    }
    labels, problem = head.get("labels"), head.get("problem")
    if problem:
        config["problem_type"] = {ours: x for x, ours in _PROBLEMS.items()}[problem]
    if problem == "regression":
        labels = ["score"]
    if head.get("pairs"):  # As in cross-encoders of sentence-transformers 4.
        default = "sigmoid" if problem == "multi_label" else "linear"
        activation = TORCH_ACTIVATIONS[head.get("activation", default)]
        config["sentence_transformers"] = {"activation_fn": activation}
    if labels:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    elsewhere = _ELSEWHERE | (_IN_MODULES if head["kind"] == "embedding" else set())
    elsewhere -= set() if class_name else {"newly_initialized"}
    rest = {name: value for name, value in head.items() if name not in elsewhere}
    ours = {"head": rest, "options": dict(checkpoint.options)}
    ours |= {"source": checkpoint.source} if checkpoint.source else {}
    if checkpoint.encoder:
        ours["model_type"] = architecture.model_type
    if checkpoint.rules.library == "google":  # `write_tokenizer` writes all others.
        ours["tokenizer"] = {
            "special_tokens_in_texts": bool(checkpoint.rules.added_tokens)
        }
    text_files.write_json(checkpoint.path / CONFIG, {**config, "bert_tf": ours})


def write_weights(
    checkpoint: Checkpoint, weights: Mapping[str, np.ndarray]
) -> list[str]:
    """Writes weights, given by our names, and the class of `config.json`.

    If transformers has no class for them, the encoder and the pre-training heads have
    their names in transformers, and all other weights keep ours.

    Returns:
        Our names of the weights that the class cannot hold: those of a pooler.
    """
    architecture = checkpoint.architecture
    layers, class_name = architecture.num_layers, model_class(checkpoint)
    kind = _kinds().get(class_name)
    names = _names(architecture, kind)
    if "pooler" in heads.known_head(kind or "encoder").unused_layers:
        names.pop("pooler/kernel", None), names.pop("pooler/bias", None)
    tensors, left_out = weight_files.to_tensors(names, weights, layers)
    if class_name is None or not all(n.startswith("pooler/") for n in left_out):
        class_name = None
        names = _names(architecture, None)
        tensors, left_out = weight_files.to_tensors(names, weights, layers)
        tensors |= {name: weights[name] for name in left_out}
        left_out = []
    elif kind == "encoder":
        prefix = architecture.family.prefix
        tensors = {name.removeprefix(prefix): x for name, x in tensors.items()}
    write_config(checkpoint, class_name)
    weight_files.write_safetensors(checkpoint.path / weight_files.WEIGHTS, tensors)
    return left_out
