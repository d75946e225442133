# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the TensorFlow Model Garden (TensorFlow 2, object-based).

    bert_config.json, vocab.txt                as in google-research/bert
    bert_model.ckpt.index, .data-00000-of-...  weights

The key of a tensor is its path from the saved object, e.g.
`encoder/_transformer_layers/0/_output_dense/kernel`. These paths differ between encoder
classes and the objects that contain them. The object graph in the file also records
variable names, which are the same for all classes, so the reader uses those.
"""

from __future__ import annotations

import pathlib

from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.checkpoints import google
from bert_tf.checkpoints.foreign import (
    KERAS_SUFFIXES,
    ForeignCheckpoint,
    Row,
    Tensors,
    rows_of_layers,
)

FORMAT = "Model Garden TensorFlow 2"

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# --- Table of weight names -------------------------------------------------------

_OURS, _THEIRS = "encoder_layer_{i}", "transformer/layer_{i}"
_WORD_EMBEDDINGS = "word_embeddings/embeddings"

_ENCODER = {
    "embeddings/token_embedding": "word_embeddings",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "type_embeddings",
    "embeddings/layer_norm": "embeddings/layer_norm",
    f"{_OURS}/query": f"{_THEIRS}/self_attention/query",
    f"{_OURS}/key": f"{_THEIRS}/self_attention/key",
    f"{_OURS}/value": f"{_THEIRS}/self_attention/value",
    f"{_OURS}/attention_output": f"{_THEIRS}/self_attention/attention_output",
    f"{_OURS}/attention_layer_norm": f"{_THEIRS}/self_attention_layer_norm",
    f"{_OURS}/intermediate": f"{_THEIRS}/intermediate",
    f"{_OURS}/output": f"{_THEIRS}/output",
    f"{_OURS}/output_layer_norm": f"{_THEIRS}/output_layer_norm",
    "pooler": "pooler_transform",
}
_PRETRAINER = {
    "mlm/dense": "bert/cls/predictions/transform/dense",
    "mlm/layer_norm": "bert/cls/predictions/transform/LayerNorm",
}


def _rows(prefix: str) -> list[Row]:
    """Returns the table for an encoder whose variable names start with `prefix`."""
    encoder = {ours: prefix + theirs for ours, theirs in _ENCODER.items()}
    return [
        *rows_of_layers(encoder, KERAS_SUFFIXES, per_head=True),
        *rows_of_layers(_PRETRAINER, KERAS_SUFFIXES),
        Row("mlm/bias", ("bert/cls/predictions/output_bias/bias",)),
    ]


# --- Reading ---------------------------------------------------------------------


def is_object_based(tensors: Tensors) -> bool:
    """Whether a TensorFlow checkpoint contains an object graph."""
    return _GRAPH in tensors.shapes


def open_folder(path: pathlib.Path) -> ForeignCheckpoint:
    """Opens a folder with a saved encoder, or a saved model that contains one.

    Raises:
        ValueError: A file is missing or damaged, or contradicts another one.
    """
    tensors = _by_variable(google.load(google.find_prefix(path)))
    prefixes = [
        name.removesuffix(_WORD_EMBEDDINGS)
        for name in tensors.shapes
        if f"/{name}".endswith(f"/{_WORD_EMBEDDINGS}")
    ]
    if len(prefixes) != 1:
        raise ValueError(
            f"{path} is not a checkpoint of a Model Garden encoder, which has exactly "
            f"one variable named {_WORD_EMBEDDINGS}. Received: {len(prefixes)} of "
            f"{len(tensors.shapes)} variables"
        )
    folder = google.read_folder(path)
    return ForeignCheckpoint.from_tensors(
        path,
        format=FORMAT,
        rows=_rows(prefixes[0]),
        tensors=tensors,
        config=folder.config,
        vocabulary=folder.vocabulary,
        lowercase=folder.lowercase,
        notes=folder.notes,
    )


def _by_variable(tensors: Tensors) -> Tensors:
    """Renames tensors to their variables' names and drops the optimizer's."""
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
    return Tensors(shapes, lambda name: tensors.read(keys[name]))
