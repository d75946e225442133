# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Opens checkpoints in any format, and writes model directories.

A model directory, which every command writes, is a Hugging Face folder:

    config.json                  transformers' settings; under "bert_tf", ours
    vocab.txt                    the WordPiece vocabulary, one token per line
    tokenizer.json, tokenizer_config.json
    model.safetensors            weights, under the names of transformers
    modules.json, 1_Pooling/     sentence encoders, as sentence-transformers needs them
    metrics.json                 metrics of the finished training

transformers and sentence-transformers open it, and `open_checkpoint` opens what they
write. Heads that transformers lacks have their Keras paths as names of weights,
and `config.json` then declares no model class.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras
import numpy as np

from bert_tf import cli, heads, keras_private, storage, text_files
from bert_tf.checkpoints import hugging_face, sentence_transformers
from bert_tf.checkpoints.checkpoint import METRICS, Checkpoint, outermost_layer
from bert_tf.checkpoints.folder_tokenizer import write_tokenizer
from bert_tf.lazy import lazy_import

google = lazy_import("bert_tf.checkpoints.google")
keras_hub = lazy_import("bert_tf.checkpoints.keras_hub")
cards = lazy_import("bert_tf.checkpoints.model_card")

CONFIG = hugging_face.CONFIG

# Files of adapters (PEFT) and of heads (SetFit) that are part of a model.
_UNSUPPORTED = ("adapter_config.json", "config_setfit.json", "model_head.pkl")
# The files of a Hugging Face repository that are downloaded.
_HUB_FILES = ("*.json", "*.txt", "*.safetensors", "*.weights.h5", *_UNSUPPORTED)
# The files of a remote model directory that are not copied.
_NOT_WEIGHTS = ("training_state/*", "logs/*")

# --- Opening ---------------------------------------------------------------------

# Modules with a function `detect`, which returns the function that opens a folder. The
# order matters: the config.json of a TensorFlow checkpoint may be a bert_config.json.
_FORMATS = (keras_hub, sentence_transformers, google, hugging_face)


def open_checkpoint(path: str | os.PathLike, *, head: str = "") -> Checkpoint:
    """Opens a BERT in any supported format. Logs the assumptions made as warnings.

    Args:
        path: A model directory or a folder in the format of Google, the Model Garden,
            Hugging Face, sentence-transformers or KerasHub, local or in a bucket
            (`gs://...`); or a handle: `hf://owner/repository`, or with a branch, tag,
            commit or `refs/pr/N`, `hf://owner/repository@revision`; or one that
            KerasHub downloads, e.g. `kaggle://...`.
        head: The kind of head to read from another project's folder that does not
            declare it, a key of `heads.HEADS`; `"encoder"` for none.

    Raises:
        ValueError: It is not a BERT, a file is missing or damaged, or the handle or its
            revision does not exist.
    """
    path, source = os.fspath(path), ""
    if head:
        heads.find_head(head)  # Raises ValueError for unknown kinds.
    if path.startswith("hf://"):
        path, source = _download(path)
    elif path.startswith(keras_hub.HANDLES):
        path, source = keras_hub.download(path), path
    path = storage.local_copy(path, _NOT_WEIGHTS)
    if not path.is_dir():
        handle = "Handles begin with hf:// or kaggle://."
        raise ValueError(f"There is no checkpoint folder {path}. {handle}")
    if found := [name for name in _UNSUPPORTED if (path / name).exists()]:
        raise ValueError(
            f"{path}: {found[0]} is not supported. Merge an adapter into the weights, "
            "or remove the file to open the encoder without it."
        )
    checkpoint = _open_folder(path, head or None)
    return dataclasses.replace(checkpoint, source=source or checkpoint.source)


def _download(handle: str) -> tuple[str, str]:
    """Downloads a repository of the Hugging Face Hub, unless its cache has it.

    Returns:
        The folder in the cache, and the handle with the commit.
    """
    import huggingface_hub  # Only these handles need it.

    name, at, revision = handle.removeprefix("hf://").partition("@")
    try:
        path = huggingface_hub.snapshot_download(
            name, revision=revision if at else None, allow_patterns=_HUB_FILES
        )
    except (OSError, ValueError) as error:
        path, find = None, huggingface_hub.try_to_load_from_cache
        if isinstance(error, FileNotFoundError):  # Offline, by the name of a snapshot.
            path = find(name, CONFIG, revision=revision or None)
        if not isinstance(path, str):
            raise ValueError(f"{handle} cannot be downloaded: {error}") from error
        path = os.path.dirname(path)
    return path, f"hf://{name}@{os.path.basename(path)}"


