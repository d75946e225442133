# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights in files of all formats: tables of names and shapes, reading, writing.

Our name of a weight is its `variable.path` in Keras, e.g.
`encoder_layer_0/query/kernel`. The output layer of a task is `logits`. Each format has
a table of `Row`s, `open_tensors` matches it against the tensors in a file, and
`to_tensors` converts weights for writing. Files of safetensors are read and written
here, too.

Shapes are strings of letters: V vocabulary, S positions, T segments, H hidden,
I intermediate, C outputs of a task, N heads, D = H / N.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from absl import logging

from bert_tf import heads, storage
from bert_tf.checkpoints.checkpoint import (
    Checkpoint,
    outermost_layer,
    read_json_object,
)
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

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
KERAS_SUFFIXES = {
    part: f"/{part}" for part in ("kernel", "bias", "gamma", "beta", "embeddings")
}
TORCH_SUFFIXES = dict.fromkeys(("kernel", "embeddings", "gamma"), ".weight")
TORCH_SUFFIXES |= dict.fromkeys(("bias", "beta"), ".bias")


class Row(NamedTuple):
    """One weight in a table.

    Attributes:
        ours: Our name. `{i}` is the number of an encoder layer.
        theirs: Names in the format. The writer uses the first one. If a file has
            several, they must be copies of the same tensor.
        shape: Shape in the format. Ours has H in the place of ND.
        transposed: Whether the format stores a matrix as [out, in].
    """

    ours: str
    theirs: tuple[str, ...]
    shape: str
    transposed: bool = False


