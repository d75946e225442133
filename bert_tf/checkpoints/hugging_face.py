# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face checkpoints: folders that `transformers` writes and reads.

config.json             architecture, classes of the model
model.safetensors       weights; or shards and model.safetensors.index.json
vocab.txt               or tokenizer.json, which holds a vocabulary too
tokenizer_config.json   cased or uncased
"""

from __future__ import annotations

import importlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf import storage
from bert_tf.checkpoints import names
from bert_tf.checkpoints.foreign import ForeignCheckpoint, guess_lowercase, open_tensors
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.checkpoints.names import Row
from bert_tf.modeling.config import GOOGLE_KEYS, BertConfig
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

FORMAT = "Hugging Face"

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_INDEX = "model.safetensors.index.json"
_VOCABULARY, _TOKENIZER_CONFIG = "vocab.txt", "tokenizer_config.json"

# --- The table of names ----------------------------------------------------------


def _embedding(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/embeddings", (f"{theirs}.weight",))]


def _dense(ours: str, theirs: str) -> list[Row]:
    return [
        Row(f"{ours}/kernel", (f"{theirs}.weight",), transposed=True),
        Row(f"{ours}/bias", (f"{theirs}.bias",)),
    ]


def _layer_norm(ours: str, theirs: str) -> list[Row]:
    # Gamma and beta: in files made from TensorFlow's by early versions.
    return [
        Row(f"{ours}/gamma", (f"{theirs}.weight", f"{theirs}.gamma")),
        Row(f"{ours}/beta", (f"{theirs}.bias", f"{theirs}.beta")),
    ]


_OURS, _THEIRS = "encoder_layer_{i}", "encoder.layer.{i}"

_ENCODER = [
    *_embedding("embeddings/token_embedding", "embeddings.word_embeddings"),
    *_embedding("embeddings/position_embedding", "embeddings.position_embeddings"),
    *_embedding("embeddings/segment_embedding", "embeddings.token_type_embeddings"),
    *_layer_norm("embeddings/layer_norm", "embeddings.LayerNorm"),
    *_dense(f"{_OURS}/query", f"{_THEIRS}.attention.self.query"),
    *_dense(f"{_OURS}/key", f"{_THEIRS}.attention.self.key"),
    *_dense(f"{_OURS}/value", f"{_THEIRS}.attention.self.value"),
    *_dense(f"{_OURS}/attention_output", f"{_THEIRS}.attention.output.dense"),
    *_layer_norm(
        f"{_OURS}/attention_layer_norm", f"{_THEIRS}.attention.output.LayerNorm"
    ),
    *_dense(f"{_OURS}/intermediate", f"{_THEIRS}.intermediate.dense"),
    *_dense(f"{_OURS}/output", f"{_THEIRS}.output.dense"),
    *_layer_norm(f"{_OURS}/output_layer_norm", f"{_THEIRS}.output.LayerNorm"),
    *_dense("pooler", "pooler.dense"),
]

_PRETRAINER = [
    *_dense("mlm/dense", "cls.predictions.transform.dense"),
    *_layer_norm("mlm/layer_norm", "cls.predictions.transform.LayerNorm"),
    Row("mlm/bias", ("cls.predictions.bias", "cls.predictions.decoder.bias")),
    *_dense("nsp", "cls.seq_relationship"),
]

# The output matrix of masked LM is the token embedding again, and some files have it.
_TIED = "cls.predictions.decoder.weight"


class _TaskHead(NamedTuple):
    kind: str
    theirs: str
    has_labels: bool


# The models with a task's head, by their class.
_TASK_HEADS = {
    "BertForSequenceClassification": _TaskHead("classification", "classifier", True),
    "BertForQuestionAnswering": _TaskHead("question_answering", "qa_outputs", False),
    "BertForTokenClassification": _TaskHead("tagging", "classifier", True),
    "BertForMultipleChoice": _TaskHead("multiple_choice", "classifier", False),
}

# Those whose class has no pooler.
_WITHOUT_POOLER = (
    "BertForMaskedLM",
    "BertForQuestionAnswering",
    "BertForTokenClassification",
)


def _rows(class_name: str, *, prefix: str) -> list[Row]:
    """The table for a class, whose encoder's names begin with `prefix`."""
    rows = []
    for row in _ENCODER:
        theirs = tuple(prefix + name for name in row.theirs)
        if row.ours.startswith("embeddings/token_embedding"):
            theirs = (*theirs, _TIED)
        rows.append(row._replace(theirs=theirs))
    if class_name in _TASK_HEADS:
        return rows + _dense("logits", _TASK_HEADS[class_name].theirs)
    return rows + _PRETRAINER


# --- The config ------------------------------------------------------------------

# One of these tells a config.json of transformers from those of others.
CONFIG_KEYS = {"model_type", "architectures", "num_hidden_layers"}

