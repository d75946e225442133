# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face checkpoints: folders that `transformers` reads and writes.

config.json             architecture, class of the model
model.safetensors       weights; or shards and model.safetensors.index.json
vocab.txt               or tokenizer.json, which also contains a vocabulary
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
from bert_tf.checkpoints.foreign import (
    ForeignCheckpoint,
    Row,
    Tensors,
    guess_lowercase,
    outermost_layer,
    rows_of_layers,
    to_foreign,
)
from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.modeling import GOOGLE_KEYS, BertConfig
from bert_tf.text import SPECIAL_TOKENS, Vocabulary

FORMAT = "Hugging Face"

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_INDEX = "model.safetensors.index.json"
_VOCABULARY, _TOKENIZER_CONFIG = "vocab.txt", "tokenizer_config.json"

# --- Table of weight names -------------------------------------------------------

_OURS, _THEIRS = "encoder_layer_{i}", "encoder.layer.{i}"

_ENCODER = {
    "embeddings/token_embedding": "embeddings.word_embeddings",
    "embeddings/position_embedding": "embeddings.position_embeddings",
    "embeddings/segment_embedding": "embeddings.token_type_embeddings",
    "embeddings/layer_norm": "embeddings.LayerNorm",
    f"{_OURS}/query": f"{_THEIRS}.attention.self.query",
    f"{_OURS}/key": f"{_THEIRS}.attention.self.key",
    f"{_OURS}/value": f"{_THEIRS}.attention.self.value",
    f"{_OURS}/attention_output": f"{_THEIRS}.attention.output.dense",
    f"{_OURS}/attention_layer_norm": f"{_THEIRS}.attention.output.LayerNorm",
    f"{_OURS}/intermediate": f"{_THEIRS}.intermediate.dense",
    f"{_OURS}/output": f"{_THEIRS}.output.dense",
    f"{_OURS}/output_layer_norm": f"{_THEIRS}.output.LayerNorm",
    "pooler": "pooler.dense",
}
_PRETRAINER = {
    "mlm/dense": "cls.predictions.transform.dense",
    "mlm/layer_norm": "cls.predictions.transform.LayerNorm",
    "nsp": "cls.seq_relationship",
}
_MLM_BIAS = Row("mlm/bias", ("cls.predictions.bias", "cls.predictions.decoder.bias"))

_SUFFIXES = {
    "kernel": (".weight",),
    "bias": (".bias",),
    "embeddings": (".weight",),
    # Early versions kept TensorFlow's names gamma and beta.
    "gamma": (".weight", ".gamma"),
    "beta": (".bias", ".beta"),
}

# Some files have a copy of the token embedding as the output matrix of masked LM.
_TIED = "cls.predictions.decoder.weight"


class _TaskHead(NamedTuple):
    kind: str
    theirs: str
    has_labels: bool


# Model classes with a task head.
_TASK_HEADS = {
    "BertForSequenceClassification": _TaskHead("classification", "classifier", True),
    "BertForQuestionAnswering": _TaskHead("question_answering", "qa_outputs", False),
    "BertForTokenClassification": _TaskHead("tagging", "classifier", True),
    "BertForMultipleChoice": _TaskHead("multiple_choice", "classifier", False),
}

# Model classes without a pooler.
_WITHOUT_POOLER = (
    "BertForMaskedLM",
    "BertForQuestionAnswering",
    "BertForTokenClassification",
)


def _rows(class_name: str, *, prefix: str) -> list[Row]:
    """Returns the table for a class whose encoder weights start with `prefix`."""
    encoder = {ours: prefix + theirs for ours, theirs in _ENCODER.items()}
    if class_name in _TASK_HEADS:
        heads = {"logits": _TASK_HEADS[class_name].theirs}
    else:
        heads = _PRETRAINER
    tokens, *others = rows_of_layers(encoder | heads, _SUFFIXES, transposed=True)
    tokens = tokens._replace(theirs=(*tokens.theirs, _TIED))
    return [tokens, *others] + ([] if class_name in _TASK_HEADS else [_MLM_BIAS])


# --- Config ----------------------------------------------------------------------

# A config.json with one of these keys was written by transformers.
CONFIG_KEYS = {"model_type", "architectures", "num_hidden_layers"}

_KEYS = GOOGLE_KEYS | {"layer_norm_epsilon": "layer_norm_eps"}

# Defaults of keys that config.json may omit.
_DEFAULTS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}

# The writer uses the first name of each form.
_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}

