# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other projects: tables of weight names, reading and writing.

Our name of a weight is its `variable.path` in Keras, e.g.
`encoder_layer_0/query/kernel`. The output layer of a task is `logits`. Each format has
a table with one `Row` per weight. `ForeignCheckpoint.from_tensors` matches that table
against the tensors in a file, and `to_foreign` converts weights for writing.

Letters: V vocabulary, S positions, T segments, H hidden, I intermediate, C outputs of
a task, N heads, D = H / N.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.model_directory import Checkpoint
from bert_tf.modeling import BertConfig
from bert_tf.text import SPECIAL_TOKENS, Vocabulary

# --- Tables of weight names ------------------------------------------------------

Shape = tuple[int, ...]

# The shape of every weight. {i} is the number of an encoder layer.
_SHAPES = {
    "embeddings/token_embedding/embeddings": "VH",
    "embeddings/position_embedding/embeddings": "SH",
    "embeddings/segment_embedding/embeddings": "TH",
    "embeddings/layer_norm/gamma": "H",
    "embeddings/layer_norm/beta": "H",
    "encoder_layer_{i}/query/kernel": "HH",
    "encoder_layer_{i}/query/bias": "H",
    "encoder_layer_{i}/key/kernel": "HH",
    "encoder_layer_{i}/key/bias": "H",
    "encoder_layer_{i}/value/kernel": "HH",
    "encoder_layer_{i}/value/bias": "H",
    "encoder_layer_{i}/attention_output/kernel": "HH",
    "encoder_layer_{i}/attention_output/bias": "H",
    "encoder_layer_{i}/attention_layer_norm/gamma": "H",
    "encoder_layer_{i}/attention_layer_norm/beta": "H",
    "encoder_layer_{i}/intermediate/kernel": "HI",
    "encoder_layer_{i}/intermediate/bias": "I",
    "encoder_layer_{i}/output/kernel": "IH",
    "encoder_layer_{i}/output/bias": "H",
    "encoder_layer_{i}/output_layer_norm/gamma": "H",
    "encoder_layer_{i}/output_layer_norm/beta": "H",
    "pooler/kernel": "HH",
    "pooler/bias": "H",
    "mlm/dense/kernel": "HH",
    "mlm/dense/bias": "H",
    "mlm/layer_norm/gamma": "H",
    "mlm/layer_norm/beta": "H",
    "mlm/bias": "V",
    "nsp/kernel": "H2",
    "nsp/bias": "2",
    "logits/kernel": "HC",
    "logits/bias": "C",
}

# A checkpoint may lack each of these layers as a whole. All other weights are required.
_OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")

# Formats that store attention projections per head split this axis into N and D.
_HEADS_AXES = {
    f"encoder_layer_{{i}}/{name}": axis
    for projection in ("query", "key", "value")
    for name, axis in ((f"{projection}/kernel", 1), (f"{projection}/bias", 0))
} | {"encoder_layer_{i}/attention_output/kernel": 0}


class Row(NamedTuple):
    """One weight in a table.

    Attributes:
        ours: Our name.
        theirs: Names in the format. The writer uses the first one. If a file has
            several, they must be copies of the same tensor.
        transposed: Whether the format stores the matrix as [out, in].
        heads_axis: The axis that the format stores as two axes, N and D, if any.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    heads_axis: int | None = None


def rows_of_layers(
    layers: Mapping[str, str],
    suffixes: Mapping[str, Sequence[str]],
    *,
    transposed: bool = False,
    per_head: bool = False,
) -> list[Row]:
    """Expands a table of layers into a table of weights.

    Args:
        layers: The format's name of each layer, by our name.
        suffixes: What the format appends to a layer's name, by the last part of our
            weight name, e.g. `{"kernel": (".weight",), "bias": (".bias",)}`.
        transposed: Whether kernels are stored as [out, in].
        per_head: Whether attention projections are stored per head.
    """
    rows = []
    for name in _SHAPES:
        layer, _, part = name.rpartition("/")
        if layer in layers:
            theirs = tuple(layers[layer] + suffix for suffix in suffixes[part])
            heads_axis = _HEADS_AXES.get(name) if per_head else None
            rows.append(Row(name, theirs, transposed and part == "kernel", heads_axis))
    return rows


# Suffixes of formats that name the parts of a layer as Keras does.
KERAS_SUFFIXES = {
    part: (f"/{part}",) for part in ("kernel", "bias", "gamma", "beta", "embeddings")
}


def outermost_layer(name: str) -> str:
    """Returns e.g. `encoder_layer_0`, `pooler` or `mlm` for a weight name."""
    return name.split("/")[0]


def expand(rows: Iterable[Row], num_layers: int) -> list[Row]:
    """Replaces each row that contains {i} by one row per encoder layer."""
    expanded = []
    for row in rows:
        for i in range(num_layers) if "{i}" in row.ours else range(1):
            theirs = tuple(name.replace("{i}", str(i)) for name in row.theirs)
            ours = row.ours.replace("{i}", str(i))
            expanded.append(row._replace(ours=ours, theirs=theirs))
    return expanded


def _letters(ours: str) -> str:
    return _SHAPES[re.sub(r"^encoder_layer_\d+", "encoder_layer_{i}", ours)]


def _shape(ours: str, config: BertConfig, classes: int | None) -> Shape:
    sizes = {
        "V": config.vocabulary_size,
        "S": config.max_sequence_length,
        "T": config.num_segments,
        "H": config.hidden_dim,
        "I": config.intermediate_dim,
        "C": classes,
        "2": 2,
    }
    return tuple(sizes[letter] for letter in _letters(ours))


def stored_shape(row: Row, config: BertConfig, classes: int | None) -> Shape:
    """Returns the shape that a format stores a weight in."""
    shape = _shape(row.ours, config, classes)
    if row.transposed:
        return shape[::-1]
    if row.heads_axis is not None:
        heads = (config.num_heads, config.hidden_dim // config.num_heads)
        return (*shape[: row.heads_axis], *heads, *shape[row.heads_axis + 1 :])
    return shape


# --- Reading ---------------------------------------------------------------------


class Tensors(NamedTuple):
    """The tensors in a file: their shapes by name, and a function that reads one."""

    shapes: Mapping[str, Shape]
    read: Callable[[str], np.ndarray]


# Embedding tables may be padded to a multiple of 8 (for tensor cores), by up to 128.
_PADDED_TO, _MAX_PADDING = 8, 128

# The optional layers of each kind of model. Task models have a pooler and logits.
_LAYERS_OF_KIND = {"encoder": ("pooler",), "pretrainer": ("pooler", "mlm", "nsp")}


@dataclasses.dataclass(frozen=True, eq=False)
class ForeignCheckpoint(Checkpoint):
    """A checkpoint of another project. `read_weights` reads the tensors on each call.

    Attributes:
        format: Name of the format, e.g. "Hugging Face BertModel".
        notes: Assumptions made while opening it, one sentence each.
        rows: The table, for the weights that the file has.
        unused: Names of the tensors that do not belong to BERT.
        tensors: The tensors in the file.
        stored_config: `architecture` with the vocabulary size of the file, which may
            be padded.
    """

    format: str
    notes: Sequence[str]
    rows: Sequence[Row]
    unused: Sequence[str]
    tensors: Tensors
    stored_config: BertConfig

    @classmethod
    def from_tensors(
        cls,
        path: pathlib.Path,
        *,
        format: str,
        rows: Sequence[Row],
        tensors: Tensors,
        config: BertConfig,
        vocabulary: Vocabulary,
        lowercase: bool,
        head: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> ForeignCheckpoint:
        """Matches every tensor in a file with a weight.

        Args:
            path: The folder.
            format: Name of the format.
            rows: The format's table.
            tensors: The tensors in the file.
            config: The folder's config. Its `vocabulary_size` may be padded.
            vocabulary: The folder's vocabulary.
            lowercase: Whether the vocabulary is uncased.
            head: The head that the folder declares. By default it follows from the
                tensors.
            notes: Assumptions so far.

        Raises:
            ValueError: The tensors contradict the config or the vocabulary.
        """
        notes = [*notes, *_check_vocabulary_size(path, config, vocabulary)]
        try:
            found, unused = _match(rows, tensors.shapes, config)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        present = {outermost_layer(row.ours) for row in found}
        if head is None:
            head = {"kind": "pretrainer" if present & {"mlm", "nsp"} else "encoder"}
        layers = _LAYERS_OF_KIND.get(head["kind"], ("pooler", "logits"))
        missing = [layer for layer in layers if layer not in present]
        if missing:
            head = {**head, "newly_initialized": missing}
        return cls(
            path=path,
            architecture=dataclasses.replace(config, vocabulary_size=vocabulary.size),
            vocabulary=vocabulary,
            lowercase=lowercase,
            head=head,
            format=format,
            notes=notes,
            rows=found,
            unused=unused,
            tensors=tensors,
            stored_config=config,
        )

    def read_weights(self) -> dict[str, np.ndarray]:
        return {row.ours: self._read(row) for row in self.rows}

    def _read(self, row: Row) -> np.ndarray:
        name, *copies = (name for name in row.theirs if name in self.tensors.shapes)
        tensor = self.tensors.read(name)
        for copy in copies:
            if not np.array_equal(self.tensors.read(copy), tensor):
                raise ValueError(
                    f"{self.path}: {name} and {copy} are the same weight in BERT and "
                    "must be equal, but they differ."
                )
        tensor = np.asarray(tensor, np.float32)
        if row.heads_axis is not None:
            tensor = tensor.reshape(_shape(row.ours, self.stored_config, None))
        tensor = tensor.T if row.transposed else tensor
        if _letters(row.ours)[0] == "V":
            tensor = tensor[: self.vocabulary.size]
        return np.ascontiguousarray(tensor)

    def describe(self) -> list[str]:
        lines = [
            *super().describe(),
            f"{len(self.rows)} weights found.",
            *self.notes,
        ]
        if self.unused:
            lines.append(f"Unused tensors: {', '.join(self.unused)}")
        return lines


def _check_vocabulary_size(
    path: pathlib.Path, config: BertConfig, vocabulary: Vocabulary
) -> list[str]:
    """Returns a note if the config's size is a padded one; raises if it is wrong."""
    padding = config.vocabulary_size - vocabulary.size
    if not padding:
        return []
    if config.vocabulary_size % _PADDED_TO or not 0 < padding < _MAX_PADDING:
        raise ValueError(
            f"{path}: the config has vocabulary size {config.vocabulary_size}, but the "
            f"vocabulary has {vocabulary.size} tokens."
        )
    return [
        f"The last {padding} of the {config.vocabulary_size} rows of the token "
        "embedding are padding and were dropped."
    ]


