# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of google-research/bert (TensorFlow 1) and of the Model Garden.

    bert_config.json                           architecture
    bert_model.ckpt.index, .data-00000-of-...  weights
    vocab.txt

The formats do not record whether the model is cased, nor the form of GELU and the
epsilon, which are fixed in google's code.

Checkpoints of the Model Garden (TensorFlow 2) are object-based: the key of a tensor is
its path from the saved object, which differs between encoder classes and the objects
that contain them. The object graph in the file also records variable names, which are
the same for all classes, so the reader uses those.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf import heads
from bert_tf.checkpoints import weight_files
from bert_tf.checkpoints.checkpoint import Checkpoint
from bert_tf.checkpoints.weight_files import ATTENTION, OURS
from bert_tf.families import FAMILIES
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary, guess_lowercase

FORMAT, _GARDEN_FORMAT = "Google TensorFlow 1", "Model Garden TensorFlow 2"

_CONFIGS = ("bert_config.json", "config.json")
_VOCABULARY, _PREFIX = "vocab.txt", "bert_model.ckpt"

# The object graph. Checkpoints of TensorFlow 1 have none.
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


# --- Names of weights ------------------------------------------------------------

_MASKED_LM = {
    "mlm/dense": "cls/predictions/transform/dense",
    "mlm/layer_norm": "cls/predictions/transform/LayerNorm",
}
# transformers has the same names with dots.
_GOOGLE = _MASKED_LM | {
    ours: theirs.replace(".", "/").replace("/layer/", "/layer_")
    for ours, theirs in FAMILIES["bert"].layers("encoder").items()
}


def _google_names(kind: str | None) -> weight_files.Names:
    """Returns the table for a head of this kind."""
    outputs = {"mlm": "cls/predictions/", "nsp": "cls/seq_relationship/"}
    # That of run_squad.py, run_classifier.py or BioBERT's run_ner.py.
    scope = heads.known_head(kind or "encoder").google_scope
    if scope is not None:
        outputs["logits"] = scope
    suffixes = weight_files.KERAS_SUFFIXES | {"embeddings": ""}
    names = weight_files.names_of_layers(_GOOGLE, suffixes)
    suffixes = {"kernel": "output_weights", "bias": "output_bias"}
    return names | weight_files.names_of_layers(outputs, suffixes)


_GARDEN_TOKENS = "word_embeddings/embeddings"

_GARDEN = "transformer/layer_{i}"
_GARDEN_ENCODER = {
    "embeddings/token_embedding": "word_embeddings",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "type_embeddings",
    "embeddings/layer_norm": "embeddings/layer_norm",
    **{f"{OURS}/{part}": f"{_GARDEN}/self_attention/{part}" for part in ATTENTION},
    f"{OURS}/attention_layer_norm": f"{_GARDEN}/self_attention_layer_norm",
    f"{OURS}/intermediate": f"{_GARDEN}/intermediate",
    f"{OURS}/output": f"{_GARDEN}/output",
    f"{OURS}/output_layer_norm": f"{_GARDEN}/output_layer_norm",
    "pooler": "pooler_transform",
}


def _garden_names(scope: str) -> weight_files.Names:
    """Returns the table for encoders whose names begin with `scope`."""
    layers = {ours: scope + theirs for ours, theirs in _GARDEN_ENCODER.items()}
    layers |= {ours: f"bert/{theirs}" for ours, theirs in _MASKED_LM.items()}
    layers["mlm"] = "bert/cls/predictions/output_bias"
    return weight_files.names_of_layers(layers)


# --- Reading ---------------------------------------------------------------------


def detect(path: pathlib.Path, config: Mapping[str, Any]) -> Callable | None:
    """Returns `open_folder` if a folder only has weights in a TensorFlow checkpoint."""
    is_only = last_checkpoint(path) and not any(path.glob("*.safetensors"))
    return open_folder if is_only else None


