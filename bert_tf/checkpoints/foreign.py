# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other projects: tables of weight names, reading and writing.

Our name of a weight is its `variable.path` in Keras, e.g.
`encoder_layer_0/query/kernel`. The output layer of a task is `logits`. Each format has
a table with one `Row` per weight. `ForeignCheckpoint.from_tensors` matches that table
against the tensors in a file, and `to_foreign` converts weights for writing.

Shapes are strings of letters: V vocabulary, S positions, T segments, H hidden,
I intermediate, C outputs of a task, N heads, D = H / N.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf import heads
from bert_tf.checkpoints.checkpoint import Checkpoint, outermost_layer
from bert_tf.modeling import BertConfig
from bert_tf.text import GOOGLE_RULES, TokenizerRules, Vocabulary, guess_lowercase

# --- Tables of weight names ------------------------------------------------------

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

# A checkpoint may lack each of these layers as a whole. All other weights are required.
_OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")


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


def mlm_bias(*theirs: str) -> Row:
    """Returns the row of the masked-LM head's output bias."""
    return Row("mlm/bias", theirs, "V", "V")


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
    for layer, their_layer in layers.items():
        name = layer.rpartition("/")[2]
        for part, shape in _weights_of_layer(name).items():
            theirs = tuple(their_layer + suffix for suffix in suffixes[part])
            is_transposed = transposed and part == "kernel"
            stored = shape[::-1] if is_transposed else shape
            if per_head:
                stored = _PER_HEAD.get(f"{name}/{part}", shape)
            rows.append(Row(f"{layer}/{part}", theirs, shape, stored, is_transposed))
    return rows


def _weights_of_layer(name: str) -> dict[str, str]:
    shape = _SHAPES.get(name, "HH")
    if name.endswith("_embedding"):
        return {"embeddings": shape}
    if name.endswith("layer_norm"):
        return {"gamma": "H", "beta": "H"}
    return {"kernel": shape, "bias": shape[-1]}


# Suffixes of formats that name the parts of a layer as Keras does.
KERAS_SUFFIXES = {
    part: (f"/{part}",) for part in ("kernel", "bias", "gamma", "beta", "embeddings")
}


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


# --- Reading ---------------------------------------------------------------------


class Tensors(NamedTuple):
    """The tensors in a file: their shapes by name, and a function that reads one."""

    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], np.ndarray]


