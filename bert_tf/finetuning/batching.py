# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenized splits in memory, and batches of examples of similar length for Keras.

A task tokenizes each text once, for a `Split`. `batches` turns it into a
`tf.data.Dataset` of `(inputs, targets, weights)`, and pads each example once:

    inputs    [B, S] each (or [B, C, S]), S one of a few lengths
    targets   [B], or [B, S] with a target per token
    weights   float32, shaped like the targets; they sum to one in each batch

All batches have B rows. The empty rows of a partial batch repeat one of its examples
with weight 0, so that no example is dropped or counted twice.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from bert_tf import data, text
from bert_tf.lazy import lazy_import

sklearn = lazy_import("sklearn")

_EMPTY = -1  # Marks a row of a batch without an example.

# A value for each of N examples: [N, ...], ragged if their lengths differ.
Column: TypeAlias = tf.Tensor | tf.RaggedTensor


@dataclasses.dataclass(frozen=True)
class Split:
    """A tokenized split of a data set in memory; N examples.

    An example is one input of the model. A long text can be several examples.

    Attributes:
        name: `"train"`, `"dev"`, ...
        rows: The examples: `encode` of the head returns them. An example is a row, or
            C rows if the tensors of `rows` are [N, C].
        targets: Targets of the loss, one column or one for each output; None without
            labels.
        weights: Weights of the targets, float32; all 1 if None.
        passages: Of question answering: the passages, whose windows are the rows.
    """

    name: str
    rows: text.Rows
    targets: Column | Mapping[str, Column] | None = None
    weights: Column | None = None
    passages: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Tokens of each example, or of its longest row [N]."""
        lengths = self.rows.lengths.numpy()
        return lengths.reshape(len(lengths), -1).max(axis=1)


def balanced_weights(targets: np.ndarray) -> np.ndarray:
    """Returns weights for which all classes have the same total weight.

    They are those of scikit-learn's `compute_class_weight`: N / (classes * frequency).

    Args:
        targets: Classes [N]; or 0 and 1 for labels [N, L], each balanced by itself.

    Returns:
        float32, of the shape of `targets`.
    """
    columns = targets.reshape(len(targets), -1).T
    weigh = sklearn.utils.class_weight.compute_sample_weight
    weights = np.stack([weigh("balanced", column) for column in columns], axis=1)
    return weights.reshape(targets.shape).astype(np.float32)


def bucket_lengths(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Rounds lengths up, to multiples of 8 up to 64, of 16 up to 128, and so on.

    At most an eighth of a long row is padding, and there are only twenty shapes up to
    512 tokens, which matters on devices that compile for each shape.
    """
    doublings = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    step = np.maximum(8, 2 ** np.maximum(doublings - 3, 0))
    return np.minimum(-(-lengths // step) * step, max_length)


def batches(
    split: Split,
    batch_size: int,
    max_length: int,
    first_step: int = 0,
    *,
    epochs: int = 1,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches a labeled split for `model.fit`, reshuffled in every epoch.

    An epoch has ceil(N / B) batches. The examples of each batch and the order of the
    batches depend only on (seed, epoch).

    Args:
        split: The examples.
        batch_size: Rows of a (global) batch, B.
        max_length: Upper bound of S, the tokenizer's `max_sequence_length`.
        first_step: Batches to skip because they are already trained.
        epochs: Passes over the split, skipped ones included.
        seed: Shuffling seed.
    """
    sizes = batch_size, max_length
    plans = [_plan(split, *sizes, seed=(seed, epoch)) for epoch in range(epochs)]
    rows, lengths = (np.concatenate(parts)[first_step:] for parts in zip(*plans))
    return _assemble(split, rows, lengths)


def predict(
    model: keras.Model,
    split: Split,
    batch_size: int,
    max_length: int,
    *,
    callbacks: Sequence[keras.callbacks.Callback] = (),
) -> list[Any]:
    """Returns the model's output for each example, in the order of the split.

    Outputs with a value per token include values for padding. The arguments are those
    of `batches`, and the `callbacks` of `model.predict`. The split needs no targets.
    """
    rows, lengths = _plan(split, batch_size, max_length)
    unlabeled = dataclasses.replace(split, targets=None)
    results = [None] * (len(split) + 1)  # The last one is for empty rows, `_EMPTY`.
    # `Model.predict` concatenates the outputs of all batches, so they need one length.
    for length in np.unique(lengths):
        same = lengths == length
        dataset = _assemble(unlabeled, rows[same], lengths[same])
        outputs = model.predict(dataset, verbose=0, callbacks=list(callbacks))
        for i, row in enumerate(rows[same].ravel()):
            results[row] = keras.tree.map_structure(lambda x, i=i: x[i], outputs)
    return results[:-1]


def _plan(
    split: Split, batch_size: int, max_length: int, seed: Sequence[int] = (0,)
) -> tuple[np.ndarray, np.ndarray]:
    """Assigns examples of similar length to batches, at random.

    Returns:
        Indices of the examples [M, B] int32, `_EMPTY` for rows without one, and the
        length of each batch [M] int32.
    """
    count, rng = len(split), np.random.default_rng(seed)
    num_batches = -(-count // batch_size)
    padded = bucket_lengths(split.lengths, max_length)
    order = rng.permutation(count)
    # Sort by bucket, not by length, to keep the order random within a bucket.
    order = order[np.argsort(padded[order], kind="stable")]
    # A random batch gets the empty rows: examples of the partial batch weigh more, and
    # in the last batch these would always be the longest examples.
    partial = rng.integers(num_batches)
    empty = np.full(num_batches * batch_size - count, _EMPTY)
    order = np.insert(order, (partial + 1) * batch_size - len(empty), empty)
    rows = order.reshape(num_batches, batch_size).astype(np.int32)
    lengths = np.where(rows == _EMPTY, 0, padded[rows]).max(axis=1).astype(np.int32)
    shuffled = rng.permutation(num_batches)
    return rows[shuffled], lengths[shuffled]


def _assemble(split: Split, rows: np.ndarray, lengths: np.ndarray) -> tf.data.Dataset:
    """Gathers and pads the examples of each batch; see the module docstring."""
    batch_size = rows.shape[1]
    weights = tf.ones([len(split)]) if split.weights is None else split.weights

    def take(column: Column, rows: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        column = tf.gather(column, rows)
        if isinstance(column, tf.RaggedTensor):
            column = column.to_tensor(shape=[-1, length])
            column = tf.ensure_shape(column, [batch_size, None])
        return column

    def batch(rows: tf.Tensor, length: tf.Tensor):
        is_example = rows != _EMPTY
        # Empty rows repeat an example of the batch: its targets fit in `length`.
        rows = tf.where(is_example, rows, tf.reduce_max(rows))
        inputs = split.rows[rows].inputs(length)
        if split.targets is None:
            return (inputs,)
        targets = keras.tree.map_structure(
            lambda x: take(x, rows, length), split.targets
        )
        weight = take(weights, rows, length)  # [B] or [B, S]
        mask = tf.reshape(is_example, [batch_size] + [1] * (weight.shape.rank - 1))
        weight = tf.where(mask, weight, 0.0)
        weight = tf.math.divide_no_nan(weight, tf.reduce_sum(weight))
        return inputs, targets, keras.tree.map_structure(lambda _: weight, targets)

    return data.map_ahead(tf.data.Dataset.from_tensor_slices((rows, lengths)), batch)