def last_checkpoint(path: pathlib.Path) -> str | None:
    """Returns a folder's checkpoint path without suffix, that of the last step."""

    def order(file: pathlib.Path) -> tuple[bool, int]:
        step = file.stem.rpartition("-")[2]
        return file.stem == _PREFIX, int(step) if step.isdigit() else 0

    files = sorted(path.glob("*.index"), key=order)
    return str(files[-1].with_suffix("")) if files else None


def open_folder(
    path: pathlib.Path, config: Mapping[str, Any], kind: str | None = None
) -> Checkpoint:
    """Opens a folder of google-research/bert or of the Model Garden.

    Args:
        path: The folder.
        config: Its config.json, which it may lack; bert_config.json is used instead.
        kind: The kind of head to read; by default the one that the tensors show.

    Raises:
        ValueError: A file is damaged, contradicts another one, or bert_config.json is
            missing.
        FileNotFoundError: vocab.txt is missing.
    """
    prefix = last_checkpoint(path)
    tensors, format = _load(prefix), FORMAT
    config = next(filter(pathlib.Path.is_file, map(path.joinpath, _CONFIGS)), None)
    if config is None:
        raise ValueError(
            f"{path} contains a checkpoint but no {_CONFIGS[0]}. Copy the "
            f"{_CONFIGS[0]} that the model was trained with into the folder."
        )
    if _GRAPH in tensors:
        format = _GARDEN_FORMAT
        tensors = _variables(tensors)
        scope = weight_files.find_prefix(prefix, tensors, _GARDEN_TOKENS)
        names = _garden_names(scope)
    else:
        kind = kind or _task(path, tensors)
        names, tensors = _google_names(kind), _without_optimizer_state(tensors)
    vocabulary = Vocabulary.from_file(path / _VOCABULARY)
    lowercase, note = guess_lowercase(vocabulary)
    logging.warning("%s: %s", path, note)
    return weight_files.open_tensors(
        path,
        names,
        tensors,
        architecture=BertConfig.from_file(config),
        vocabulary=vocabulary,
        lowercase=lowercase,
        kind=kind,
        format=format,
    )


def _load(prefix: str) -> weight_files.Tensors:
    """Opens a TensorFlow 1 or 2 checkpoint.

    Raises:
        ValueError: It is damaged. Reading a tensor may also raise this.
    """

    def checked(read, *args):
        try:
            return read(*args)
        except (tf.errors.OpError, ValueError, IndexError) as error:
            raise ValueError(
                f"{prefix} is damaged or incomplete. TensorFlow reports: {error}"
            ) from error

    reader = checked(tf.train.load_checkpoint, prefix)
    return {
        name: weight_files.Tensor(
            tuple(shape), functools.partial(checked, reader.get_tensor, name)
        )
        for name, shape in reader.get_variable_to_shape_map().items()
    }


def _task(path: pathlib.Path, tensors: weight_files.Tensors) -> str | None:
    """Returns the kind of the head of a TensorFlow 1 checkpoint.

    Classifiers and taggers have the same names.
    """
    if "cls/squad/output_weights" in tensors:
        return "question_answering"
    if "output_weights" not in tensors:
        return None
    text = "%s: The head is assumed to be a classifier; --head=tagging sets a tagger."
    logging.warning(text, path)
    return "classification"


def _without_optimizer_state(tensors: weight_files.Tensors) -> weight_files.Tensors:
    """Drops counters, and slots: tensors whose name continues that of a variable."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.shape and name.rpartition("/")[0] not in tensors
    }


def _variables(tensors: weight_files.Tensors) -> weight_files.Tensors:
    """Renames the tensors of an object-based checkpoint to their variables.

    Leaves out those of the optimizer.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        tensors[_GRAPH].read()
    )
    return {
        attribute.full_name: tensors[attribute.checkpoint_key]
        for node in graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key in tensors
        and not attribute.checkpoint_key.startswith(("optimizer/", "save_counter"))
        and "/.OPTIMIZER_SLOT/" not in attribute.checkpoint_key
    }
