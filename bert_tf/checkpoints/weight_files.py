# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Weights in files of all formats: tables of names, reading, writing.

Our name of a weight is its `variable.path` in Keras, e.g.
`encoder_layer_0/query/kernel`. The output layer of a task is `logits`. Each format has
a table from our names to its names, in which `{i}` is the number of an encoder layer.
If a file has several of the names of a weight, they must be copies of the same tensor;
the writer uses the first. `open_tensors` matches a table against the tensors in a file,
and `to_tensors` converts weights for writing. Files of safetensors are read and written
here, too.

Kernels are [in, out]. Formats that call them something else than `kernel` store
[out, in]. Weights of attention may be stored per head, with a further dimension.
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
from bert_tf.checkpoints.checkpoint import TOKEN_EMBEDDING, Checkpoint, outermost_layer
from bert_tf.modeling import BertConfig
from bert_tf.text import Vocabulary

# --- Tables of names -------------------------------------------------------------

Names = Mapping[str, Sequence[str]]

# Our names of encoder layers, and of the dense layers of their attention.
OURS = "encoder_layer_{i}"
ATTENTION = ("query", "key", "value", "attention_output")

# Suffixes of formats that name the parts of a layer as Keras does, and of torch.
KERAS_SUFFIXES = {
    part: f"/{part}" for part in ("kernel", "bias", "gamma", "beta", "embeddings")
}
TORCH_SUFFIXES = dict.fromkeys(("kernel", "embeddings", "gamma"), ".weight")
TORCH_SUFFIXES |= dict.fromkeys(("bias", "beta"), ".bias")

# Parts of layers, by the last word of our name; those of others are kernel and bias.
_PARTS = {"mlm": ("bias",), "embedding": ("embeddings",), "norm": ("gamma", "beta")}


def names_of_layers(
    layers: Mapping[str, str], suffixes: Mapping[str, str] = KERAS_SUFFIXES
) -> dict[str, list[str]]:
    """Expands a table of layers into a table of weights.

    Args:
        layers: The format's name of each layer, by our name. Names separated by a space
            are equal copies.
        suffixes: What the format appends to a layer's name, by the last part of our
            weight name, e.g. `{"kernel": ".weight", "bias": ".bias"}`.
    """
    names = {}
    for layer, copies in layers.items():
        parts = _PARTS.get(layer.rpartition("_")[2], ("kernel", "bias"))
        for part in parts:
            theirs = [name + suffixes[part] for name in copies.split(" ")]
            names[f"{layer}/{part}"] = theirs
    return names


def _expand(names: Names, num_layers: int) -> dict[str, list[str]]:
    """Replaces each name that contains {i} by one per encoder layer."""
    return {
        ours.replace("{i}", str(i)): [name.replace("{i}", str(i)) for name in theirs]
        for ours, theirs in names.items()
        for i in range(num_layers if "{i}" in ours else 1)
    }


def _is_transposed(ours: str, theirs: str) -> bool:
    return ours.endswith("kernel") and not theirs.endswith("kernel")


# A checkpoint may lack each of these layers as a whole. All other weights are required.
_OPTIONAL_LAYERS = ("pooler", "mlm", "nsp", "logits")

# --- Reading ---------------------------------------------------------------------