def _open_folder(path: pathlib.Path, kind: str | None = None) -> Checkpoint:
    """Opens a local folder; `kind` is `head` of `open_checkpoint`."""
    config = text_files.read_json_object(path / CONFIG)
    for format in _FORMATS:
        if open_folder := format.detect(path, config):
            break
    else:
        raise ValueError(
            f"{path} is not a checkpoint folder: it has neither the config.json of a "
            "BERT nor a TensorFlow checkpoint (*.index). Its files: "
            f"{', '.join(sorted(x.name for x in path.iterdir())[:10]) or 'none'}"
        )
    if kind and (config.get("bert_tf") or format is sentence_transformers):
        raise ValueError(
            f"`head` must not be set, because {path} declares its head. Received: "
            f"head={kind!r}"
        )
    return open_folder(path, config, kind)


# --- Model directories -----------------------------------------------------------

# Entries of a head that follow from the weights or the data.
_NOT_COMPARED = {"decision", "newly_initialized"}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ModelDirectory(Checkpoint):
    """A model directory to write."""

    @classmethod
    def create(
        cls,
        path: str | os.PathLike,
        *,
        resumable: Collection[str] = (),
        write: bool = True,
        **attributes: Any,
    ) -> ModelDirectory:
        """Creates the folder, or resumes one that the same command created.

        A folder without weights and training states is written anew: its command was
        killed early or diverged, and its options do not matter.

        Args:
            path: The folder. If it is remote, `storage.upload` copies the files there.
            resumable: Names of `options` that may differ from the earlier run.
            write: Whether to write files. With several workers, only one writes.
            **attributes: Those of the model directory, see `Checkpoint.attributes`.

        Raises:
            ValueError: The folder contains a model with another configuration. The
                message lists each difference with both values.
        """
        path = storage.local_copy(path)
        new = cls(path, **attributes)
        saved = [*path.glob("*.safetensors"), *path.glob("training_state/*")]
        is_ours = "bert_tf" in text_files.read_json_object(path / CONFIG)
        stale = is_ours and not saved
        if stale and write:
            with storage.exclusive(path):  # Another process may train there.
                for name in (CONFIG, sentence_transformers.MODULES):
                    (path / name).unlink(missing_ok=True)
        if not stale and (path / CONFIG).exists():
            old = _open_folder(path)
            before, now = (_settings(c, resumable) for c in (old, new))
            cli.check_unchanged(path, before, now)
            if "decision" in old.head:
                head = {**new.head, "decision": old.head["decision"]}
                new = dataclasses.replace(new, head=head)
        elif write:
            path.mkdir(parents=True, exist_ok=True)
            write_tokenizer(path, new)
            sentence_transformers.write_modules(new)
            # Last, because this file marks the folder as a model directory.
            hugging_face.write_config(new, hugging_face.model_class(new))
        return new

    def write_decision(self, decision: Mapping[str, Any]) -> ModelDirectory:
        """Adds settings to the head that were fitted on a dev set.

        Readers drop them if another program has changed the layer `logits`.
        """
        decision = {**decision, "fingerprint": self.fingerprint(["logits"])}
        config = text_files.read_json_object(self.path / CONFIG)
        config["bert_tf"]["head"]["decision"] = decision
        text_files.write_json(self.path / CONFIG, config)
        return dataclasses.replace(self, head={**self.head, "decision": decision})

    # --- Weights ---------------------------------------------------------------

    def save_weights(
        self, model: keras.Model, change: Callable[[dict], dict] = dict
    ) -> None:
        """Writes the weights of `model` atomically, without the optimizer.

        Adds the weights of LoRA to those that they adapt.

        Args:
            model: The model.
            change: Returns the weights to write for those of the model, by name.
        """
        untrained = self.head.get("newly_initialized", ())
        weights = {v.path: v for v in model.weights if "/lora_" not in v.path}
        for layer in keras_private.nested_layers(model):
            if getattr(layer, "lora_enabled", False):
                name = "kernel" if hasattr(layer, "kernel") else "embeddings"
                weights[f"{layer.path}/{name}"] = getattr(layer, name)
        arrays = {
            path: keras.ops.convert_to_numpy(weight)
            for path, weight in weights.items()
            if outermost_layer(path) not in untrained
        }
        self.write_weights(change(arrays))

    def write_weights(self, weights: Mapping[str, np.ndarray]) -> list[str]:
        """Writes weights by our names, atomically.

        Returns:
            The names of the weights that the model class of transformers lacks.
        """
        if self.head["kind"] == "embedding":
            # A training that is killed between both files resumes from a state before
            # them, and writes them again.
            weights = sentence_transformers.write_dense(self.path, weights)
        return hugging_face.write_weights(self, weights)

    def read_weights(self) -> dict[str, np.ndarray]:
        # Opened before it had weights, so `weights` is empty.
        return _open_folder(self.path).read_weights()

    def fingerprint(self, layers: Collection[str] = ()) -> str:
        return _open_folder(self.path).fingerprint(layers)

    def load_weights(self, model: keras.Model) -> None:
        """Loads the weights that were written into `model`.

        Raises:
            ValueError: A file is missing, truncated or belongs to another model.
        """
        unused = {"pooler", *self.head.get("newly_initialized", ())}
        if missing := set(self.load_into(model)) - unused:
            raise ValueError(
                f"{self.path} has no weights for {', '.join(sorted(missing))}."
            )

    # --- Metrics ---------------------------------------------------------------

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        text_files.write_json(self.path / METRICS, metrics)


