# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens and writes checkpoints in any supported format."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import heads, storage
from bert_tf.checkpoints import (
    google,
    hugging_face,
    keras_hub,
    model_directory,
    sentence_transformers,
)
from bert_tf.checkpoints.checkpoint import Checkpoint, read_json_object
from bert_tf.checkpoints.model_directory import ModelDirectory
from bert_tf.modeling import BertConfig

# The files of a Hugging Face repository that are downloaded.
_HUB_FILES = ("*.json", "*.txt", "*.safetensors", "*.weights.h5")
# The files of a remote model directory that are not copied.
_NOT_WEIGHTS = ("training_state/*", "logs/*", "runs/*", "steps/*")


# --- Opening ---------------------------------------------------------------------


def open_checkpoint(path: str | os.PathLike, *, head: str = "") -> Checkpoint:
    """Opens a BERT in any supported format. Logs the assumptions made as warnings.

    Args:
        path: A model directory or a folder in the format of Google, the Model Garden,
            Hugging Face, sentence-transformers or KerasHub, local or in a bucket
            (`gs://...`); or a handle: `hf://owner/repository`, or one that KerasHub
            downloads, e.g. `kaggle://...`.
        head: The kind of head to read from another project's folder that does not
            declare it: `"encoder"` for none, `"pretrainer"`, `"classification"`,
            `"tagging"`, `"question_answering"` or `"multiple_choice"`.

    Raises:
        ValueError: It is not a BERT, or a file is missing or damaged.
    """
    if head not in ("", *heads.HEAD_KINDS):
        known = ", ".join(heads.HEAD_KINDS)
        raise ValueError(f"`head` must be one of {known}. Received: head={head!r}")
    checkpoint = _open(os.fspath(path), head or None)
    for note in checkpoint.notes:
        logging.warning("%s: %s", checkpoint.path, note)
    return checkpoint


def _open(handle: str, kind: str | None) -> Checkpoint:
    path = handle
    if handle.startswith("hf://"):
        import huggingface_hub  # Only these handles need it.

        path = huggingface_hub.snapshot_download(
            handle.removeprefix("hf://"), allow_patterns=_HUB_FILES
        )
    elif handle.startswith(("kaggle://", "modelscope://")):
        return keras_hub.open_preset(handle, kind)
    path = pathlib.Path(storage.local_copy(path, skip=_NOT_WEIGHTS))
    if path.suffix == ".keras":
        raise ValueError(
            f"{path} is a model in Keras' own format. Open it with "
            f"keras.saving.load_model({str(path)!r}) after `import bert_tf`."
        )
    if not path.is_dir():
        raise ValueError(f"There is no checkpoint folder {path}.")
    _check_no_lfs_pointers(path)
    config = read_json_object(path / "config.json")
    is_directory = bool(config.get("bert_tf"))
    is_hugging_face = config.keys() & hugging_face.CONFIG_KEYS
    # The config.json of a TensorFlow checkpoint may be a bert_config.json.
    is_google = google.find_prefix(path) and not hugging_face.has_weights(path)
    if "registered_name" in config:
        return keras_hub.open_preset(path, kind)
    if is_directory or sentence_transformers.is_folder(path):
        if kind:
            raise ValueError(
                f"`head` must not be set, because {path} declares its head. Received: "
                f"head={kind!r}"
            )
        if is_directory:
            return model_directory.open_folder(path)
        return sentence_transformers.open_folder(path)
    if is_google:
        return google.open_folder(path, kind)
    if is_hugging_face:
        return hugging_face.open_folder(path, kind)
    raise ValueError(
        f"{path} is not a checkpoint folder: it has neither the config.json of a BERT "
        "nor a TensorFlow checkpoint (*.index)."
    )


# The first bytes of the files that git leaves in the place of large ones.
_LFS_POINTER = b"version https://git-lfs"


def _check_no_lfs_pointers(path: pathlib.Path) -> None:
    pointers = []
    for file in sorted([*path.glob("*"), *path.glob("[0-9]_*/*")]):
        if file.is_file():
            with file.open("rb") as opened:
                if opened.read(len(_LFS_POINTER)) == _LFS_POINTER:
                    pointers.append(str(file.relative_to(path)))
    if pointers:
        raise ValueError(
            f"{path} has Git LFS pointers in the place of {', '.join(pointers)}. "
            "Download the files with `git lfs pull` in that folder."
        )


# --- Writing ---------------------------------------------------------------------


def write_checkpoint(
    checkpoint: Checkpoint, path: str | os.PathLike, format: str = "hugging_face"
) -> list[str]:
    """Writes a checkpoint as a model directory, or in another format.

    Args:
        checkpoint: A checkpoint that `open_checkpoint` returned.
        path: The folder to write. It must not exist or be empty.
        format: `"hugging_face"`, a model directory, or `"keras_hub"`.

    Returns:
        The names of the weights that the format cannot hold.

    Raises:
        ValueError: `path` exists, or the head of the checkpoint is unclear.
    """
    heads.check_declared(checkpoint.head, checkpoint.path)
    write = {
        "hugging_face": _write_model_directory,
        "keras_hub": keras_hub.write_folder,
    }[format]
    path = pathlib.Path(storage.local_copy(os.fspath(path)))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} already exists. Choose another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage.atomic_path(path) as unfinished:
        unfinished.mkdir()
        left_out = write(unfinished, checkpoint)
    storage.upload(path)
    return left_out


def _write_model_directory(path: pathlib.Path, checkpoint: Checkpoint) -> list[str]:
    names = ("architecture", "vocabulary", "lowercase", "rules", "head", "options")
    attributes = {name: getattr(checkpoint, name) for name in names}
    directory = ModelDirectory.create(path, **attributes)
    return directory.write_weights(checkpoint.read_weights())


# --- Comparing with the format's own code ----------------------------------------


def fixed_settings(format: str, architecture: BertConfig) -> dict[str, Any]:
    """Returns settings of a format's own code that differ from `architecture`."""
    if format != "keras_hub":
        return {}
    settings = dataclasses.asdict(keras_hub.computed_architecture(architecture))
    return {k: v for k, v in settings.items() if getattr(architecture, k) != v}


def run_original(
    checkpoint: Checkpoint, texts: Sequence[str], inputs: Mapping[str, np.ndarray]
) -> tuple[str, list[list[int]], np.ndarray] | None:
    """Runs tokenizer and encoder in the library that a checkpoint's format belongs to.

    Args:
        checkpoint: An opened checkpoint.
        texts: Texts for the tokenizer.
        inputs: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32.

    Returns:
        The library's name, the token ids of the texts without special tokens, and
        sequence_output [B, S, H]; None if there is no such library or it is not
        installed.
    """
    for module in (hugging_face, keras_hub):
        if checkpoint.format.startswith(module.FORMAT):
            return module.run(checkpoint.path, texts, inputs)
    return None
