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
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf import storage
from bert_tf.checkpoints import folder_tokenizer, google
from bert_tf.checkpoints.foreign import (
    ForeignCheckpoint,
    Row,
    Tensors,
    mlm_bias,
    rows_of_layers,
    to_foreign,
)
from bert_tf.checkpoints.model_directory import Checkpoint, read_json_object
from bert_tf.modeling import GOOGLE_KEYS, BertConfig

FORMAT = "Hugging Face"

WEIGHTS = "model.safetensors"

_CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"

# --- Table of weight names -------------------------------------------------------

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

# The model classes of tasks.
_TASK_CLASSES = {
    "classification": "BertForSequenceClassification",
    "question_answering": "BertForQuestionAnswering",
    "tagging": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}
_TASKS = {class_name: kind for kind, class_name in _TASK_CLASSES.items()}

# Model classes without a pooler.
_WITHOUT_POOLER = (
    "BertForMaskedLM",
    "BertForQuestionAnswering",
    "BertForTokenClassification",
)


def _rows(class_name: str, *, has_prefix: bool) -> list[Row]:
    """Returns the table for a class.

    Args:
        class_name: Name of the class, e.g. "BertForMaskedLM".
        has_prefix: Whether the names of the encoder's weights start with `bert.`.
    """
    if class_name in _TASKS:
        is_span = _TASKS[class_name] == "question_answering"
        heads, bias = {"logits": "qa_outputs" if is_span else "classifier"}, []
    else:
        heads = google.PRETRAINER | {"nsp": "cls/seq_relationship"}
        bias = [mlm_bias("cls.predictions.bias", "cls.predictions.decoder.bias")]
    # transformers names layers as google-research/bert does, with dots.
    layers = {
        ours: name.replace("/layer_", "/layer/")
        .replace("/", ".")
        .removeprefix("" if has_prefix else "bert.")
        for ours, name in (google.ENCODER | heads).items()
    }
    tokens, *others = rows_of_layers(layers, _SUFFIXES, transposed=True)
    return [tokens._replace(theirs=(*tokens.theirs, _TIED)), *others, *bias]


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

# Keys that would make the model another architecture, with BERT's values.
_REQUIRED = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def _architecture(path: pathlib.Path, config: Mapping[str, Any]) -> BertConfig:
    class_name = _class_name(config)
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


