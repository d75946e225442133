# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cached activations of a frozen encoder, for the feature-based approach of BERT.

Section 5.3 of the paper trains a tagger on activations instead of fine-tuning. The
encoder runs once and not in every epoch. A memory-mapped file holds its activations.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_tf import storage
from bert_tf.finetuning import batching
from bert_tf.finetuning.batching import MappedColumn, Split
from bert_tf.modeling import FrozenEncoder

_BATCH_SIZE = 32
# Examples in memory before they are written to the file.
_CHUNK = 16 * _BATCH_SIZE


def cached_features(
    encoder: FrozenEncoder,
    inputs: Mapping[str, tf.RaggedTensor],
    folder: str | os.PathLike,
    **padding: Any,
) -> MappedColumn:
    """Returns the features of N examples, computed or read from `folder`.

    The file name is a hash of the encoder's weights and the inputs. The file is written
    atomically.

    Args:
        encoder: Computes the features.
        inputs: `token_ids`, `segment_ids`, `padding_mask`, each ragged [N, (S)].
        folder: The cache directory.
        **padding: The arguments `max_length` and `static_shape` of `predict`.

    Returns:
        The features of each token, [N, (S), K, H] for K layers.
    """
    token_ids = inputs["token_ids"]
    path = pathlib.Path(folder) / f"{_fingerprint(encoder, inputs)}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (int(token_ids.row_splits[-1]), *encoder.output["features"].shape[2:])
        with storage.atomic_path(path) as temporary:
            file = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            _compute(encoder, inputs, file, padding)
            file.flush()
    return MappedColumn(np.load(path, mmap_mode="r"), token_ids.row_splits.numpy())


def _compute(
    encoder: FrozenEncoder,
    inputs: Mapping[str, tf.RaggedTensor],
    file: np.ndarray,
    padding: Mapping[str, Any],
) -> None:
    """Writes the features of all tokens to `file` [tokens, K, H]."""
    starts = inputs["token_ids"].row_splits.numpy()
    for first in tqdm(range(0, len(starts) - 1, _CHUNK), "features", disable=None):
        chunk = {name: c[first : first + _CHUNK] for name, c in inputs.items()}
        split = Split("features", None, chunk)
        outputs = batching.predict(encoder, split, _BATCH_SIZE, **padding)
        for row, output in enumerate(outputs, start=first):
            start, end = starts[row : row + 2]
            file[start:end] = output["features"][: end - start]


def _fingerprint(encoder: FrozenEncoder, inputs: Mapping[str, tf.RaggedTensor]) -> str:
    digest = hashlib.sha256(encoder.feature_set.encode())
    digest.update(encoder.layers[-1].compute_dtype.encode())
    tensors = list(encoder.weights)
    for name in sorted(inputs):
        tensors += [inputs[name].values, inputs[name].row_splits]
    for tensor in tensors:
        digest.update(np.ascontiguousarray(tensor.numpy()))
    return digest.hexdigest()[:32]
