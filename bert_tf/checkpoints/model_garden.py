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

from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert_tf.checkpoints.foreign import (
    KERAS_SUFFIXES,
    Row,
    Tensors,
    mlm_bias,
    rows_of_layers,
)

FORMAT = "Model Garden TensorFlow 2"

# The object graph. Checkpoints of TensorFlow 1 have none.
GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

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


def read_object_graph(prefix: str, tensors: Tensors) -> tuple[list[Row], Tensors]:
    """Finds the encoder in a saved encoder or in a saved model that contains one.

    Args:
        prefix: The path of the checkpoint, for messages.
        tensors: The tensors in the file.

    Returns:
        The table of weight names, and the tensors by the names of their variables,
        without those of the optimizer.

    Raises:
        ValueError: There is no encoder, or more than one.
    """
    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(
        tensors.read(GRAPH)
    )
    keys = {
        attribute.full_name: attribute.checkpoint_key
        for node in graph.nodes
        for attribute in node.attributes
        if attribute.checkpoint_key in tensors.shapes
        and not attribute.checkpoint_key.startswith(("optimizer/", "save_counter"))
        and "/.OPTIMIZER_SLOT/" not in attribute.checkpoint_key
    }
    found = [name for name in keys if f"/{name}".endswith(f"/{_WORD_EMBEDDINGS}")]
    if len(found) != 1:
        raise ValueError(
            f"{prefix} is not a checkpoint of a Model Garden encoder. It must have one "
            f"variable named {_WORD_EMBEDDINGS}. Received: {len(found)} of "
            f"{len(keys)} variables"
        )
    start = found[0].removesuffix(_WORD_EMBEDDINGS)
    encoder = {ours: start + theirs for ours, theirs in _ENCODER.items()}
    rows = [
        *rows_of_layers(encoder, KERAS_SUFFIXES, per_head=True),
        *rows_of_layers(_PRETRAINER, KERAS_SUFFIXES),
        mlm_bias("bert/cls/predictions/output_bias/bias"),
    ]
    shapes = {name: tensors.shapes[key] for name, key in keys.items()}
    return rows, Tensors(shapes, lambda name: tensors.read(keys[name]))
