# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of weights in each format, as tables.

Our name of a weight is its `variable.path` in Keras, e.g.
`encoder_layer_0/query/kernel`. The output layer of a task is `logits`.

Shapes are strings of letters: V vocabulary, S positions, T segments, H hidden,
I intermediate, C outputs of a task, N heads, D = H / N.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bert_tf import heads
from bert_tf.modeling import BertConfig

# --- Rows ------------------------------------------------------------------------

# Shapes of embeddings and dense layers by the last part of their name; others are HH.
_SHAPES = {
    "token_embedding": "VH",
    "position_embedding": "SH",
    "segment_embedding": "TH",
    "intermediate": "HI",
    "output": "IH",
    "nsp": "H2",
    "logits": "HC",
}

# Shapes of attention weights in the formats that store them per head.
_PER_HEAD = {
    f"{projection}/{part}": shape
    for projection in ("query", "key", "value")
    for part, shape in (("kernel", "HND"), ("bias", "ND"))
} | {"attention_output/kernel": "NDH"}

# Suffixes of formats that name the parts of a layer as Keras does, and of torch.
_KERAS_SUFFIXES = {
    part: f"/{part}" for part in ("kernel", "bias", "gamma", "beta", "embeddings")
}
_TORCH_SUFFIXES = dict.fromkeys(("kernel", "embeddings", "gamma"), ".weight")
_TORCH_SUFFIXES |= dict.fromkeys(("bias", "beta"), ".bias")


class Row(NamedTuple):
    """One weight in a table.

    Attributes:
        ours: Our name. `{i}` is the number of an encoder layer.
        theirs: Names in the format. The writer uses the first one. If a file has
            several, they must be copies of the same tensor.
        shape: Our shape.
        stored: Shape in the format.
        transposed: Whether the format stores a matrix as [out, in].
    """

    ours: str
    theirs: tuple[str, ...]
    shape: str
    stored: str
    transposed: bool = False


def _mlm_bias(*theirs: str) -> Row:
    """Returns the row of the masked-LM head's output bias."""
    return Row("mlm/bias", theirs, "V", "V")


def _rows_of_layers(
    layers: Mapping[str, str],
    suffixes: Mapping[str, str] = _KERAS_SUFFIXES,
    *,
    transposed: bool = False,
    per_head: bool = False,
) -> list[Row]:
    """Expands a table of layers into a table of weights.

    Args:
        layers: The format's name of each layer, by our name.
        suffixes: What the format appends to a layer's name, by the last part of our
            weight name, e.g. `{"kernel": ".weight", "bias": ".bias"}`.
        transposed: Whether kernels are stored as [out, in].
        per_head: Whether attention projections are stored per head.
    """
    rows = []
    for layer, their_layer in layers.items():
        name = layer.rpartition("/")[2]
        shape = _SHAPES.get(name, "HH")
        parts = {"kernel": shape, "bias": shape[-1]}
        if name.endswith("_embedding"):
            parts = {"embeddings": shape}
        elif name.endswith("layer_norm"):
            parts = {"gamma": "H", "beta": "H"}
        for part, shape in parts.items():
            theirs = (their_layer + suffixes[part],)
            is_transposed = transposed and part == "kernel"
            stored = shape[::-1] if is_transposed else shape
            if per_head:
                stored = _PER_HEAD.get(f"{name}/{part}", shape)
            rows.append(Row(f"{layer}/{part}", theirs, shape, stored, is_transposed))
    return rows


def expand(rows: Iterable[Row], num_layers: int) -> list[Row]:
    """Replaces each row that contains {i} by one row per encoder layer."""
    expanded = []
    for row in rows:
        for i in range(num_layers) if "{i}" in row.ours else range(1):
            theirs = tuple(name.replace("{i}", str(i)) for name in row.theirs)
            ours = row.ours.replace("{i}", str(i))
            expanded.append(row._replace(ours=ours, theirs=theirs))
    return expanded


def to_shape(
    letters: str, config: BertConfig, classes: int | None = None
) -> tuple[int, ...]:
    """Converts letters to sizes. `classes` is the size of C."""
    sizes = {
        "V": config.vocabulary_size,
        "S": config.max_sequence_length,
        "T": config.num_segments,
        "H": config.hidden_dim,
        "I": config.intermediate_dim,
        "N": config.num_heads,
        "D": config.hidden_dim // config.num_heads,
        "C": classes,
        "2": 2,
    }
    return tuple(sizes[letter] for letter in letters)


# --- google-research/bert --------------------------------------------------------

_OURS, _GOOGLE = "encoder_layer_{i}", "bert/encoder/layer_{i}"
_GOOGLE_ENCODER = {
    "embeddings/token_embedding": "bert/embeddings/word_embeddings",
    "embeddings/position_embedding": "bert/embeddings/position_embeddings",
    "embeddings/segment_embedding": "bert/embeddings/token_type_embeddings",
    "embeddings/layer_norm": "bert/embeddings/LayerNorm",
    f"{_OURS}/query": f"{_GOOGLE}/attention/self/query",
    f"{_OURS}/key": f"{_GOOGLE}/attention/self/key",
    f"{_OURS}/value": f"{_GOOGLE}/attention/self/value",
    f"{_OURS}/attention_output": f"{_GOOGLE}/attention/output/dense",
    f"{_OURS}/attention_layer_norm": f"{_GOOGLE}/attention/output/LayerNorm",
    f"{_OURS}/intermediate": f"{_GOOGLE}/intermediate/dense",
    f"{_OURS}/output": f"{_GOOGLE}/output/dense",
    f"{_OURS}/output_layer_norm": f"{_GOOGLE}/output/LayerNorm",
    "pooler": "bert/pooler/dense",
}
_MASKED_LM = {
    "mlm/dense": "cls/predictions/transform/dense",
    "mlm/layer_norm": "cls/predictions/transform/LayerNorm",
}