def rows_of_layers(
    layers: Mapping[str, str],
    suffixes: Mapping[str, str] = KERAS_SUFFIXES,
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
            if per_head:
                shape = _PER_HEAD.get(f"{name}/{part}", shape)
            is_transposed = transposed and part == "kernel"
            shape = shape[::-1] if is_transposed else shape
            rows.append(Row(f"{layer}/{part}", theirs, shape, is_transposed))
    return rows


def _expand(rows: Iterable[Row], num_layers: int) -> list[Row]:
    """Replaces each row that contains {i} by one row per encoder layer."""
    return [
        row._replace(
            ours=row.ours.replace("{i}", str(i)),
            theirs=tuple(name.replace("{i}", str(i)) for name in row.theirs),
        )
        for row in rows
        for i in range(num_layers if "{i}" in row.ours else 1)
    ]


# The fields of `BertConfig` that are the letters of shapes.
_SIZES = {
    "V": "vocabulary_size",
    "S": "max_sequence_length",
    "T": "num_segments",
    "H": "hidden_dim",
    "I": "intermediate_dim",
    "N": "num_heads",
}


def _to_shape(
    letters: str, config: BertConfig, classes: int | None = None
) -> tuple[int, ...]:
    """Converts letters to sizes. `classes` is the size of C."""
    sizes = {letter: getattr(config, field) for letter, field in _SIZES.items()}
    sizes |= {"D": config.hidden_dim // config.num_heads, "C": classes, "2": 2}
    return tuple(sizes[letter] for letter in letters)


# A checkpoint may lack each of these layers as a whole. All other weights are required.
_OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")

# --- Reading ---------------------------------------------------------------------


class Tensor(NamedTuple):
    """A tensor in a file: its shape, and a function that reads it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def find_prefix(path: Any, names: Iterable[str], anchor: str) -> str:
    """Returns what precedes `anchor`, a name that each encoder has, in one of `names`.

    Raises:
        ValueError: Several names end with `anchor`. The message names `path`.
    """
    anchors = [
        n for n in names if n == anchor or n.endswith((f".{anchor}", f"/{anchor}"))
    ]
    if len(anchors) > 1:
        raise ValueError(f"{path} has several encoders: {', '.join(sorted(anchors))}")
    return "".join(anchors).removesuffix(anchor)


def open_tensors(
    path: pathlib.Path,
    rows: Sequence[Row],
    tensors: Mapping[str, Tensor],
    *,
    architecture: BertConfig,
    vocabulary: Vocabulary,
    kind: str | None = None,
    doubt: str = "",
    declared: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    own_names: bool = False,
    **attributes: Any,
) -> Checkpoint:
    """Returns a checkpoint, after matching every tensor in its file with a weight.

    Logs a warning about what is dropped.

    Args:
        path: The folder.
        rows: The format's table, for this kind of head.
        tensors: The tensors in the file; none if a training did not write it yet.
        architecture: That of the folder's config. Its `vocabulary_size` may be that of
            a padded embedding.
        vocabulary: The folder's vocabulary.
        kind: The kind of the head, declared by the folder or chosen by the user. None
            for an encoder or a pre-trained model, depending on the tensors.
        doubt: Why the folder's head is unclear, a sentence.
        declared: Arguments of `heads.Head.declare`.
        head: The whole head, if the folder declares it.
        own_names: Whether the tensors that are not in the table have our names.
        **attributes: Other attributes of the checkpoint.

    Raises:
        ValueError: The tensors contradict the config or the vocabulary.
    """
    size = vocabulary.size
    anchors = [name for name in rows[0].theirs if name in tensors]
    total = tensors[anchors[0]].shape[0] if anchors else size
    try:
        if tensors and (
            total < size or architecture.vocabulary_size not in (total, size)
        ):
            raise ValueError(
                f"the config has vocabulary size {architecture.vocabulary_size}, the "
                f"token embedding {total} rows, but the vocabulary has {size} tokens. "
                "The embedding must have at least as many rows, and the config one of "
                "both sizes."
            )
        config = dataclasses.replace(architecture, vocabulary_size=total)
        found, outputs = _match(rows, tensors, config) if tensors else ([], None)
        if not head and kind not in (None, "encoder", "pretrainer"):
            head = heads.known_head(kind).declare(outputs, **(declared or {}))
        if head:
            heads.known_head(head["kind"]).check_outputs(head, outputs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if total > size:
        text = (
            "%s: The last %d of the %d rows of the token embedding were dropped: the "
        )
        text += "vocabulary has no tokens with these ids."
        logging.warning(text, path, total - size, total)
    unused = sorted(tensors.keys() - _names(found))
    if own_names:
        found += [Row(name, (name,), "") for name in unused]
        unused = []
    dropped = f"Tensors that are not used: {_shown(unused)}." if unused else ""
    layers = {outermost_layer(row.ours) for row in found}
    if head is None and kind is None:
        # Further tensors inside the encoder are no head.
        encoder = re.match(r"\w*", "".join(anchors[:1]))[0]
        if not doubt and not all(name.startswith(encoder) for name in unused):
            doubt = "It does not declare a head for all its weights."
        if doubt:
            dropped = f"{doubt} {dropped}".strip()
            head = {"kind": "encoder", "undeclared": dropped}
    if dropped:
        logging.warning("%s: %s", path, dropped)
    if head is None:
        is_pretrainer = kind != "encoder" and layers & {"mlm", "nsp"}
        head = {"kind": "pretrainer" if is_pretrainer else "encoder"}
    if found and not own_names:
        optional = heads.known_head(head["kind"]).layers
        if missing := [layer for layer in optional if layer not in layers]:
            head = {**head, "newly_initialized": missing}
    return Checkpoint(
        path=path,
        architecture=dataclasses.replace(architecture, vocabulary_size=size),
        vocabulary=vocabulary,
        head=head,
        weights={row.ours: _reader(row, tensors, architecture, size) for row in found},
        **{"options": {}, **attributes},
    )


def _match(
    rows: Sequence[Row], tensors: Mapping[str, Tensor], config: BertConfig
) -> tuple[list[Row], int | None]:
    """Returns the rows that a file has, and the size of the layer `logits`.

    Raises:
        ValueError: Weights are missing, have another shape than the config implies, or
            belong to more layers than the config has.
    """
    # The file has at least one tensor per layer.
    expanded = _expand(rows, min(config.num_layers, len(tensors)))
    found = [row for row in expanded if any(name in tensors for name in row.theirs)]
    absent = set(_OPTIONAL_LAYERS) - {outermost_layer(row.ours) for row in found}
    missing = [
        row.theirs[0]
        for row in expanded
        if row not in found and outermost_layer(row.ours) not in absent
    ]
    others = sorted(tensors.keys() - _names(found))
    if missing:
        raise ValueError(
            f"Weights of BERT are missing ({len(missing)}): {_shown(missing)}. "
            f"Other tensors in the file: {_shown(others) or 'none'}"
        )
    further = _names(_expand(rows, config.num_layers + 1)).intersection(others)
    if further:
        raise ValueError(
            f"The config has {config.num_layers} layers, but the file has more: "
            f"{min(further)}."
        )
    by_name = {name: row for row in found for name in row.theirs if name in tensors}
    biases = (name for name, row in by_name.items() if row.ours == "logits/bias")
    outputs = next((tensors[name].shape[0] for name in biases), None)
    for name, row in by_name.items():
        shape, expected = tensors[name].shape, _to_shape(row.shape, config, outputs)
        if shape != expected:
            raise ValueError(
                f"{name} has shape {list(shape)}, but the config implies "
                f"{list(expected)}."
            )
    return found, outputs


def _reader(
    row: Row, tensors: Mapping[str, Tensor], config: BertConfig, vocabulary_size: int
) -> Callable[[], np.ndarray]:
    """Returns a function that reads a weight in our shape, as float32."""
    name, *copies = (name for name in row.theirs if name in tensors)

    def read() -> np.ndarray:
        tensor = tensors[name].read()
        for copy in copies:
            if not np.array_equal(tensors[copy].read(), tensor):
                raise ValueError(
                    f"{name} and {copy} are the same weight in BERT and must be equal, "
                    "but they differ."
                )
        tensor = to_float(name, tensor)
        if "D" in row.shape:
            tensor = tensor.reshape(_to_shape(row.shape.replace("ND", "H"), config))
        tensor = tensor.T if row.transposed else tensor
        if row.shape.startswith("V"):
            tensor = tensor[:vocabulary_size]
        return np.ascontiguousarray(tensor)

    return read


def to_float(name: str, tensor: np.ndarray) -> np.ndarray:
    """Returns a tensor as float32.

    Raises:
        ValueError: It has integers, NaN or infinite values.
    """
    if tensor.dtype.kind in "biu":
        raise ValueError(_quantized(name, tensor.dtype))
    tensor = np.asarray(tensor, np.float32)
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} contains NaN or infinite values.")
    return tensor


def _quantized(name: str, dtype: Any) -> str:
    return (
        f"{name} must have floats of at least 16 bits. Received: {dtype}. Quantized "
        "checkpoints are not supported."
    )


def _names(rows: Iterable[Row]) -> set[str]:
    return {name for row in rows for name in row.theirs}


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


# --- Writing ---------------------------------------------------------------------


def to_tensors(
    rows: Sequence[Row], weights: Mapping[str, np.ndarray], config: BertConfig
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Converts weights to the names and shapes of a format.

    Returns:
        The tensors by name, and our names of the weights that the format cannot hold.
    """
    tensors, left_out = {}, set(weights)
    for row in _expand(rows, config.num_layers):
        if row.ours in weights:
            tensor = weights[row.ours]
            if "D" in row.shape:
                tensor = tensor.reshape(_to_shape(row.shape, config))
            tensor = tensor.T if row.transposed else tensor
            tensors[row.theirs[0]] = np.ascontiguousarray(tensor)
            left_out.remove(row.ours)
    return tensors, sorted(left_out)


# --- safetensors -----------------------------------------------------------------

WEIGHTS = "model.safetensors"
_INDEX = f"{WEIGHTS}.index.json"


def read_safetensors(
    path: pathlib.Path, *, may_lack_weights: bool = False
) -> dict[str, Tensor]:
    """Opens the safetensors of a folder.

    Args:
        path: The folder.
        may_lack_weights: Whether a folder without weights has no tensors. By default it
            raises ValueError.
    """
    files = [WEIGHTS]
    if (path / _INDEX).is_file():
        index = read_json_object(path / _INDEX, weight_map=dict)
        files = sorted({str(file) for file in (index.get("weight_map") or {}).values()})
        if not files or any("/" in file for file in files):
            raise ValueError(
                f"{path / _INDEX}: weight_map must map tensors to files in the same "
                f"folder. Received: {files or index!r:.80}"
            )
    elif not (path / WEIGHTS).is_file():
        if may_lack_weights:
            return {}
        raise ValueError(_why_no_weights(path))
    tensors = {}
    for file in files:
        try:
            opened = safetensors.safe_open(path / file, framework="np")
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{path / file} is missing or damaged: {error}") from error
        for name in opened.keys():  # noqa: SIM118 (not a mapping)
            tensor = opened.get_slice(name)
            if re.match(r"F[468]_", tensor.get_dtype()):  # NumPy has no such type.
                raise ValueError(_quantized(name, tensor.get_dtype()))
            shape = tuple(tensor.get_shape())
            tensors[name] = Tensor(shape, functools.partial(opened.get_tensor, name))
    return tensors


# Files with weights that are not read, and arguments to read them in transformers 4.
_OTHER_WEIGHTS = {
    "pytorch_model*.bin": "",
    "tf_model.h5": ", from_tf=True",
    "flax_model.msgpack": ", from_flax=True",
}


def has_weights(path: pathlib.Path) -> bool:
    """Returns whether a folder has weights of transformers, readable ones or not."""
    patterns = ("*.safetensors", _INDEX, *_OTHER_WEIGHTS)
    return any(file for pattern in patterns for file in path.glob(pattern))


def _why_no_weights(path: pathlib.Path) -> str:
    for pattern, option in _OTHER_WEIGHTS.items():
        for file in sorted(path.glob(pattern))[:1]:
            version = " 4" if option else ""
            return (
                f"{path} has its weights only in {file.name}. If you trust it, because "
                f"a pickle can run arbitrary code, convert it in transformers{version}"
                ": python -c 'from transformers import AutoModelForPreTraining as M; "
                f'M.from_pretrained("{path}"{option}).save_pretrained("safe")\' and '
                "copy the vocabulary into that folder. For a model with the head of a "
                "task, use its class instead of AutoModelForPreTraining."
            )
    others = ", ".join(sorted(file.name for file in path.glob("*.safetensors")))
    return f"{path} has no {WEIGHTS}." + (f" It has {others}." if others else "")


def write_safetensors(path: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a file of safetensors atomically."""
    tensors = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    # safetensors' own writer maps the file into memory: a full disk would crash Python.
    with storage.atomic_write(str(path)) as file:
        file.write(data)