# Keys that would make the model another architecture, with BERT's values.
_REQUIRED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def _architecture(path: pathlib.Path, config: Mapping[str, Any]) -> BertConfig:
    class_name = _classes(config)[0]
    # Early versions did not write model_type.
    kind = config.get("model_type", "bert" if class_name.startswith("Bert") else None)
    if kind != "bert":
        raise ValueError(
            f"{path}: the model type must be 'bert'. Received: {kind!r} ({class_name})"
        )
    for key, value in _REQUIRED.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"{path}: {key} must be {value!r}. Received: {key}={config[key]!r}"
            )
    try:
        fields = {ours: (_DEFAULTS | config)[key] for ours, key in _KEYS.items()}
    except KeyError as error:
        raise ValueError(f"{path}: key {error} is missing.") from error
    activation = fields["activation"]
    fields["activation"] = _ACTIVATIONS.get(activation, activation)
    try:
        return BertConfig(**fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _classes(config: Mapping[str, Any]) -> list[str]:
    """Returns the names of the model's classes, BertModel if there are none."""
    return config.get("architectures") or ["BertModel"]


def _head(class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a task's head as our config.json describes it."""
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
    """Opens a folder that `BertModel.from_pretrained` or a head class can load.

    Raises:
        ValueError: It is not a BERT, has no safetensors, or a file is damaged or
            contradicts another one.
    """
    config = _read_json(path / _CONFIG)
    architecture = _architecture(path / _CONFIG, config)
    tensors = _open_tensors(path)
    vocabulary, lowercase, notes = _open_tokenizer(path)
    class_name = _classes(config)[0]
    prefix = "bert." if any(name.startswith("bert.") for name in tensors.shapes) else ""
    head = _head(class_name, config) if class_name in _TASK_HEADS else None
    return ForeignCheckpoint.from_tensors(
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


def _open_tensors(path: pathlib.Path) -> Tensors:
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
                f"{path / file} does not exist, but {_INDEX} lists it."
            ) from error
        except safetensors.SafetensorError as error:
            raise ValueError(
                f"{path / file} is damaged or incomplete: {error}"
            ) from error
        for name in opened.keys():  # noqa: SIM118 (not a mapping)
            shapes[name] = tuple(opened.get_slice(name).get_shape())
            source[name] = opened
    return Tensors(shapes, lambda name: source[name].get_tensor(name))


def _why_no_weights(path: pathlib.Path) -> str:
    if not list(path.glob("pytorch_model*.bin")):
        return f"{path} has no {_WEIGHTS}."
    return (
        f"{path} has its weights only in pytorch_model.bin, which is a pickle. "
        "Loading a pickle can run arbitrary code, so it is not supported. If you trust "
        "the file, convert it with transformers and torch: python -c "
        "'from transformers import AutoModelForPreTraining as M; "
        f'M.from_pretrained("{path}").save_pretrained("safe")\' and copy the '
        "vocabulary into that folder."
    )


def _open_tokenizer(path: pathlib.Path) -> tuple[Vocabulary, bool, list[str]]:
    """Returns the vocabulary, whether it is uncased, and notes."""
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
            f"{path} has no {_VOCABULARY} and no tokenizer.json. Copy the model's "
            "vocabulary into the folder."
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
            f"{path}: the tokenizer's rules must be those of BERT: strip_accents unset "
            "or equal to do_lower_case, tokenize_chinese_chars on. Received: "
            f"do_lower_case={lowercase}, strip_accents={strip_accents}, "
            f"tokenize_chinese_chars={split_chinese}"
        )
    return vocabulary, bool(lowercase), notes


def _vocabulary_of(path: pathlib.Path, tokenizer: Mapping[str, Any]) -> Vocabulary:
    model = tokenizer["model"]
    if model["type"] != "WordPiece":
        raise ValueError(
            f"{path}: the model type must be WordPiece. Received: {model['type']}"
        )
    by_id = {number: token for token, number in model["vocab"].items()}
    if sorted(by_id) != list(range(len(by_id))):
        raise ValueError(f"{path}: the token ids must be consecutive from 0.")
    try:
        return Vocabulary(tuple(by_id[number] for number in range(len(by_id))))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


# --- Writing ---------------------------------------------------------------------


def write_folder(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    """Writes a folder that `transformers` loads without warnings.

    Args:
        path: An empty folder.
        checkpoint: The checkpoint to write.

    Returns:
        The names of the weights that its model class cannot hold.
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
    tensors, left_out = to_foreign(rows, weights, checkpoint.architecture)
    safetensors.numpy.save_file(tensors, path / _WEIGHTS, metadata={"format": "pt"})
    checkpoint.vocabulary.write(path / _VOCABULARY)
    storage.write_json(path / _TOKENIZER_CONFIG, _tokenizer_config(checkpoint))
    storage.write_json(path / _CONFIG, _config(checkpoint, class_name))
    return left_out


def _class_of(kind: str, weights: Mapping[str, np.ndarray]) -> str:
    for class_name, task in _TASK_HEADS.items():
        if task.kind == kind:
            return class_name
    layers = {outermost_layer(name) for name in weights}
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
    """Runs a folder's encoder in transformers.

    Returns:
        sequence_output [B, S, H], or None if transformers or torch is not installed.
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