def _head(class_name: str, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the `head` of `Checkpoint` if the class has a task head, else None."""
    kind = _TASKS.get(class_name)
    if kind not in ("classification", "tagging"):
        return {"kind": kind} if kind else None
    names = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = [names.get(str(number)) for number in range(len(names))]
    if not all(isinstance(label, str) for label in labels):
        raise ValueError(
            f"{_CONFIG}: id2label must map the numbers from 0 to labels. "
            f"Received: id2label={names!r:.80}"
        )
    if kind == "tagging":
        # Pipelines of transformers tag every piece of a word.
        return {"kind": kind, "labels": labels, "aggregation": "simple"}
    problem = config.get("problem_type")
    head = {"kind": kind, "labels": labels}
    if problem == "multi_label_classification":
        head["problem"] = "multi_label"
    elif problem == "regression" or len(labels) == 1:
        head = {"kind": kind, "problem": "regression", "mean": 0, "deviation": 1}
    # Cross-encoders of sentence-transformers have this key.
    return {**head, "pairs": True} if "sentence_transformers" in config else head


# --- Reading ---------------------------------------------------------------------


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder that `BertModel.from_pretrained` or a head class can load.

    Raises:
        ValueError: It is not a BERT, has no safetensors, or a file is damaged or
            contradicts another one.
    """
    config = read_json_object(path / _CONFIG, architectures=list, id2label=dict)
    class_name = _class_name(config)
    architecture = _architecture(path / _CONFIG, config)
    tensors = open_tensors(path)
    has_prefix = any(name.startswith("bert.") for name in tensors.shapes)
    positions = architecture.max_sequence_length
    tokenizer = folder_tokenizer.open_tokenizer(path, config, positions)
    return ForeignCheckpoint.from_tensors(
        path,
        f"{FORMAT} {class_name}",
        _rows(class_name, has_prefix=has_prefix),
        tensors,
        config=architecture,
        vocabulary=tokenizer.vocabulary,
        lowercase=tokenizer.lowercase,
        head=_head(class_name, config),
        options={"max_sequence_length": tokenizer.max_length},
        rules=tokenizer.rules,
        original_tokenizer=tokenizer.original,
        notes=tokenizer.notes,
    )


def open_tensors(path: pathlib.Path) -> Tensors:
    """Opens the safetensors of a folder."""
    files = [WEIGHTS]
    if (path / _INDEX).is_file():
        index = read_json_object(path / _INDEX, weight_map=dict)
        files = sorted({str(file) for file in (index.get("weight_map") or {}).values()})
        if not files or any("/" in file for file in files):
            raise ValueError(
                f"{path / _INDEX}: weight_map must map tensors to files in the same "
                f"folder. Received: {files or index!r:.80}"
            )
    elif not (path / WEIGHTS).is_file():
        raise ValueError(_why_no_weights(path))
    shapes, source = {}, {}
    for file in files:
        try:
            opened = safetensors.safe_open(path / file, framework="np")
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{path / file} is missing or damaged: {error}") from error
        for name in opened.keys():  # noqa: SIM118 (not a mapping)
            shapes[name] = tuple(opened.get_slice(name).get_shape())
            source[name] = opened
    return Tensors(shapes, lambda name: source[name].get_tensor(name))


def _why_no_weights(path: pathlib.Path) -> str:
    if not list(path.glob("pytorch_model*.bin")):
        return f"{path} has no {WEIGHTS}."
    return (
        f"{path} has its weights only in pytorch_model.bin, which is a pickle. "
        "Loading a pickle can run arbitrary code, so it is not supported. If you trust "
        "the file, convert it with transformers and torch: python -c "
        "'from transformers import AutoModelForPreTraining as M; "
        f'M.from_pretrained("{path}").save_pretrained("safe")\' and copy the '
        "vocabulary into that folder."
    )


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
    rows = _rows(class_name, has_prefix=class_name != "BertModel")
    if class_name in _WITHOUT_POOLER:
        rows = [row for row in rows if not row.ours.startswith("pooler/")]
    tensors, left_out = to_foreign(rows, weights, checkpoint.architecture)
    safetensors.numpy.save_file(tensors, path / WEIGHTS, metadata={"format": "pt"})
    folder_tokenizer.write_tokenizer(path, checkpoint)
    storage.write_json(path / _CONFIG, _config(checkpoint, class_name))
    return left_out


def _class_of(kind: str, weights: Mapping[str, np.ndarray]) -> str:
    if kind == "embedding":
        return "BertModel"
    if kind in _TASK_CLASSES:
        return _TASK_CLASSES[kind]
    if {"mlm/bias", "nsp/bias"} <= weights.keys():
        return "BertForPreTraining"
    if "mlm/bias" in weights:
        return "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "nsp/bias" in weights else "BertModel"


def _config(checkpoint: Checkpoint, class_name: str) -> dict[str, Any]:
    architecture, head = checkpoint.architecture, checkpoint.head
    by_form = {form: name for name, form in reversed(_ACTIVATIONS.items())}
    config = {
        "architectures": [class_name],
        "model_type": "bert",
        **{key: getattr(architecture, ours) for ours, key in _KEYS.items()},
        "hidden_act": by_form[architecture.activation],
        "pad_token_id": checkpoint.vocabulary.pad_id,
        "position_embedding_type": "absolute",
        "dtype": "float32",
    }
    labels = head.get("labels")
    if head.get("problem") == "regression":
        labels, config["problem_type"] = ["score"], "regression"
    elif head.get("problem") == "multi_label":
        config["problem_type"] = "multi_label_classification"
    if labels:
        config["id2label"] = {str(i): label for i, label in enumerate(labels)}
        config["label2id"] = {label: i for i, label in enumerate(labels)}
    return config


# --- Running ---------------------------------------------------------------------


def run(
    path: pathlib.Path, texts: Sequence[str], inputs: Mapping[str, np.ndarray]
) -> tuple[str, list[list[int]], np.ndarray] | None:
    """Runs tokenizer and encoder in transformers; see `formats.run_original`."""
    try:
        torch = importlib.import_module("torch")
        transformers = importlib.import_module("transformers")
    except ImportError:
        return None
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    model = transformers.BertModel.from_pretrained(path, dtype=torch.float32).eval()
    tensors = {name: torch.from_numpy(array).long() for name, array in inputs.items()}
    with torch.no_grad():
        outputs = model(
            input_ids=tensors["token_ids"],
            token_type_ids=tensors["segment_ids"],
            attention_mask=tensors["padding_mask"],
        )
    return "transformers", ids, outputs.last_hidden_state.numpy()