def _settings(checkpoint: Checkpoint, resumable: Collection[str]) -> dict[str, Any]:
    """Returns what must be the same to resume a training, by name."""
    parts = checkpoint.architecture, checkpoint.rules
    values = {k: x for part in parts for k, x in dataclasses.asdict(part).items()}
    values["added_tokens"] = sorted(checkpoint.rules.added_tokens, key=str)
    values["vocabulary"] = checkpoint.vocabulary.fingerprint
    values |= {"lowercase": checkpoint.lowercase, "encoder": checkpoint.encoder}
    values |= {k: v for k, v in checkpoint.head.items() if k not in _NOT_COMPARED}
    values |= checkpoint.options
    return {k: v for k, v in values.items() if k not in resumable}


# --- Writing checkpoints ---------------------------------------------------------


def write_checkpoint(
    checkpoint: Checkpoint, path: str | os.PathLike, **card: str
) -> list[str]:
    """Writes a checkpoint as a model directory.

    It is ready to be published: it has no paths of this machine, no training state and
    no logs, and README.md is its model card.

    Args:
        checkpoint: A checkpoint that `open_checkpoint` returned.
        path: The folder to write. It must not exist or be empty.
        **card: `base_model` and `data` of `model_card.model_card`.

    Returns:
        The names of the weights that the model class of transformers lacks.

    Raises:
        ValueError: `path` exists or is a handle, or the head of the checkpoint is
            unclear.
    """
    heads.check_declared(checkpoint.head, checkpoint.path)
    if (handle := os.fspath(path)).startswith("hf://"):
        raise ValueError(
            f"{handle} is not a folder. Write one, add a license to its README.md, and "
            f"upload it: hf upload {handle.removeprefix('hf://')} FOLDER"
        )
    path = storage.local_copy(path)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"{path} already exists. Choose another folder.")
    path.parent.mkdir(parents=True, exist_ok=True)
    options = cards.without_folders(checkpoint.options)
    attributes = checkpoint.attributes() | {"options": options}
    with storage.atomic_path(path) as unfinished:
        directory = ModelDirectory.create(unfinished, **attributes)
        text = cards.model_card(path.name, checkpoint, options, **card)
        text_files.write_text(str(unfinished / "README.md"), text)
        left_out = directory.write_weights(checkpoint.read_weights())
    storage.upload(path)
    return left_out
