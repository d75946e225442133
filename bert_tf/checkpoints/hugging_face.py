# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face checkpoints: folders that `transformers` reads and writes.

config.json             architecture, class of the model
model.safetensors       weights; or shards and model.safetensors.index.json
vocab.txt               or tokenizer.json, which also contains a vocabulary
tokenizer_config.json   cased or uncased
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bert_tf import heads, storage
from bert_tf.checkpoints import folder_tokenizer, weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint, check_fields, read_json_object
from bert_tf.checkpoints.google import GOOGLE_ENCODER, MASKED_LM
from bert_tf.modeling import GOOGLE_KEYS, BertConfig
from bert_tf.text import SPECIAL_TOKENS, AddedToken, Vocabulary

CONFIG = "config.json"

# --- Classes and names of weights ------------------------------------------------

# The last part of names in TensorFlow and Flax, and in early versions -> in torch.
_PARTS = dict.fromkeys(
    ("kernel", "gamma", "scale", "embedding", "embeddings"), "weight"
) | {"beta": "bias"}

_ENCODER_PARTS = ("embeddings.", "encoder.", "pooler.")

# Every BERT has this tensor, and no file has a copy of it under another name.
_ANCHOR = "embeddings.position_embeddings.weight"

# The kind of the head of each class. None: the tensors tell.
_KINDS = {
    class_name: None if issubclass(head, heads.EncoderHead) else kind
    for kind in heads.HEAD_KINDS
    for head in (heads.known_head(kind),)
    for class_name in head.transformers
}


def _rows(kind: str | None, *, has_prefix: bool = True) -> list[weight_files.Row]:
    """Returns the table for models with a head of this kind.

    Args:
        kind: As in `weights.open_tensors`.
        has_prefix: Whether the names of the encoder's weights start with `bert.`.
    """
    layers, bias = dict(GOOGLE_ENCODER), []
    head = heads.known_head(kind or "encoder")
    if head.transformers and not issubclass(head, heads.EncoderHead):
        layers["logits"] = head.transformers_layer
    elif kind != "encoder":
        layers |= MASKED_LM | {"nsp": "cls/seq_relationship"}
        names = ("cls.predictions.bias", "cls.predictions.decoder.bias")
        bias = [weight_files.Row("mlm/bias", names, "V")]
    # transformers names layers as google-research/bert does, with dots.
    layers = {
        ours: name.replace("/layer_", "/layer/")
        .replace("/", ".")
        .removeprefix("" if has_prefix else "bert.")
        for ours, name in layers.items()
    }
    tokens, *others = weight_files.rows_of_layers(
        layers, weight_files.TORCH_SUFFIXES, transposed=True
    )
    # Some files have a copy of the token embedding as the output matrix of masked LM.
    names = (*tokens.theirs, "cls.predictions.decoder.weight")
    return [tokens._replace(theirs=names), *others, *bias]


def _with_torch_names(
    tensors: Mapping[str, weight_files.Tensor],
) -> tuple[dict[str, weight_files.Tensor], list[str]]:
    """Renames tensors to their names in torch, and transposes kernels of TensorFlow.

    Removes the prefix of a model that contains the whole model, such as `module.` of
    DataParallel, adds `bert.` to the names of a `BertModel`, and leaves out buffers.

    Returns:
        The tensors, and a note if a prefix was removed.

    Raises:
        ValueError: There are two encoders, or two tensors get the same name.
    """
    names = {name: _torch_name(name) for name in tensors}
    anchors = [name for name in names.values() if f".{name}".endswith(f".{_ANCHOR}")]
    if len(anchors) > 1:
        raise ValueError(f"the file has several encoders: {', '.join(sorted(anchors))}")
    encoder = anchors[0].removesuffix(_ANCHOR) if anchors else ""
    wrapper = encoder.removesuffix("bert.")
    renamed, sources = {}, {}
    for source, name in names.items():
        name = name.removeprefix(wrapper)
        if wrapper == encoder and name.startswith(_ENCODER_PARTS):
            name = f"bert.{name}"
        if name in sources:
            raise ValueError(f"{sources[name]} and {source} are the same weight.")
        if not name.endswith((".position_ids", ".token_type_ids")):
            is_kernel = re.search(r"\bkernel(:0)?$", source)
            tensor = tensors[source]
            renamed[name] = _transposed(tensor) if is_kernel else tensor
            sources[name] = source
    note = f"The prefix {wrapper!r} of the names of the weights was ignored."
    return renamed, [note] if wrapper else []


