# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of google-research/bert (TensorFlow 1, named variables).

    bert_config.json                           architecture
    bert_model.ckpt.index, .data-00000-of-...  weights
    vocab.txt

The format does not record whether the model is cased, nor the form of GELU and the
epsilon, which are fixed in google's code.
"""

from __future__ import annotations

import pathlib

import tensorflow as tf

from bert_tf import heads
from bert_tf.checkpoints import model_garden
from bert_tf.checkpoints.foreign import (
    KERAS_SUFFIXES,
    ForeignCheckpoint,
    Row,
    Tensors,
    mlm_bias,
    rows_of_layers,
)
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

FORMAT = "Google TensorFlow 1"

_CONFIG, _VOCABULARY, _PREFIX = "bert_config.json", "vocab.txt", "bert_model.ckpt"

# --- Table of weight names -------------------------------------------------------

_OURS, _THEIRS = "encoder_layer_{i}", "bert/encoder/layer_{i}"

ENCODER = {
    "embeddings/token_embedding": "bert/embeddings/word_embeddings",
    "embeddings/position_embedding": "bert/embeddings/position_embeddings",
    "embeddings/segment_embedding": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    f"{_OURS}/query": f"{_THEIRS}/attention/self/query",
    f"{_OURS}/key": f"{_THEIRS}/attention/self/key",
    f"{_OURS}/value": f"{_THEIRS}/attention/self/value",
    f"{_OURS}/attention_output": f"{_THEIRS}/attention/output/dense",
    f"{_OURS}/attention_layer_norm": f"{_THEIRS}/attention/output/LayerNorm",
    f"{_OURS}/intermediate": f"{_THEIRS}/intermediate/dense",
    f"{_OURS}/output": f"{_THEIRS}/output/dense",
    f"{_OURS}/output_layer_norm": f"{_THEIRS}/output/LayerNorm",
    "pooler": "bert/pooler/dense",
}
PRETRAINER = {
    "mlm/dense": "cls/predictions/transform/dense",
    "mlm/layer_norm": "cls/predictions/transform/LayerNorm",
}


def _rows(kind: str | None) -> list[Row]:
    """Returns the table, with the output layer of a head that google's scripts have.

    These are those of run_squad.py, run_classifier.py and BioBERT's run_ner.py.
    """
    outputs = {"nsp": "cls/seq_relationship/"}
    prefix = heads.known_head(kind or "encoder").google_prefix
    if prefix is not None:
        outputs["logits"] = prefix
    suffixes = {"kernel": ("output_weights",), "bias": ("output_bias",)}
    return [
        *rows_of_layers(ENCODER | PRETRAINER, KERAS_SUFFIXES | {"embeddings": ("",)}),
        mlm_bias("cls/predictions/output_bias"),
        *rows_of_layers(outputs, suffixes, transposed=True),
    ]


# --- Reading ---------------------------------------------------------------------


def find_prefix(path: pathlib.Path) -> str | None:
    """Returns a folder's checkpoint path without suffix, the newest if several."""
    state = tf.train.get_checkpoint_state(str(path))
    # The file `checkpoint` may have the path of a folder that was moved.
    latest = pathlib.Path(state.model_checkpoint_path).name if state else ""
    for name in (_PREFIX, latest):
        if (path / f"{name}.index").is_file():
            return str(path / name)
    found = sorted(path.glob("*.index"), key=lambda file: file.stat().st_mtime)
    return str(found[-1].with_suffix("")) if found else None


def _load(prefix: str) -> Tensors:
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
    shapes = {k: tuple(v) for k, v in reader.get_variable_to_shape_map().items()}
    return Tensors(shapes, lambda name: checked(reader.get_tensor, name))


def _task(tensors: Tensors) -> tuple[str | None, list[str]]:
    """Returns the kind of the head of a TensorFlow 1 checkpoint, and a note about it.

    Classifiers and taggers have the same names. Training does not change the pooler of
    a tagger, so the optimizer has no slots for it.
    """
    if "cls/squad/output_weights" in tensors.shapes:
        return "question_answering", []
    if "output_weights" not in tensors.shapes:
        return None, []
    has_slots = any(name.startswith("output_weights/") for name in tensors.shapes)
    of_pooler = any(n.startswith("bert/pooler/dense/kernel/") for n in tensors.shapes)
    kind = "tagging" if has_slots and not of_pooler else "classification"
    return kind, [f"The head is assumed to be of the kind {kind}; --head sets another."]


def _without_optimizer_state(tensors: Tensors) -> Tensors:
    """Drops counters, and slots: tensors whose name continues that of a variable."""
    shapes = {
        name: shape
        for name, shape in tensors.shapes.items()
        if shape and name.rpartition("/")[0] not in tensors.shapes
    }
    return tensors._replace(shapes=shapes)


def open_folder(path: pathlib.Path, kind: str | None = None) -> ForeignCheckpoint:
    """Opens a folder of google-research/bert or of the Model Garden.

    Args:
        path: The folder.
        kind: The kind of head to read; by default the one that the tensors show.

    Raises:
        ValueError: A file is missing or damaged, or contradicts another one.
    """
    prefix = find_prefix(path)
    tensors, notes = _load(prefix), []
    name = _CONFIG if (path / _CONFIG).is_file() else "config.json"
    if not (path / name).is_file():
        raise ValueError(
            f"{path} contains a checkpoint but no {_CONFIG}. Copy the {_CONFIG} that "
            "the model was trained with into the folder."
        )
    config = BertConfig.from_google(path / name)
    if model_garden.GRAPH in tensors.shapes:
        format = model_garden.FORMAT
        rows, tensors = model_garden.read_object_graph(prefix, tensors)
    else:
        if not kind:
            kind, notes = _task(tensors)
        format, rows = FORMAT, _rows(kind)
        tensors = _without_optimizer_state(tensors)
    return ForeignCheckpoint.from_tensors(
        path,
        format,
        rows,
        tensors,
        config=config,
        vocabulary=Vocabulary.from_file(path / _VOCABULARY),
        lowercase=None,
        kind=kind,
        notes=notes,
    )