_TOKEN_EMBEDDING = "embeddings/token_embedding/embeddings"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ForeignCheckpoint(Checkpoint):
    """A checkpoint of another project. `read_weights` reads the tensors on each call.

    Attributes:
        format: Name of the format, e.g. "Hugging Face BertModel".
        tensors: The tensors in the file.
        rows: The table, for the weights that the file has.
        unused: Names of the tensors that the model does not use.
        notes: Assumptions made while opening it, one sentence each.
    """

    format: str
    tensors: Tensors
    rows: Sequence[Row]
    unused: Sequence[str]
    notes: Sequence[str]

    @classmethod
    def from_tensors(
        cls,
        path: pathlib.Path,
        format: str,
        rows: Sequence[Row],
        tensors: Tensors,
        *,
        config: BertConfig,
        vocabulary: Vocabulary,
        lowercase: bool | None,
        kind: str | None = None,
        doubt: str = "",
        declared: Mapping[str, Any] | None = None,
        head: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        rules: TokenizerRules = GOOGLE_RULES,
        original_tokenizer: Any = None,
        notes: Sequence[str] = (),
        own_names: bool = False,
    ) -> ForeignCheckpoint:
        """Matches every tensor in a file with a weight.

        Args:
            path: The folder.
            format: Name of the format.
            rows: The format's table, for this kind of head.
            tensors: The tensors in the file; none if a training did not write it yet.
            config: The folder's config. Its `vocabulary_size` may be that of a padded
                embedding.
            vocabulary: The folder's vocabulary.
            lowercase: Whether the vocabulary is uncased. None: `guess_lowercase`.
            kind: The kind of the head, declared by the folder or chosen by the user.
                None for an encoder or a pre-trained model, depending on the tensors.
            doubt: Why the folder's head is unclear, a sentence.
            declared: Arguments of `heads.Head.declare`.
            head: The whole head, if the folder declares it.
            options: The `options` of `Checkpoint`.
            rules: The rules of the tokenizer.
            original_tokenizer: The `original_tokenizer` of `Checkpoint`.
            notes: Assumptions made by the caller.
            own_names: Whether the tensors that are not in the table have our names.

        Raises:
            ValueError: The tensors contradict the config or the vocabulary.
        """
        notes = list(notes)
        if lowercase is None:
            lowercase, note = guess_lowercase(vocabulary)
            notes.append(note)
        try:
            found, unused = [], []
            if shapes := tensors.shapes:
                found, unused = _match(rows, shapes, config, vocabulary)
                notes += _check_vocabulary_size(found, shapes, config, vocabulary)
            bias = [row.theirs[0] for row in found if row.ours == "logits/bias"]
            outputs = tensors.shapes[bias[0]][0] if bias else None
            kind_class = heads.known_head(kind or "encoder")
            if not head and not issubclass(kind_class, heads.EncoderHead):
                head = kind_class.declare(outputs, **(declared or {}))
            if head:
                heads.known_head(head["kind"]).check_outputs(head, outputs)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if own_names:
            found += [Row(name, (name,), "", "") for name in unused]
            unused = []
        present = {outermost_layer(row.ours) for row in found}
        shown = ", ".join(unused[:5]) + ", ..." * (len(unused) > 5)
        dropped = [f"Tensors that are not used: {shown}."] if unused else []
        # Further tensors inside the encoder are no head.
        names = [name for name in rows[0].theirs if name in tensors.shapes]
        encoder = re.match(r"\w*", "".join(names[:1]))[0]
        is_open = head is None and kind is None
        if is_open and (doubt or not all(n.startswith(encoder) for n in unused)):
            doubt = doubt or "It does not declare a head for all its weights."
            dropped = [" ".join([doubt, *dropped])]
            head = {"kind": "encoder", "undeclared": dropped[0]}
        elif head is None:
            is_pretrainer = kind != "encoder" and present & {"mlm", "nsp"}
            head = {"kind": "pretrainer" if is_pretrainer else "encoder"}
        optional = heads.known_head(head["kind"]).layers
        if not found or own_names:
            optional = ()
        if missing := [layer for layer in optional if layer not in present]:
            head = {**head, "newly_initialized": missing}
        return cls(
            path=path,
            architecture=dataclasses.replace(config, vocabulary_size=vocabulary.size),
            vocabulary=vocabulary,
            lowercase=lowercase,
            head=head,
            options=options or {},
            rules=rules,
            original_tokenizer=original_tokenizer,
            format=format,
            tensors=tensors,
            rows=found,
            unused=unused,
            notes=notes + dropped,
        )

    def read_weights(self) -> dict[str, np.ndarray]:
        if not self.tensors.shapes:
            raise ValueError(
                f"{self.path} has no weights: its training did not reach the first "
                "checkpoint. Rerun the same command to resume it."
            )
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
        if tensor.dtype.kind in "biu":
            raise ValueError(
                f"{self.path}: {name} must have floating-point values. Received: "
                f"{tensor.dtype}. Quantized checkpoints are not supported."
            )
        tensor = np.asarray(tensor, np.float32)
        if not np.isfinite(tensor).all():
            raise ValueError(f"{self.path}: {name} contains NaN or infinite values.")
        if "D" in row.stored:
            tensor = tensor.reshape(to_shape(row.shape, self.architecture))
        if row.transposed:
            tensor = tensor.T
        if row.shape.startswith("V"):
            tensor = tensor[: self.vocabulary.size]
        return np.ascontiguousarray(tensor)

    def describe(self) -> list[str]:
        lines = super().describe()
        return [*lines, f"{len(self.rows)} weights found."]