def _transposed(tensor: weight_files.Tensor) -> weight_files.Tensor:
    return weight_files.Tensor(tensor.shape[::-1], lambda: tensor.read().T)


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
CONFIG_KEYS = {"model_type", "architectures", "num_hidden_layers"}

_KEYS = GOOGLE_KEYS | {"layer_norm_epsilon": "layer_norm_eps"}

# Defaults of keys that config.json may omit: those of `BertConfig`, except GELU's form.
_DEFAULTS = {
    key: getattr(BertConfig, ours)
    for ours, key in _KEYS.items()
    if hasattr(BertConfig, ours)
} | {"hidden_act": "gelu"}

# The writer uses the first name of each form.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}

# `problem` of classifiers -> `problem_type`.
_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}

# Activations of heads in Keras -> in torch.
TORCH = "torch.nn.modules"
TORCH_ACTIVATIONS = {
    "tanh": f"{TORCH}.activation.Tanh",
    "linear": f"{TORCH}.linear.Identity",
    "relu": f"{TORCH}.activation.ReLU",
    "gelu": f"{TORCH}.activation.GELU",
    "sigmoid": f"{TORCH}.activation.Sigmoid",
}

# Fields of config.json: their types, or the only values that are BERT's.
_FIELDS = {
    "position_embedding_type": ("absolute",),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "architectures": list,
    "id2label": dict,
    "num_labels": int,
    "bert_tf": dict,
    "problem_type": str,
}


def _architecture(path: pathlib.Path, config: Mapping[str, Any]) -> BertConfig:
    # Early versions did not write model_type.
    default = "bert" if _class_name(config).startswith("Bert") else "unknown"
    kind = config.get("model_type") or default
    check_fields(path, {"model_type": kind}, model_type=("bert",))
    try:
        fields = {ours: (_DEFAULTS | config)[key] for ours, key in _KEYS.items()}
        activation = fields["activation"]
        fields["activation"] = _ACTIVATIONS.get(str(activation), activation)
        return BertConfig(**fields)
    except KeyError as error:
        raise ValueError(f"{path}: key {error} is missing.") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _class_name(config: Mapping[str, Any]) -> str:
    """Returns the name of the model's class, BertModel if there is none."""
    return str((config.get("architectures") or ["BertModel"])[0])


