# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits in memory -> batches of examples of like length, for Keras.

In: a `task.Split`. Out: a `tf.data.Dataset` of `(inputs, targets, weights)` with

    inputs    [B, S] each (or [B, C, S]), zeros for padding, S one of a few lengths
    targets   [B], or [B, S] where every token has one
    weights   float32 like the targets; those of a batch sum to one

B is the same for all batches. Rows for which no example is left have weight 0: none
is dropped and none counts twice.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.finetuning.task import Column, MappedColumn, Split

_EMPTY = -1  # A row of a batch without an example.


def padded_lengths(lengths: np.ndarray, max_length: int) -> np.ndarray:
    """Rounds lengths up, to multiples of 8 up to 64, of 16 up to 128, and so on.

    So at most an eighth of a long row is padding, and 512 tokens come in only twenty
    shapes, which matters to devices that compile for each.
    """
    doublings = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    step = np.maximum(8, 2 ** np.maximum(doublings - 3, 0))
    return np.minimum(-(-lengths // step) * step, max_length)


def batches(
    split: Split,
    batch_size: int,
    *,
    max_length: int,
    first_epoch: int = 0,
    epochs: int = 1,
    seed: int = 0,
    static_shape: bool = False,
) -> tf.data.Dataset:
    """Batches a labelled split for `model.fit`, shuffled anew for every epoch.

    An epoch has ceil(N / B) batches. Which examples meet in a batch, and the order of
    the batches, follow from (seed, epoch) alone.

    Args:
        split: The examples.
        batch_size: Rows of a (global) batch, B.
        max_length: The longest S, that of the tokenisation.
        first_epoch: The passes that are left out, because they are done.
        epochs: Passes over the split, with those.
        seed: Of the shuffling.
        static_shape: Pad all to `max_length`, for devices that need one shape.
    """
    padded = _padded(split, max_length, static_shape)
    plans = [
        _plan(padded, batch_size, np.random.default_rng((seed, epoch)))
        for epoch in range(first_epoch, epochs)
    ]
    rows, lengths = (np.concatenate(parts) for parts in zip(*plans, strict=True))
    return _assemble(split, rows, lengths, static_shape)


def predict(
    model: keras.Model,
    split: Split,
    batch_size: int,
    *,
    max_length: int,
    static_shape: bool = False,
) -> list[Any]:
    """Returns the model's output for each example of the split, in its order.

    Where an output has a value per token, the example's padding has one too. The
    arguments are those of `batches`; targets are not needed.
    """
    rows, lengths = _plan(_padded(split, max_length, static_shape), batch_size)
    unlabelled = dataclasses.replace(split, targets=None)
    results = [None] * len(split)
    # Keras joins the outputs of all batches of a call, so each has one length.
    for length in np.unique(lengths):
        chosen = rows[lengths == length]
        same = lengths[lengths == length]
        dataset = _assemble(unlabelled, chosen, same, static_shape)
        outputs = model.predict(dataset, verbose=0)
        for position, row in enumerate(chosen.ravel()):
            if row != _EMPTY:
                results[row] = keras.tree.map_structure(
                    lambda output, at=position: output[at], outputs
                )
    return results


def _padded(split: Split, max_length: int, static_shape: bool) -> np.ndarray:
    if static_shape:
        return np.full(len(split), max_length)
    return padded_lengths(split.lengths, max_length)


def _plan(
    padded: np.ndarray, batch_size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Says which examples make up each batch, and how long its rows are.

    Args:
        padded: Padded length of each example [N].
        rng: Shuffles; in the order of length, then of the split, when None.

    Returns:
        Indices of examples [M, B] int32, `_EMPTY` where there is none, and lengths
        [M] int32.
    """
    count = len(padded)
    num_batches = -(-count // batch_size)
    order = rng.permutation(count) if rng else np.arange(count)
    # Sorted by rounded lengths, so that chance decides within each.
    order = order[np.argsort(padded[order], kind="stable")]
    # Any batch may be the one with empty rows: were it the last, those would always
    # be the longest examples that weigh more.
    partial = rng.integers(num_batches) if rng else num_batches - 1
    empty = np.full(num_batches * batch_size - count, _EMPTY)
    order = np.insert(order, (partial + 1) * batch_size - len(empty), empty)
    rows = order.reshape(num_batches, batch_size).astype(np.int32)
    lengths = np.where(rows == _EMPTY, 0, padded[rows]).max(axis=1).astype(np.int32)
    if rng:
        shuffled = rng.permutation(num_batches)
        rows, lengths = rows[shuffled], lengths[shuffled]
    return rows, lengths


def _assemble(
    split: Split, rows: np.ndarray, lengths: np.ndarray, static_shape: bool
) -> tf.data.Dataset:
    """Gathers the examples of each batch and pads them; see the module docstring."""
    batch_size = rows.shape[1]
    static_length = lengths[0] if static_shape else None
    weights = split.weights
    if weights is None:
        weights = tf.ones([len(split)])

    def take(column: Column, rows: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        if isinstance(column, MappedColumn):
            column = column.take(rows, length)
            shape = [batch_size, static_length, *column.shape[2:]]
            return tf.ensure_shape(column, shape)
        column = tf.gather(column, rows)
        if isinstance(column, tf.RaggedTensor):
            outer = column.ragged_rank  # Dimensions before that of the tokens.
            inner = column.shape[outer + 1 :].as_list()
            column = column.to_tensor(shape=[-1] * outer + [length] + inner)
            shape = [batch_size] + [None] * (outer - 1) + [static_length] + inner
            column.set_shape(shape)
        return column

    def batch(rows: tf.Tensor, length: tf.Tensor):
        is_example = rows != _EMPTY
        rows = tf.maximum(rows, 0)  # Any example will do where the weight is 0.
        inputs = {name: take(c, rows, length) for name, c in split.inputs.items()}
        if split.targets is None:
            return (inputs,)
        targets = keras.tree.map_structure(
            lambda column: take(column, rows, length), split.targets
        )
        weight = take(weights, rows, length)  # [B] or [B, S]
        counts = tf.reshape(is_example, [batch_size] + [1] * (weight.shape.rank - 1))
        weight = tf.where(counts, weight, 0.0)
        weight = tf.math.divide_no_nan(weight, tf.reduce_sum(weight))
        return inputs, targets, keras.tree.map_structure(lambda _: weight, targets)

    return (
        tf.data.Dataset.from_tensor_slices((rows, lengths))
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )
