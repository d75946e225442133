# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The weights of a BERT by name: here, and in the checkpoints of others.

Here a weight is named by its place in the Keras model (`variable.path`), such as
`encoder_layer_0/query/kernel`; the layer of a task that gives logits is `logits`. A
format is a table of `Row`s, one for each weight and its name there. In: a table, and
names and shapes of the tensors in a file. Out: a `Match`, which accounts for every
tensor and every weight, and reads or writes them.

Letters: V vocabulary, S positions, T segments, H hidden, I intermediate, C outputs of
a task, N heads, D = H / N.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.modeling.config import BertConfig

Shape = tuple[int, ...]

# All weights there are, {i} for the number of a layer.
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

# What may be missing, each as a whole; all other weights must be there.
OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")


class Row(NamedTuple):
    """A weight here and in a format.

    Attributes:
        ours: Its name here.
        theirs: The names that it may have there. The first is written; where a file
            has several, they are copies of one tensor.
        transposed: Whether the matrix is stored as [out, in].
        heads_axis: The axis that is stored as two, N and D, if any.
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    heads_axis: int | None = None


class Tensors(NamedTuple):
    """The tensors of a file: their shapes by name, and how to read one."""

    shapes: Mapping[str, Shape]
    read: Callable[[str], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Match:
    """Which weight is which tensor of a file.

    Attributes:
        config: The architecture that the shapes follow.
        rows: One for each weight that the file has.
        unused: Names of the tensors that are no weight of a BERT.
    """

    config: BertConfig
    rows: Sequence[Row]
    unused: Sequence[str]

    @property
    def weights(self) -> frozenset[str]:
        """Names, here, of the weights that the file has."""
        return frozenset(row.ours for row in self.rows)

    @property
    def layers(self) -> frozenset[str]:
        """Outermost layers of these weights."""
        return frozenset(layer_of(name) for name in self.weights)

    def read(self, tensors: Tensors, vocabulary_size: int) -> dict[str, np.ndarray]:
        """Reads the weights, float32, in our names and shapes.

        Args:
            tensors: What was matched.
            vocabulary_size: Rows to keep of what has one for each token.

        Raises:
            ValueError: Tensors that must be copies of each other differ.
        """
        weights = {}
        for row in self.rows:
            name, *copies = (name for name in row.theirs if name in tensors.shapes)
            tensor = tensors.read(name)
            for copy in copies:
                if not np.array_equal(tensors.read(copy), tensor):
                    raise ValueError(
                        f"{name} and {copy} are one weight of BERT, but they differ."
                    )
            tensor = np.asarray(tensor, np.float32)
            if row.heads_axis is not None:
                tensor = tensor.reshape(_shape(row.ours, self.config, None))
            tensor = tensor.T if row.transposed else tensor
            if _letters(row.ours)[0] == "V":
                tensor = tensor[:vocabulary_size]
            weights[row.ours] = np.ascontiguousarray(tensor)
        return weights


def layer_of(name: str) -> str:
    """The outermost layer of a weight: `encoder_layer_0`, `pooler`, `mlm`..."""
    return name.split("/")[0]


def expand(rows: Iterable[Row], num_layers: int) -> list[Row]:
    """Makes a row with {i} in it one row for each layer of the encoder."""
    expanded = []
    for row in rows:
        numbers = range(num_layers) if "{i}" in row.ours else range(1)
        for i in numbers:
            theirs = tuple(name.replace("{i}", str(i)) for name in row.theirs)
            ours = row.ours.replace("{i}", str(i))
            expanded.append(row._replace(ours=ours, theirs=theirs))
    return expanded


def match(
    rows: Sequence[Row], shapes: Mapping[str, Shape], config: BertConfig
) -> Match:
    """Accounts for every tensor of a file and every weight of a model.

    Args:
        rows: The table of the format.
        shapes: Of the tensors in the file, by name.
        config: The architecture that the file's config states.

    Raises:
        ValueError: Weights are missing, of another shape than the config says, or
            more than it says.
    """
    expanded = expand(rows, config.num_layers)
    found = [row for row in expanded if any(name in shapes for name in row.theirs)]
    _check_complete(expanded, found)
    classes = None
    for row in found:
        for name in row.theirs:
            if name not in shapes:
                continue
            if layer_of(row.ours) == "logits":
                classes = shapes[name][0 if row.transposed else -1]
            expected = stored_shape(row, config, classes)
            if tuple(shapes[name]) != expected:
                raise ValueError(
                    f"{name} has shape {list(shapes[name])}, and by the config it is "
                    f"{list(expected)}."
                )
    used = {name for row in found for name in row.theirs}
    unused = sorted(shapes.keys() - used)
    _check_number_of_layers(rows, unused, config.num_layers)
    return Match(config, found, unused)


def _check_complete(rows: Sequence[Row], found: Sequence[Row]) -> None:
    present = {layer_of(row.ours) for row in found}
    missing = [
        row.theirs[0]
        for row in rows
        if row not in found
        and (layer_of(row.ours) not in OPTIONAL_LAYERS or layer_of(row.ours) in present)
    ]
    if missing:
        shown = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
        raise ValueError(f"{len(missing)} tensors of a BERT are missing: {shown}")


def _check_number_of_layers(rows, unused: Iterable[str], num_layers: int) -> None:
    patterns = [
        re.escape(name).replace(r"\{i\}", r"\d+")
        for row in rows
        for name in row.theirs
        if "{i}" in name
    ]
    beyond = [name for name in unused if any(re.fullmatch(p, name) for p in patterns)]
    if beyond:
        raise ValueError(
            f"The config says {num_layers} layers, and there are more: {beyond[0]}."
        )


def to_theirs(
    rows: Sequence[Row], weights: Mapping[str, np.ndarray], config: BertConfig
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Brings weights into a format's names and shapes.

    Returns:
        The tensors by name, and the names of the weights that the format has no
        place for.
    """
    tensors, placed = {}, set()
    for row in expand(rows, config.num_layers):
        if row.ours in weights:
            tensor = weights[row.ours]
            shape = stored_shape(row, config, tensor.shape[-1])
            tensor = tensor.T if row.transposed else tensor.reshape(shape)
            tensors[row.theirs[0]] = np.ascontiguousarray(tensor)
            placed.add(row.ours)
    return tensors, sorted(weights.keys() - placed)


def stored_shape(row: Row, config: BertConfig, classes: int | None) -> Shape:
    """The shape in which a format stores a weight."""
    shape = _shape(row.ours, config, classes)
    if row.transposed:
        return shape[::-1]
    if row.heads_axis is not None:
        heads = (config.num_heads, config.hidden_dim // config.num_heads)
        return (*shape[: row.heads_axis], *heads, *shape[row.heads_axis + 1 :])
    return shape


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
