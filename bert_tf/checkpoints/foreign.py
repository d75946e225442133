# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights in files: matching with the tables of `names`, reading and writing.

`open_tensors` matches a table against the tensors in a file of any format, and
`to_tensors` converts weights for writing. Files of safetensors are read and written
here, too.
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

from bert_tf import heads, storage
from bert_tf.checkpoints.checkpoint import (
    TOKEN_EMBEDDING,
    Checkpoint,
    outermost_layer,
    read_json_object,
)
from bert_tf.checkpoints.names import Row, expand, to_shape
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary, guess_lowercase

# A checkpoint may lack each of these layers as a whole. All other weights are required.
_OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")

# --- Reading ---------------------------------------------------------------------


class Tensor(NamedTuple):
    """A tensor in a file: its shape, and a function that reads it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


def open_tensors(
    path: pathlib.Path,
    rows: Sequence[Row],
    tensors: Mapping[str, Tensor],
    *,
    architecture: BertConfig,
    vocabulary: Vocabulary,
    lowercase: bool | None = None,
    kind: str | None = None,
    doubt: str = "",
    declared: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    own_names: bool = False,
    notes: Sequence[str] = (),
    **attributes: Any,
) -> Checkpoint:
    """Returns a checkpoint, after matching every tensor in its file with a weight.

    Args:
        path: The folder.
        rows: The format's table, for this kind of head.
        tensors: The tensors in the file; none if a training did not write it yet.
        architecture: That of the folder's config. Its `vocabulary_size` may be that of
            a padded embedding.
        vocabulary: The folder's vocabulary.
        lowercase: Whether the vocabulary is uncased. None: `guess_lowercase`.
        kind: The kind of the head, declared by the folder or chosen by the user. None
            for an encoder or a pre-trained model, depending on the tensors.
        doubt: Why the folder's head is unclear, a sentence.
        declared: Arguments of `heads.Head.declare`.
        head: The whole head, if the folder declares it.
        own_names: Whether the tensors that are not in the table have our names.
        notes: Assumptions made by the caller.
        **attributes: Other attributes of the checkpoint.

    Raises:
        ValueError: The tensors contradict the config or the vocabulary.
    """
    notes = list(notes)
    if lowercase is None:
        lowercase, note = guess_lowercase(vocabulary)
        notes.append(note)
    try:
        found = _match(rows, tensors, architecture, vocabulary) if tensors else []
        bias = [row.theirs[0] for row in found if row.ours == "logits/bias"]
        outputs = tensors[bias[0]].shape[0] if bias else None
        kind_class = heads.known_head(kind or "encoder")
        if not head and not issubclass(kind_class, heads.EncoderHead):
            head = kind_class.declare(outputs, **(declared or {}))
        if head:
            heads.known_head(head["kind"]).check_outputs(head, outputs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if rest := _padding_rows(found, tensors, vocabulary):
        notes.append(
            f"The last {rest} of the {vocabulary.size + rest} rows of the token "
            "embedding were dropped: the vocabulary has no tokens with these ids."
        )
    unused = sorted(tensors.keys() - _names(found))
    if own_names:
        found += [Row(name, (name,), "", "") for name in unused]
        unused = []
    layers = {outermost_layer(row.ours) for row in found}
    dropped = f"Tensors that are not used: {_shown(unused)}." if unused else ""
    if head is None and kind is None:
        # Further tensors inside the encoder are no head.
        anchors = [name for name in rows[0].theirs if name in tensors]
        encoder = re.match(r"\w*", "".join(anchors[:1]))[0]
        if not doubt and not all(name.startswith(encoder) for name in unused):
            doubt = "It does not declare a head for all its weights."
        if doubt:
            dropped = f"{doubt} {dropped}".strip()
            head = {"kind": "encoder", "undeclared": dropped}
    if head is None:
        is_pretrainer = kind != "encoder" and layers & {"mlm", "nsp"}
        head = {"kind": "pretrainer" if is_pretrainer else "encoder"}
    if found and not own_names:
        optional = heads.known_head(head["kind"]).layers
        if missing := [layer for layer in optional if layer not in layers]:
            head = {**head, "newly_initialized": missing}
    size = vocabulary.size
    return Checkpoint(
        path=path,
        architecture=dataclasses.replace(architecture, vocabulary_size=size),
        vocabulary=vocabulary,
        lowercase=lowercase,
        head=head,
        weights={row.ours: _reader(row, tensors, architecture, size) for row in found},
        notes=[*notes, dropped] if dropped else notes,
        **{"options": {}, **attributes},
    )


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
        if "D" in row.stored:
            tensor = tensor.reshape(to_shape(row.shape, config))
        if row.transposed:
            tensor = tensor.T
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
        raise ValueError(
            f"{name} must have floating-point values. Received: {tensor.dtype}. "
            "Quantized checkpoints are not supported."
        )
    tensor = np.asarray(tensor, np.float32)
    if not np.isfinite(tensor).all():
        raise ValueError(f"{name} contains NaN or infinite values.")
    return tensor


def _match(
    rows: Sequence[Row],
    tensors: Mapping[str, Tensor],
    config: BertConfig,
    vocabulary: Vocabulary,
) -> list[Row]:
    """Returns the rows that a file has.

    Tensors with a row per token may have more rows than the vocabulary.

    Raises:
        ValueError: Weights are missing, have another shape than the config implies, or
            belong to more layers than the config has.
    """
    if config.num_layers > len(tensors):
        raise ValueError(
            f"The config has {config.num_layers} layers, but the file has only "
            f"{len(tensors)} tensors."
        )
    expanded = expand(rows, config.num_layers)
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
    further = _names(expand(rows, config.num_layers + 1)).intersection(others)
    if further:
        raise ValueError(
            f"The config has {config.num_layers} layers, but the file has more: "
            f"{min(further)}."
        )
    for row in found:
        for name in tensors.keys() & set(row.theirs):
            _check_shape(name, tensors[name].shape, row, config, vocabulary)
    return found


def _check_shape(
    name: str,
    shape: tuple[int, ...],
    row: Row,
    config: BertConfig,
    vocabulary: Vocabulary,
) -> None:
    # Only the weights of `logits` have C, as their last axis in our layout.
    classes = shape[0 if row.transposed else -1] if shape else None
    expected = to_shape(row.stored, config, classes)
    if row.stored.startswith("V") and shape:
        size, declared = vocabulary.size, config.vocabulary_size
        if row.ours == TOKEN_EMBEDDING and (
            shape[0] < size or declared not in (shape[0], size)
        ):
            raise ValueError(
                f"the config has vocabulary size {declared}, the token embedding "
                f"{shape[0]} rows, but the vocabulary has {size} tokens. The embedding "
                "must have at least as many rows, and the config one of both sizes."
            )
        expected = (max(size, shape[0]), *expected[1:])
    if shape != expected:
        raise ValueError(
            f"{name} has shape {list(shape)}, but the config implies {list(expected)}."
        )


def _padding_rows(
    found: Sequence[Row], tensors: Mapping[str, Tensor], vocabulary: Vocabulary
) -> int:
    """Returns the number of rows of the token embedding beyond the vocabulary."""
    names = [n for row in found if row.ours == TOKEN_EMBEDDING for n in row.theirs]
    sizes = [tensors[name].shape[0] for name in names if name in tensors]
    return sizes[0] - vocabulary.size if sizes else 0


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
    for row in expand(rows, config.num_layers):
        if row.ours in weights:
            tensor = weights[row.ours]
            if "D" in row.stored:
                tensor = tensor.reshape(to_shape(row.stored, config))
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
            shape = tuple(opened.get_slice(name).get_shape())
            tensors[name] = Tensor(shape, functools.partial(opened.get_tensor, name))
    return tensors


# Files with weights that are not read: what they are, who converts them, and how.
_OTHER_WEIGHTS = {
    "pytorch_model*.bin": (
        "a pickle. Loading a pickle can run arbitrary code. If you trust the file, "
        "convert it with transformers and torch",
        "",
    ),
    "tf_model.h5": (
        "TensorFlow's format of transformers 4. Convert it with transformers 4, "
        "TensorFlow and torch",
        ", from_tf=True",
    ),
    "flax_model.msgpack": (
        "Flax's format of transformers 4. Convert it with transformers 4, Flax and "
        "torch",
        ", from_flax=True",
    ),
}


def has_weights(path: pathlib.Path) -> bool:
    """Returns whether a folder has weights of transformers, readable ones or not."""
    patterns = ("*.safetensors", _INDEX, *_OTHER_WEIGHTS)
    return any(file for pattern in patterns for file in path.glob(pattern))


def _why_no_weights(path: pathlib.Path) -> str:
    for pattern, (what, option) in _OTHER_WEIGHTS.items():
        for file in sorted(path.glob(pattern))[:1]:
            return (
                f"{path} has its weights only in {file.name}, which is {what}: python "
                "-c 'from transformers import AutoModelForPreTraining as M; "
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