class Tensor(NamedTuple):
    """A tensor in a file: its shape, and a function that reads it."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


Tensors = dict[str, Tensor]


def find_prefix(path: Any, names: Iterable[str], anchor: str) -> str:
    """Returns what precedes `anchor`, a name that each encoder has, in one of `names`.

    Raises:
        ValueError: Several names end with `anchor`. The message names `path`.
    """
    pattern = rf"(^|[./]){re.escape(anchor)}$"
    anchors = [name for name in names if re.search(pattern, name)]
    if len(anchors) > 1:
        raise ValueError(f"{path} has several encoders: {', '.join(sorted(anchors))}")
    return "".join(anchors).removesuffix(anchor)


def open_tensors(
    path: pathlib.Path,
    names: Names,
    tensors: Tensors,
    *,
    architecture: BertConfig,
    vocabulary: Vocabulary,
    kind: str | None = None,
    doubt: str = "",
    declared: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    own_names: bool = False,
    **attributes: Any,
) -> Checkpoint:
    """Returns a checkpoint, after matching every tensor in its file with a weight.

    Logs a warning about what is dropped.

    Args:
        path: The folder.
        names: The format's table, for this kind of head.
        tensors: The tensors in the file; none if a training did not write it yet.
        architecture: That of the folder's config. Its `vocabulary_size` may be that of
            a padded embedding.
        vocabulary: The folder's vocabulary.
        kind: The kind of the head, declared by the folder or chosen by the user. None
            for an encoder or a pre-trained model, depending on the tensors.
        doubt: Why the folder's head is unclear, a sentence.
        declared: Arguments of `heads.Head.declare`.
        settings: Further settings of the head, e.g. its kind in a model directory.
        own_names: Whether the tensors that are not in the table have our names.
        **attributes: Other attributes of the checkpoint.

    Raises:
        ValueError: The tensors contradict the config or the vocabulary.
    """
    found, unused = match(path, names, tensors, architecture.num_layers)
    rows = {
        ours: tensors[found[ours][0]].shape[0]
        for ours in (TOKEN_EMBEDDING, "logits/bias")
        if ours in found
    }
    size, outputs, head = vocabulary.size, rows.get("logits/bias"), {}
    try:
        _check_sizes(architecture.vocabulary_size, rows.get(TOKEN_EMBEDDING), size)
        if kind not in (None, "encoder", "pretrainer"):
            head = heads.known_head(kind).declare(outputs, **(declared or {}))
        head |= settings or {}
        if head:
            heads.known_head(head["kind"]).check_outputs(head, outputs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if (dropped := rows.get(TOKEN_EMBEDDING, size) - size) > 0:
        logging.warning(
            f"{path}: The last {dropped} of the {size + dropped} rows of the token "
            "embedding were dropped: the vocabulary has no tokens with these ids."
        )
    if own_names:
        found |= {name: [name] for name in unused}
        unused = []
    layers = set(map(outermost_layer, found))
    note = f"Tensors that are not used: {_shown(unused)}." if unused else ""
    if not head:
        is_pretrainer = kind != "encoder" and layers & {"mlm", "nsp"}
        head = {"kind": "pretrainer" if is_pretrainer else "encoder"}
        doubt = doubt or _doubt(found, unused)
        if doubt and kind is None:
            note = f"{doubt} {note}".strip()
            head = {"kind": "encoder", "undeclared": note}
    if note:
        logging.warning("%s: %s", path, note)
    if found and not own_names:
        optional = heads.known_head(head["kind"]).layers
        if missing := [layer for layer in optional if layer not in layers]:
            head["newly_initialized"] = missing
    architecture = dataclasses.replace(architecture, vocabulary_size=size)
    return Checkpoint(
        path=path,
        architecture=architecture,
        vocabulary=vocabulary,
        head=head,
        weights=lazy_weights(found, tensors, architecture),
        **{"options": {}, **attributes},
    )


def _check_sizes(declared: int, rows: int | None, tokens: int) -> None:
    """Checks the sizes of the vocabulary in a config, an embedding and a vocabulary."""
    rows = tokens if rows is None else rows
    if rows < tokens or declared not in (rows, tokens):
        raise ValueError(
            f"the config has vocabulary size {declared}, the token embedding {rows} "
            f"rows, but the vocabulary has {tokens} tokens. The config must have one "
            "of both sizes, the embedding at least a row per token."
        )


def _doubt(found: Names, unused: Sequence[str]) -> str:
    """Returns a sentence if tensors outside of the encoder may be a head."""
    encoder = re.match(r"\w*", found[TOKEN_EMBEDDING][0])[0] if found else ""
    is_inside = all(name.startswith(encoder) for name in unused)
    return "" if is_inside else "It does not declare a head for all its weights."


def match(
    path: Any, names: Names, tensors: Tensors, num_layers: int
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the table of the weights in a file, and the names of its other tensors.

    Raises:
        ValueError: Weights are missing, or belong to more layers than the config has.
            The message names the folder `path`.
    """
    # With one layer more. The file has at least one tensor per layer.
    expanded = _expand(names, min(num_layers, len(tensors)) + 1)
    found = {
        ours: present
        for ours, theirs in expanded.items()
        if (present := [name for name in theirs if name in tensors])
    }
    unused = sorted(tensors.keys() - {x for theirs in found.values() for x in theirs})
    layers, further = set(map(outermost_layer, found)), OURS.format(i=num_layers)
    absent = {further, *_OPTIONAL_LAYERS} - layers
    missing = [
        theirs[0]
        for ours, theirs in expanded.items()
        if ours not in found and outermost_layer(ours) not in absent
    ]
    if missing and tensors:
        raise ValueError(
            f"{path}: Weights are missing ({len(missing)}): {_shown(missing)}. Other "
            f"tensors in the file: {_shown(unused) or 'none'}"
        )
    if further in layers:
        more = min(x for ours, (x, *_) in found.items() if ours.startswith(further))
        raise ValueError(
            f"{path}: The config has {num_layers} layers, but the file has more: "
            f"{more}."
        )
    return found, unused