def _labels(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns `labels` and `size` of `Head.declare`, and a note if they differ."""
    size, names = config.get("num_labels"), config.get("id2label")
    if names is None:
        return {"size": size}, []
    labels = [names.get(str(number)) for number in range(len(names))]
    if not all(isinstance(label, str | int | float) for label in labels):
        raise ValueError(
            f"{CONFIG}: id2label must map the numbers from 0 to labels. "
            f"Received: id2label={names!r:.80}"
        )
    note = f"num_labels is {size}, so id2label, which has {len(labels)}, is ignored."
    is_equal = size in (None, len(labels))
    return {"labels": list(map(str, labels)), "size": size}, [note] * (not is_equal)


def _own_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `head`, `options` and `tokenizer` that `to_config` wrote, by these names.

    The result is empty for folders of other projects, and if transformers saved a model
    of another class with a config of ours.
    """
    ours = config.get("bert_tf") or {}
    check_fields(f"{CONFIG}: bert_tf", ours, head=dict, options=dict, tokenizer=dict)
    head = dict(ours.get("head") or {})
    check_fields(f"{CONFIG}: bert_tf", head, kind=str)
    kind, classes = head.get("kind"), config.get("architectures")
    known = heads.known_head(kind).transformers
    if not kind or (classes and classes[0] not in known):
        return {}
    problems = {theirs: name for name, theirs in _PROBLEM_TYPES.items()}
    if problem := problems.get(config.get("problem_type")):
        head["problem"] = problem
    if "id2label" in config and problem != "regression":
        head["labels"] = _labels(config)[0]["labels"]
    return {**ours, "head": head}


# --- Reading ---------------------------------------------------------------------


def open_folder(
    path: pathlib.Path, kind: str | None = None, *, activation: str | None = None
) -> Checkpoint:
    """Opens a folder that `BertModel.from_pretrained` or a head class can load.

    Args:
        path: The folder.
        kind: The kind of head to read; by default that of the declared class.
        activation: As in `heads.Head.declare`.

    Raises:
        ValueError: It is not a BERT, has no safetensors, or a file is damaged or
            contradicts another one.
    """
    config = read_json_object(path / CONFIG, **_FIELDS)
    class_name = _class_name(config)
    architecture = _architecture(path / CONFIG, config)
    doubt = f"{CONFIG} declares the class {class_name}, which is not supported."
    kind = kind or _KINDS.get(class_name)
    try:
        ours = _own_settings(config)
        own_names = bool(ours) and not config.get("architectures")
        notes: list[str] = []
        tensors = weight_files.read_safetensors(path, may_lack_weights=bool(ours))
        if not own_names:
            tensors, notes = _with_torch_names(tensors)
        declared, label_notes = _labels(config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    declared |= {"problem": config.get("problem_type"), "activation": activation}
    head = heads.known_head(kind or "encoder")
    if "logits" in head.layers and not head.num_outputs:
        notes += label_notes
    tokenizer = folder_tokenizer.open_tokenizer(
        path, config, architecture.max_sequence_length, ours.get("tokenizer")
    )
    checkpoint = weight_files.open_tensors(
        path,
        _rows(kind),
        tensors,
        architecture=architecture,
        vocabulary=tokenizer.vocabulary,
        lowercase=tokenizer.lowercase,
        kind=kind,
        doubt="" if class_name in _KINDS else doubt,
        declared=declared,
        head=ours.get("head"),
        own_names=own_names,
        notes=[*notes, *tokenizer.notes],
        format=f"Hugging Face {class_name}",
        # transformers and sentence-transformers may have changed the length.
        options={
            **(ours.get("options") or {}),
            "max_sequence_length": tokenizer.max_length,
        },
        rules=tokenizer.rules,
        original_tokenizer=tokenizer.original,
    )
    if ours:
        return checkpoint
    settings = {**checkpoint.head, **head.transformers_settings}
    return dataclasses.replace(checkpoint, head=settings)


# --- Writing ---------------------------------------------------------------------

# Weights that a class may lack. Dense layers of sentence encoders have their own file.
_LEFT_OUT = ("pooler/", "sentence_embedding/")

# Entries of a head that transformers or sentence-transformers have a place for.
_ELSEWHERE = {"deviation", "labels", "mean", "newly_initialized", "problem"}
_ELSEWHERE |= {"prompts", "default_prompt_name", "include_prompt"}
_ELSEWHERE |= {field.name for field in dataclasses.fields(heads.EmbeddingConfig)}


def model_class(head: Mapping[str, Any], weights: Iterable[str] = ()) -> str | None:
    """Returns the name of the model class of `transformers` for a head.

    Args:
        head: The `head` of a `Checkpoint`.
        weights: Our names of all weights. If the class cannot hold one of them, the
            result is None.
    """
    kind, untrained = head["kind"], head.get("newly_initialized", ())
    name, *_ = *heads.known_head(kind).transformers, None
    if "mlm" in untrained:
        name = "BertModel" if "nsp" in untrained else "BertForNextSentencePrediction"
    elif "nsp" in untrained:
        name = "BertForMaskedLM"
    if name is None:
        return None
    names = (row.ours.replace("{i}", r"\d+") for row in _rows(kind))
    known = re.compile("|".join([*names, *(f"{start}.*" for start in _LEFT_OUT)]))
    return name if all(map(known.fullmatch, weights)) else None


def to_config(checkpoint: Checkpoint, class_name: str | None) -> dict[str, Any]:
    """Returns the contents of `config.json`.

    Args:
        checkpoint: The checkpoint to write.
        class_name: Name of its model class; None if transformers has none.
    """
    architecture, head = checkpoint.architecture, checkpoint.head
    by_form = {form: name for name, form in reversed(_ACTIVATIONS.items())}
    config = {
        **({"architectures": [class_name]} if class_name else {}),
        "model_type": "bert",
        **{key: getattr(architecture, ours) for ours, key in _KEYS.items()},
        "hidden_act": by_form[architecture.activation],
        "pad_token_id": checkpoint.vocabulary.pad_id,
        "position_embedding_type": "absolute",
        "dtype": "float32",
    }
    labels, problem, activation = head.get("labels"), head.get("problem"), "linear"
    if problem:
        config["problem_type"] = _PROBLEM_TYPES[problem]
    if problem == "regression":
        labels, activation = ["score"], head.get("activation", "linear")
    elif problem == "multi_label":
        activation = "sigmoid"
    if head.get("pairs"):  # As in cross-encoders of sentence-transformers 4.
        activation = TORCH_ACTIVATIONS[activation]
        config["sentence_transformers"] = {"activation_fn": activation}
    if labels:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    rest = {name: value for name, value in head.items() if name not in _ELSEWHERE}
    ours = {"head": rest, "options": dict(checkpoint.options)}
    if checkpoint.rules.library == "google":  # `write_tokenizer` writes all others.
        ours["tokenizer"] = {
            "special_tokens_in_texts": bool(checkpoint.rules.added_tokens)
        }
    return {**config, "bert_tf": ours}


def write_weights(
    path: pathlib.Path,
    class_name: str | None,
    weights: Mapping[str, np.ndarray],
    architecture: BertConfig,
) -> list[str]:
    """Writes the weights of a class, given by our names, atomically.

    Without a class, the encoder and the pre-training heads have their names in
    transformers, and all other weights keep ours.

    Returns:
        Our names of the weights that the class cannot hold.
    """
    kind = _KINDS.get(class_name)
    rows = _rows(kind, has_prefix=class_name != "BertModel")
    if "pooler" in heads.known_head(kind or "encoder").unused_layers:
        rows = [row for row in rows if not row.ours.startswith("pooler/")]
    tensors, left_out = weight_files.to_tensors(rows, weights, architecture)
    if class_name is None:
        tensors |= {name: weights[name] for name in left_out}
        left_out = []
    weight_files.write_safetensors(path / weight_files.WEIGHTS, tensors)
    return left_out


def write_tokenizer(path: pathlib.Path, checkpoint: Checkpoint) -> None:
    """Writes the files of a tokenizer; `transformers` loads them without warnings.

    The files cannot express google's rules; they get those of the library tokenizers,
    which differ in rare characters and for words of more than 100 characters.
    """
    rules, vocabulary = checkpoint.rules, checkpoint.vocabulary
    if rules.library == "google":
        limit = folder_tokenizer.PLAIN.max_characters_per_word
        rules = dataclasses.replace(rules, max_characters_per_word=limit)
    added = rules.added_tokens or tuple(map(AddedToken, SPECIAL_TOKENS))
    only_added = {t.content for t in added if not t.in_wordpiece}
    words = ("" if token in only_added else token for token in vocabulary.tokens)
    Vocabulary(tuple(words)).write(path / folder_tokenizer.VOCABULARY)
    original = folder_tokenizer.build_original(vocabulary, checkpoint.lowercase, rules)
    for token in added:
        folder_tokenizer.add_token(original, token)
    storage.write_text(
        str(path / folder_tokenizer.TOKENIZER), original.to_str(pretty=True)
    )
    is_bert = all(
        getattr(rules, flag) == getattr(folder_tokenizer.PLAIN, flag)
        for flag in folder_tokenizer.FIXED
    )
    length = checkpoint.architecture.max_sequence_length
    names = ["input_ids", "token_type_ids", "attention_mask"]
    config = {
        "tokenizer_class": "BertTokenizer" if is_bert else "PreTrainedTokenizerFast",
        "do_lower_case": checkpoint.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.split_chinese,
        "model_max_length": checkpoint.options.get("max_sequence_length", length),
        "truncation_side": rules.truncation_side,
        "model_input_names": names if rules.second_segment else names[::2],
        **folder_tokenizer.NAMES,
    }
    if rules.added_tokens:
        tokens = [dataclasses.asdict(token) for token in added]
        for token in tokens:
            del token["in_wordpiece"]
        ids = vocabulary.ids(token.content for token in added)
        config["added_tokens_decoder"] = dict(zip(map(str, ids), tokens))
    storage.write_json(path / folder_tokenizer.CONFIG, config)