def _check_vocabulary_size(
    rows: Sequence[Row],
    shapes: Mapping[str, tuple[int, ...]],
    config: BertConfig,
    vocabulary: Vocabulary,
) -> list[str]:
    """Returns a note if the token embedding has more rows than the vocabulary.

    Raises:
        ValueError: It has fewer, or the config has a third size.
    """
    names = next(row.theirs for row in rows if row.ours == _TOKEN_EMBEDDING)
    found = next(shapes[name][0] for name in names if name in shapes)
    size, declared = vocabulary.size, config.vocabulary_size
    if found < size or declared not in (found, size):
        raise ValueError(
            f"the config has vocabulary size {declared}, the token embedding {found} "
            f"rows, but the vocabulary has {size} tokens. The embedding must have at "
            "least as many rows, and the config one of both sizes."
        )
    if found == size:
        return []
    return [
        f"The last {found - size} of the {found} rows of the token embedding were "
        "dropped: the vocabulary has no tokens with these ids."
    ]


def _match(
    rows: Sequence[Row],
    shapes: Mapping[str, tuple[int, ...]],
    config: BertConfig,
    vocabulary: Vocabulary,
) -> tuple[list[Row], list[str]]:
    """Returns the rows that a file has, and the names of its other tensors.

    Tensors with a row per token may have any number of rows.

    Raises:
        ValueError: Weights are missing, have another shape than the config implies, or
            belong to more layers than the config has.
    """
    if config.num_layers > len(shapes):
        raise ValueError(
            f"The config has {config.num_layers} layers, but the file has only "
            f"{len(shapes)} tensors."
        )
    expanded = expand(rows, config.num_layers)
    found = [row for row in expanded if any(name in shapes for name in row.theirs)]
    absent = set(_OPTIONAL_LAYERS) - {outermost_layer(row.ours) for row in found}
    missing = [
        row.theirs[0]
        for row in expanded
        if row not in found and outermost_layer(row.ours) not in absent
    ]
    if missing:
        shown = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
        others = sorted(shapes.keys() - _names(found))[:3]
        raise ValueError(
            f"Weights of BERT are missing ({len(missing)}): {shown}. "
            f"Other tensors in the file: {', '.join(others) or 'none'}"
        )
    for row in found:
        for name in shapes.keys() & set(row.theirs):
            shape = tuple(shapes[name])
            # Only the weights of `logits` have C, as their last axis in our layout.
            classes = shape[0 if row.transposed else -1] if shape else None
            expected = to_shape(row.stored, config, classes)
            if row.stored.startswith("V"):
                # `_check_vocabulary_size` checks the token embedding.
                least = 0 if row.ours == _TOKEN_EMBEDDING else vocabulary.size
                expected = (max([least, *shape[:1]]), *expected[1:])
            if shape != expected:
                raise ValueError(
                    f"{name} has shape {list(shape)}, but the config implies "
                    f"{list(expected)}."
                )
    unused = sorted(shapes.keys() - _names(found))
    further = _names(expand(rows, config.num_layers + 1)).intersection(unused)
    if further:
        raise ValueError(
            f"The config has {config.num_layers} layers, but the file has more: "
            f"{min(further)}."
        )
    return found, unused


def _names(rows: Iterable[Row]) -> set[str]:
    return {name for row in rows for name in row.theirs}


# --- Writing ---------------------------------------------------------------------


def to_foreign(
    rows: Sequence[Row], weights: Mapping[str, np.ndarray], config: BertConfig
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Converts weights to the names and shapes of a format.

    Returns:
        The tensors by name, and our names of the weights that the format cannot hold.
    """
    tensors, left_out = {}, set(weights)
    for row in expand(rows, config.num_layers):
        if row.ours in weights:
            tensor = weights[row.ours]
            if "D" in row.stored:
                tensor = tensor.reshape(to_shape(row.stored, config))
            tensor = tensor.T if row.transposed else tensor
            tensors[row.theirs[0]] = np.ascontiguousarray(tensor)
            left_out.remove(row.ours)
    return tensors, sorted(left_out)
