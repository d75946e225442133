# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens and writes checkpoints of any format."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING

from bert_tf import storage

if TYPE_CHECKING:
    from bert_tf.checkpoints.model_directory import Checkpoint

_FORMATS = ("bert_tf", "hugging_face", "google", "keras_hub")

# What a repository of the Hub may have that is of use here.
_HUB_FILES = ("*.json", "*.txt", "*.safetensors", "*.weights.h5")


# --- Opening ---------------------------------------------------------------------


def open_checkpoint(path: str | os.PathLike) -> Checkpoint:
    """Opens any folder that holds a BERT, or a handle of the Hub's or KerasHub's.

    Raises:
        ValueError: It holds none, or one that is damaged or of another architecture.
    """
    from bert_tf.checkpoints import google, hugging_face, keras_hub, model_garden
    from bert_tf.checkpoints.model_directory import ModelDirectory

    handle = os.fspath(path)
    if handle.startswith("hf://"):
        path = _fetch(handle.removeprefix("hf://"))
    elif "://" in handle:
        return keras_hub.open_preset(handle)
    path = pathlib.Path(path)
    if not path.is_dir():
        raise ValueError(
            f"{path} is not a model directory or a checkpoint of others: there is no "
            "such folder."
        )
    keys = _keys_of_config(path / "config.json")
    if "architecture" in keys:
        return ModelDirectory.open(path)
    if "registered_name" in keys:
        return keras_hub.open_preset(path)
    if keys & hugging_face.CONFIG_KEYS:
        return hugging_face.open_folder(path)
    prefix = google.find_prefix(path)
    if keys and prefix is None:
        return ModelDirectory.open(path)  # Which says what is missing.
    if prefix is None:
        raise ValueError(
            f"{path} is not a model directory or a checkpoint of others: it has no "
            "config.json and no *.index of TensorFlow."
        )
    if model_garden.recognises(google.load(prefix)):
        return model_garden.open_folder(path)
    return google.open_folder(path)


def _keys_of_config(path: pathlib.Path) -> set[str]:
    if not path.is_file():
        return set()
    try:
        return set(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path}: not a JSON file: {error}") from error


def _fetch(repository: str) -> str:
    """Fetches a repository of the Hub; returns the folder it lies in."""
    import huggingface_hub

    return huggingface_hub.snapshot_download(repository, allow_patterns=_HUB_FILES)


# --- Writing ---------------------------------------------------------------------


def write_checkpoint(
    checkpoint: Checkpoint, path: str | os.PathLike, format: str = "bert_tf"
) -> list[str]:
    """Writes a checkpoint as a folder of another format, or a model directory.

    Args:
        checkpoint: As `open_checkpoint` returns it.
        path: The folder, which must not exist or be empty.
        format: One of bert_tf, hugging_face, google, keras_hub.

    Returns:
        The names of the weights that the format has no place for.

    Raises:
        ValueError: There is something at `path`, or the format has no place for such an
            encoder.
    """
    from bert_tf.checkpoints import google, hugging_face, keras_hub

    write = {
        "bert_tf": _write_model_directory,
        "hugging_face": hugging_face.write_folder,
        "google": google.write_folder,
        "keras_hub": keras_hub.write_folder,
    }[format]
    variant = checkpoint.architecture.variant
    if variant and format != "bert_tf":
        raise ValueError(
            f"{checkpoint.path}: an encoder that is {variant} is not a BERT for code "
            f"that reads {format}. --format=bert_tf keeps it."
        )
    path = pathlib.Path(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} exists, and nothing is replaced. Choose another.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage.atomic_path(path) as unfinished:
        unfinished.mkdir()
        return write(unfinished, checkpoint)


def _write_model_directory(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    from bert_tf.checkpoints.model_directory import ModelDirectory, matching_model

    weights = checkpoint.read_weights()
    units = len(weights.get("logits/bias", ()))
    model = matching_model(checkpoint.architecture, checkpoint.head["kind"], units)
    checkpoint.load_into(model)
    directory = ModelDirectory.create(
        path,
        architecture=checkpoint.architecture,
        vocabulary=checkpoint.vocabulary,
        lowercase=checkpoint.lowercase,
        head=checkpoint.head,
        options={"from": str(checkpoint.path)},
    )
    directory.save_weights(model)
    return sorted(weights.keys() - {weight.path for weight in model.weights})