def google_rows(kind: str | None) -> list[Row]:
    """Returns the table, with the output layer of a head that google's scripts have.

    These are those of run_squad.py, run_classifier.py and BioBERT's run_ner.py.
    """
    outputs = {"nsp": "cls/seq_relationship/"}
    prefix = heads.known_head(kind or "encoder").google_prefix
    if prefix is not None:
        outputs["logits"] = prefix
    suffixes = {"kernel": "output_weights", "bias": "output_bias"}
    return [
        *_rows_of_layers(
            _GOOGLE_ENCODER | _MASKED_LM, _KERAS_SUFFIXES | {"embeddings": ""}
        ),
        _mlm_bias("cls/predictions/output_bias"),
        *_rows_of_layers(outputs, suffixes, transposed=True),
    ]


# --- transformers ----------------------------------------------------------------


def hugging_face_rows(kind: str | None, *, has_prefix: bool = True) -> list[Row]:
    """Returns the table for models with a head of this kind.

    Args:
        kind: As in `foreign.open_tensors`.
        has_prefix: Whether the names of the encoder's weights start with `bert.`.
    """
    layers, bias = dict(_GOOGLE_ENCODER), []
    head = heads.known_head(kind or "encoder")
    if head.transformers and not issubclass(head, heads.EncoderHead):
        layers["logits"] = head.transformers_layer
    elif kind != "encoder":
        layers |= _MASKED_LM | {"nsp": "cls/seq_relationship"}
        bias = [_mlm_bias("cls.predictions.bias", "cls.predictions.decoder.bias")]
    # transformers names layers as google-research/bert does, with dots.
    layers = {
        ours: name.replace("/layer_", "/layer/")
        .replace("/", ".")
        .removeprefix("" if has_prefix else "bert.")
        for ours, name in layers.items()
    }
    tokens, *others = _rows_of_layers(layers, _TORCH_SUFFIXES, transposed=True)
    # Some files have a copy of the token embedding as the output matrix of masked LM.
    names = (*tokens.theirs, "cls.predictions.decoder.weight")
    return [tokens._replace(theirs=names), *others, *bias]


# --- Model Garden ----------------------------------------------------------------

GARDEN_TOKENS = "word_embeddings/embeddings"

_GARDEN = "transformer/layer_{i}"
_GARDEN_ENCODER = {
    "embeddings/token_embedding": "word_embeddings",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "type_embeddings",
    "embeddings/layer_norm": "embeddings/layer_norm",
    f"{_OURS}/query": f"{_GARDEN}/self_attention/query",
    f"{_OURS}/key": f"{_GARDEN}/self_attention/key",
    f"{_OURS}/value": f"{_GARDEN}/self_attention/value",
    f"{_OURS}/attention_output": f"{_GARDEN}/self_attention/attention_output",
    f"{_OURS}/attention_layer_norm": f"{_GARDEN}/self_attention_layer_norm",
    f"{_OURS}/intermediate": f"{_GARDEN}/intermediate",
    f"{_OURS}/output": f"{_GARDEN}/output",
    f"{_OURS}/output_layer_norm": f"{_GARDEN}/output_layer_norm",
    "pooler": "pooler_transform",
}


def garden_rows(scope: str) -> list[Row]:
    """Returns the table for encoders whose names begin with `scope`."""
    encoder = {ours: scope + theirs for ours, theirs in _GARDEN_ENCODER.items()}
    masked_lm = {ours: f"bert/{theirs}" for ours, theirs in _MASKED_LM.items()}
    return [
        *_rows_of_layers(encoder, per_head=True),
        *_rows_of_layers(masked_lm),
        _mlm_bias("bert/cls/predictions/output_bias/bias"),
    ]


# --- KerasHub --------------------------------------------------------------------

_HUB = "transformer_layer_{i}"
_HUB_LAYERS = {
    "embeddings/token_embedding": "token_embedding",
    "embeddings/position_embedding": "position_embedding",
    "embeddings/segment_embedding": "segment_embedding",
    "embeddings/layer_norm": "embeddings_layer_norm",
    f"{_OURS}/query": f"{_HUB}/self_attention_layer/query",
    f"{_OURS}/key": f"{_HUB}/self_attention_layer/key",
    f"{_OURS}/value": f"{_HUB}/self_attention_layer/value",
    f"{_OURS}/attention_output": f"{_HUB}/self_attention_layer/attention_output",
    f"{_OURS}/attention_layer_norm": f"{_HUB}/self_attention_layer_norm",
    f"{_OURS}/intermediate": f"{_HUB}/feedforward_intermediate_dense",
    f"{_OURS}/output": f"{_HUB}/feedforward_output_dense",
    f"{_OURS}/output_layer_norm": f"{_HUB}/feedforward_layer_norm",
    "pooler": "pooled_dense",
    "mlm/dense": "mlm_head/intermediate_dense",
    "mlm/layer_norm": "mlm_head/intermediate_layer_norm",
    "logits": "logits",
}
KERAS_HUB_ROWS = [
    *_rows_of_layers(_HUB_LAYERS, per_head=True),
    _mlm_bias("mlm_head/output_bias"),
]