_KEYS = GOOGLE_KEYS | {"layer_norm_epsilon": "layer_norm_eps"}

# What a config.json means that leaves them out.
_DEFAULTS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}

# The first name of each form is written.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}

# Variants of the architecture that are another model: key and the value of BERT's.
_REQUIRED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from error


def _architecture(path: pathlib.Path, config: Mapping[str, Any]) -> BertConfig:
    class_name = _classes(config)[0]
    # Early files have no model_type.
    kind = config.get("model_type", "bert" if class_name.startswith("Bert") else None)
    if kind != "bert":
        raise ValueError(
            f"{path}: holds a model of another architecture, {kind!r} ({class_name}), "
            "and only 'bert' is read."
        )
    for key, value in _REQUIRED.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"{path}: BERT has {key}={value!r}. Received: {key}={config[key]!r}"
            )
    try:
        fields = {ours: (_DEFAULTS | config)[key] for ours, key in _KEYS.items()}
    except KeyError as error:
        raise ValueError(f"{path}: the key {error} is missing.") from error
    activation = fields["activation"]
    fields["activation"] = _ACTIVATIONS.get(activation, activation)
    try:
        return BertConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _classes(config: Mapping[str, Any]) -> list[str]:
    """Names of the model's class, BertModel where the config has none."""
    return config.get("architectures") or ["BertModel"]