def lazy_weights(
    names: Names, tensors: Tensors, config: BertConfig
) -> dict[str, Callable[[], np.ndarray]]:
    """Returns functions that read the weights in our shapes, as float32."""
    return {
        ours: functools.partial(
            _read_weight, ours, {name: tensors[name] for name in theirs}, config
        )
        for ours, theirs in names.items()
    }


def _read_weight(ours: str, copies: Tensors, config: BertConfig) -> np.ndarray:
    arrays = {name: np.asarray(x.read(), np.float32) for name, x in copies.items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} contains NaN or infinite values.")
    (theirs, tensor), *others = arrays.items()
    if not all(np.array_equal(tensor, other) for _, other in others):
        raise ValueError(
            f"{' and '.join(copies)} are the same weight in BERT and must be equal, "
            "but they differ. To read the encoder only, set --head=encoder."
        )
    if ours == theirs:
        return tensor
    rank = 2 if ours.endswith(("kernel", "embeddings")) else 1
    if tensor.ndim > rank:  # Stored per head.
        tensor = tensor.reshape([config.hidden_dim] * rank)
    if ours in (TOKEN_EMBEDDING, "mlm/bias"):
        tensor = tensor[: config.vocabulary_size]
    return tensor.T if _is_transposed(ours, theirs) else tensor


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + ", ..." * (len(names) > 5)


# --- Writing ---------------------------------------------------------------------


def to_tensors(
    names: Names, weights: Mapping[str, np.ndarray], num_layers: int
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Converts weights to the names and shapes of a format.

    Returns:
        The tensors by name, and our names of the weights that the format cannot hold.
    """
    expanded = _expand(names, num_layers)
    tensors = {
        theirs: weights[ours].T if _is_transposed(ours, theirs) else weights[ours]
        for ours, (theirs, *_) in expanded.items()
        if ours in weights
    }
    return tensors, sorted(weights.keys() - expanded)


# --- safetensors -----------------------------------------------------------------

WEIGHTS = "model.safetensors"
_TYPES = ("F64", "F32", "F16", "BF16")
# Of files with weights, for the message about a folder without safetensors.
_SUFFIXES = (".safetensors", ".gguf", ".onnx", ".bin", ".h5", ".msgpack", ".pt")


def read_safetensors(path: pathlib.Path, required: bool) -> Tensors:
    """Opens the safetensors of a folder.

    Args:
        path: The folder.
        required: Whether a folder without weights raises ValueError. Otherwise, it has
            no tensors. Shards always raise it.
    """
    file = path / WEIGHTS
    if not (file.is_file() or required or any(path.glob(f"{WEIGHTS}.*"))):
        return {}
    if not file.is_file():
        files = (x for suffix in _SUFFIXES for x in path.rglob(f"*{suffix}"))
        found = _shown(sorted(str(x.relative_to(path)) for x in files))
        raise ValueError(
            f"{path} has no {WEIGHTS}{found and f', but {found}'}. Rename a complete "
            "variant, such as model.fp16.safetensors. GGUF and ONNX are not supported: "
            "download the model in safetensors. If you trust its shards, "
            "pytorch_model.bin, tf_model.h5 or flax_model.msgpack (a pickle can run "
            "any code), load and save the model and its tokenizer in the library that "
            "wrote them: "
            "SentenceTransformer(FOLDER).save(NEW), or with the class in config.json "
            "BertForMaskedLM.from_pretrained(FOLDER).save_pretrained(NEW), in version "
            "4 of transformers with from_tf=True or from_flax=True."
        )
    try:
        opened = safetensors.safe_open(file, framework="np")
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{file} is damaged: {error}. If it is a Git LFS pointer, download the "
            "file with `git lfs pull` in that folder."
        ) from error
    return {
        name: Tensor(
            tuple(opened.get_slice(name).get_shape()),
            functools.partial(_read, opened, name),
        )
        for name in opened.keys()  # noqa: SIM118 (not a mapping)
    }


def _read(opened: safetensors.safe_open, name: str) -> np.ndarray:
    if (dtype := opened.get_slice(name).get_dtype()) not in _TYPES:
        raise ValueError(
            f"{name} must have floats of at least 16 bits. Received: {dtype}. "
            "Quantized checkpoints are not supported."
        )
    return opened.get_tensor(name)


def write_safetensors(path: pathlib.Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes a file of safetensors atomically."""
    tensors = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    # safetensors' own writer maps the file into memory: a full disk would crash Python.
    with storage.atomic_write(str(path)) as file:
        file.write(data)