def _match(
    rows: Sequence[Row], shapes: Mapping[str, Shape], config: BertConfig
) -> tuple[list[Row], list[str]]:
    """Returns the rows that a file has, and the names of its other tensors.

    Raises:
        ValueError: Weights are missing, have another shape than the config implies, or
            belong to more layers than the config has.
    """
    expanded = expand(rows, config.num_layers)
    found = [row for row in expanded if any(name in shapes for name in row.theirs)]
    _check_complete(expanded, found)
    for row in found:
        for name in row.theirs:
            if name not in shapes:
                continue
            shape = tuple(shapes[name])
            # Only the weights of `logits` have C, as their last axis in our layout.
            classes = shape[0 if row.transposed else -1] if shape else None
            expected = stored_shape(row, config, classes)
            if shape != expected:
                raise ValueError(
                    f"{name} has shape {list(shape)}, but the config implies "
                    f"{list(expected)}."
                )
    unused = sorted(shapes.keys() - {name for row in found for name in row.theirs})
    _check_number_of_layers(rows, unused, config.num_layers)
    return found, unused


def _check_complete(rows: Sequence[Row], found: Sequence[Row]) -> None:
    present = {outermost_layer(row.ours) for row in found}
    optional = {layer for layer in _OPTIONAL_LAYERS if layer not in present}
    missing = [
        row.theirs[0]
        for row in rows
        if row not in found and outermost_layer(row.ours) not in optional
    ]
    if missing:
        shown = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
        raise ValueError(f"Weights of BERT are missing ({len(missing)}): {shown}")


def _check_number_of_layers(
    rows: Sequence[Row], unused: Iterable[str], num_layers: int
) -> None:
    patterns = [
        re.escape(name).replace(r"\{i\}", r"\d+")
        for row in rows
        for name in row.theirs
        if "{i}" in name
    ]
    extra = [name for name in unused if any(re.fullmatch(p, name) for p in patterns)]
    if extra:
        raise ValueError(
            f"The config has {num_layers} layers, but the file has more: {extra[0]}."
        )


def guess_lowercase(vocabulary: Vocabulary) -> tuple[bool, str]:
    """Decides whether a vocabulary is uncased, for folders that do not declare it.

    Returns:
        True if no token has a capital letter, and a note that names the assumption.
    """
    words = set(vocabulary.tokens) - set(SPECIAL_TOKENS)
    # [unused0] and the like; the Chinese vocabulary has <S>.
    lowercase = all(w == w.lower() or w.startswith(("[", "<")) for w in words)
    if lowercase:
        return True, "Assumed to be uncased: the vocabulary has no capital letters."
    return False, "Assumed to be cased: the vocabulary has capital letters."


# --- Writing ---------------------------------------------------------------------


def to_foreign(
    rows: Sequence[Row], weights: Mapping[str, np.ndarray], config: BertConfig
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Converts weights to the names and shapes of a format.

    Returns:
        The tensors by name, and our names of the weights that the format cannot hold.
    """
    tensors, written = {}, set()
    for row in expand(rows, config.num_layers):
        if row.ours in weights:
            tensor = weights[row.ours]
            shape = stored_shape(row, config, tensor.shape[-1])
            tensor = tensor.T if row.transposed else tensor.reshape(shape)
            tensors[row.theirs[0]] = np.ascontiguousarray(tensor)
            written.add(row.ours)
    return tensors, sorted(weights.keys() - written)