def _head(class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What our config.json says of a task's head."""
    task = _TASK_HEADS[class_name]
    if not task.has_labels:
        return {"kind": task.kind}
    by_number = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = [by_number[number] for number in sorted(by_number, key=int)]
    if config.get("problem_type") == "regression" or len(labels) == 1:
        return {"kind": task.kind, "problem": "regression", "mean": 0, "deviation": 1}
    return {"kind": task.kind, "labels": labels}


# --- Reading ---------------------------------------------------------------------


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder as `BertModel.from_pretrained` and its sister classes do.

    Raises:
        ValueError: It is no BERT, has no safetensors, or a file is damaged or
            contradicts another.
    """
    config = _read_json(path / _CONFIG)
    architecture = _architecture(path / _CONFIG, config)
    tensors = _open_tensors(path)
    vocabulary, lowercase, notes = _open_tokenizer(path)
    class_name = _classes(config)[0]
    prefix = "bert." if any(name.startswith("bert.") for name in tensors.shapes) else ""
    head = _head(class_name, config) if class_name in _TASK_HEADS else None
    return open_tensors(
        path,
        format=f"{FORMAT} {class_name}",
        rows=_rows(class_name, prefix=prefix),
        tensors=tensors,
        config=architecture,
        vocabulary=vocabulary,
        lowercase=lowercase,
        head=head,
        notes=notes,
    )


def _open_tensors(path: pathlib.Path) -> names.Tensors:
    if (path / _INDEX).is_file():
        files = sorted(set(_read_json(path / _INDEX)["weight_map"].values()))
    elif (path / _WEIGHTS).is_file():
        files = [_WEIGHTS]
    else:
        raise ValueError(_why_no_weights(path))
    shapes, source = {}, {}
    for file in files:
        try:
            opened = safetensors.safe_open(path / file, framework="np")
        except FileNotFoundError as error:
            raise ValueError(
                f"{path}: {_INDEX} names the file {file}, which is not there."
            ) from error
        except safetensors.SafetensorError as error:
            raise ValueError(
                f"{path / file}: not a whole safetensors file: {error}"
            ) from error
        for name in opened.keys():  # noqa: SIM118, as it is no mapping.
            shapes[name] = tuple(opened.get_slice(name).get_shape())
            source[name] = opened
    return names.Tensors(shapes, lambda name: source[name].get_tensor(name))


def _why_no_weights(path: pathlib.Path) -> str:
    if not list(path.glob("pytorch_model*.bin")):
        return f"{path} has no {_WEIGHTS}."
    return (
        f"{path} has its weights in pytorch_model.bin only. That is a pickle, which "
        "runs code that it carries when it is opened, so it is not opened here. Where "
        "you trust it and have transformers and torch, convert it: python -c "
        "'from transformers import AutoModelForPreTraining as M; "
        f'M.from_pretrained("{path}").save_pretrained("safe")\' and copy the '
        "vocabulary beside it."
    )


def _open_tokenizer(path: pathlib.Path) -> tuple[Vocabulary, bool, list[str]]:
    """Returns vocabulary, whether it is uncased, and notes."""
    config, whole = {}, {}
    if (path / _TOKENIZER_CONFIG).is_file():
        config = _read_json(path / _TOKENIZER_CONFIG)
    if (path / "tokenizer.json").is_file():
        whole = _read_json(path / "tokenizer.json")
    if (path / _VOCABULARY).is_file():
        vocabulary = Vocabulary.from_file(path / _VOCABULARY)
    elif whole:
        vocabulary = _vocabulary_of(path / "tokenizer.json", whole)
    else:
        raise ValueError(
            f"{path} has no {_VOCABULARY} and no tokenizer.json: without its "
            "vocabulary a model is of no use. Copy it there."
        )
    rules = whole.get("normalizer") or {}
    lowercase = config.get("do_lower_case", rules.get("lowercase"))
    notes = []
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        notes.append(note)
    strip_accents = config.get("strip_accents", rules.get("strip_accents"))
    split_chinese = config.get(
        "tokenize_chinese_chars", rules.get("handle_chinese_chars", True)
    )
    if strip_accents not in (None, lowercase) or not split_chinese:
        raise ValueError(
            f"{path}: its tokenizer has rules that BERT's does not have, so that "
            "texts would give other tokens. Received: "
            f"do_lower_case={lowercase}, strip_accents={strip_accents}, "
            f"tokenize_chinese_chars={split_chinese}"
        )
    return vocabulary, bool(lowercase), notes


def _vocabulary_of(path: pathlib.Path, tokenizer: Mapping[str, Any]) -> Vocabulary:
    model = tokenizer["model"]
    if model["type"] != "WordPiece":
        raise ValueError(
            f"{path}: BERT's tokens are WordPiece. Received: {model['type']}"
        )
    by_id = {number: token for token, number in model["vocab"].items()}
    if sorted(by_id) != list(range(len(by_id))):
        raise ValueError(f"{path}: the ids of its tokens have gaps.")
    try:
        return Vocabulary(tuple(by_id[number] for number in range(len(by_id))))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


# --- Writing ---------------------------------------------------------------------


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a folder that `transformers` loads without a warning.

    Args:
        path: An empty folder.

    Returns:
        The names of the weights that its class has no place for.
    """
    weights = checkpoint.read_weights()
    class_name = _class_of(checkpoint.head["kind"], weights)
    rows = [
        row
        for row in _rows(
            class_name, prefix="" if class_name == "BertModel" else "bert."
        )
        if not (class_name in _WITHOUT_POOLER and row.ours.startswith("pooler/"))
    ]
    tensors, left_out = names.to_theirs(rows, weights, checkpoint.architecture)
    safetensors.numpy.save_file(tensors, path / _WEIGHTS, metadata={"format": "pt"})
    checkpoint.vocabulary.write(path / _VOCABULARY)
    storage.write_json(path / _TOKENIZER_CONFIG, _tokenizer_config(checkpoint))
    storage.write_json(path / _CONFIG, _config(checkpoint, class_name))
    return left_out


def _class_of(kind: str, weights: Mapping[str, np.ndarray]) -> str:
    for class_name, task in _TASK_HEADS.items():
        if task.kind == kind:
            return class_name
    layers = {names.layer_of(name) for name in weights}
    if {"mlm", "nsp"} <= layers:
        return "BertForPreTraining"
    if "mlm" in layers:
        return "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "nsp" in layers else "BertModel"


def _config(checkpoint: Checkpoint, class_name: str) -> dict[str, Any]:
    architecture, head = checkpoint.architecture, checkpoint.head
    config = {"architectures": [class_name], "model_type": "bert"}
    config |= {key: getattr(architecture, ours) for ours, key in _KEYS.items()}
    by_form = {form: name for name, form in reversed(_ACTIVATIONS.items())}
    config |= {
        "hidden_act": by_form[architecture.activation],
        "pad_token_id": checkpoint.vocabulary.pad_id,
        "position_embedding_type": "absolute",
        "dtype": "float32",
    }
    if "labels" in head:
        config["id2label"] = {str(i): label for i, label in enumerate(head["labels"])}
        config["label2id"] = {label: i for i, label in enumerate(head["labels"])}
    elif head.get("problem") == "regression":
        config |= {"problem_type": "regression", "id2label": {"0": "score"}}
        config["label2id"] = {"score": 0}
    return config


def _tokenizer_config(checkpoint: Checkpoint) -> dict[str, Any]:
    keys = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": checkpoint.lowercase,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": checkpoint.architecture.max_sequence_length,
        **dict(zip(keys, SPECIAL_TOKENS, strict=True)),
    }


# --- Running ---------------------------------------------------------------------


def run(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Runs a folder's encoder by transformers, where that and torch are installed.

    Returns:
        sequence_output [B, S, H], or None.
    """
    try:
        torch = importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
    except ImportError:
        return None
    model = transformers.BertModel.from_pretrained(path, dtype=torch.float32).eval()
    tensors = {name: torch.from_numpy(ids).long() for name, ids in inputs.items()}
    with torch.no_grad():
        outputs = model(
            input_ids=tensors["token_ids"],
            token_type_ids=tensors["segment_ids"],
            attention_mask=tensors["padding_mask"],
        )
    return outputs.last_hidden_state.numpy()
