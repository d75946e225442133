# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of TensorFlow's Model Garden: TensorFlow 2, objects instead of names.

    bert_config.json, vocab.txt                as beside google-research/bert's
    bert_model.ckpt.index, .data-00000-of-...  weights

A tensor is filed under the way to it from the saved object, such as
`encoder/_transformer_layers/0/_output_dense/kernel`, which differs between the classes
of encoders and what holds them. The graph of objects in the file has the names of the
variables as well, and those are alike in all.
"""

from __future__ import annotations

import pathlib

from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.checkpoints import google, names
from bert_tf.checkpoints.foreign import ForeignCheckpoint, open_tensors
from bert_tf.checkpoints.names import Row

FORMAT = "Model Garden TensorFlow 2"

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# --- The table of names ----------------------------------------------------------


def _dense(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("kernel", "bias")]


def _layer_norm(ours: str, theirs: str) -> list[Row]:
    return [Row(f"{ours}/{part}", (f"{theirs}/{part}",)) for part in ("gamma", "beta")]


def _projection(ours: str, theirs: str) -> list[Row]:
    """A dense layer whose output is split by heads."""
    return [
        Row(f"{ours}/kernel", (f"{theirs}/kernel",), heads_axis=1),
        Row(f"{ours}/bias", (f"{theirs}/bias",), heads_axis=0),
    ]


_OURS, _THEIRS = "encoder_layer_{i}", "transformer/layer_{i}"
_ATTENTION = f"{_THEIRS}/self_attention"
_WORD_EMBEDDINGS = "word_embeddings/embeddings"

_ENCODER = [
    Row("embeddings/token_embedding/embeddings", (_WORD_EMBEDDINGS,)),
    Row("embeddings/position_embedding/embeddings", ("position_embedding/embeddings",)),
    Row("embeddings/segment_embedding/embeddings", ("type_embeddings/embeddings",)),
    *_layer_norm("embeddings/layer_norm", "embeddings/layer_norm"),
    *_projection(f"{_OURS}/query", f"{_ATTENTION}/query"),
    *_projection(f"{_OURS}/key", f"{_ATTENTION}/key"),
    *_projection(f"{_OURS}/value", f"{_ATTENTION}/value"),
    Row(
        f"{_OURS}/attention_output/kernel",
        (f"{_ATTENTION}/attention_output/kernel",),
        heads_axis=0,
    ),
    Row(f"{_OURS}/attention_output/bias", (f"{_ATTENTION}/attention_output/bias",)),
    *_layer_norm(
        f"{_OURS}/attention_layer_norm", f"{_THEIRS}/self_attention_layer_norm"
    ),
    *_dense(f"{_OURS}/intermediate", f"{_THEIRS}/intermediate"),
    *_dense(f"{_OURS}/output", f"{_THEIRS}/output"),
    *_layer_norm(f"{_OURS}/output_layer_norm", f"{_THEIRS}/output_layer_norm"),
    *_dense("pooler", "pooler_transform"),
]

# What follows the encoder in a pre-trained model; its names have a beginning of their
# own.
_PRETRAINER = [
    *_dense("mlm/dense", "bert/cls/predictions/transform/dense"),
    *_layer_norm("mlm/layer_norm", "bert/cls/predictions/transform/LayerNorm"),
    Row("mlm/bias", ("bert/cls/predictions/output_bias/bias",)),
]


def _rows(prefix: str) -> list[Row]:
    """The table for an encoder whose variables' names begin with `prefix`."""
    encoder = [row._replace(theirs=(prefix + row.theirs[0],)) for row in _ENCODER]
    return encoder + _PRETRAINER


# --- Reading ---------------------------------------------------------------------


def recognises(tensors: names.Tensors) -> bool:
    """Whether a checkpoint of TensorFlow knows objects."""
    return _GRAPH in tensors.shapes


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder with a saved encoder, or what holds one.

    Raises:
        ValueError: A file is missing or damaged, or contradicts another.
    """
    tensors = _by_variable(google.load(google.find_prefix(path)))
    prefixes = [n[: -len(_WORD_EMBEDDINGS)] for n in tensors.shapes if _is_words(n)]
    if len(prefixes) != 1:
        raise ValueError(
            f"{path}: the checkpoint of an encoder of Model Garden has one variable "
            f"{_WORD_EMBEDDINGS}. Received: {len(prefixes)} of {len(tensors.shapes)} "
            "variables"
        )
    folder = google.read_folder(path)
    return open_tensors(
        path,
        format=FORMAT,
        rows=_rows(prefixes[0]),
        tensors=tensors,
        config=folder.config,
        vocabulary=folder.vocabulary,
        lowercase=folder.lowercase,
        notes=folder.notes,
    )


def _is_words(name: str) -> bool:
    return name == _WORD_EMBEDDINGS or name.endswith(f"/{_WORD_EMBEDDINGS}")


def _by_variable(tensors: names.Tensors) -> names.Tensors:
    """The tensors of a checkpoint by the names of their variables, without slots."""
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        tensors.read(_GRAPH)
    )
    keys = {
        attribute.full_name: attribute.checkpoint_key
        for node in graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key in tensors.shapes
        and not attribute.checkpoint_key.startswith(("optimizer/", "save_counter"))
        and "/.OPTIMIZER_SLOT/" not in attribute.checkpoint_key
    }
    shapes = {name: tensors.shapes[key] for name, key in keys.items()}
    return names.Tensors(shapes, lambda name: tensors.read(keys[name]))
