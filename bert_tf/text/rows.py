# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens without padding: ranges of word pieces, which become model inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

if TYPE_CHECKING:
    from bert_tf.text.tokenizer import Tokenizer

_Rows = TypeVar("_Rows", bound="Rows")

# Attributes that all rows share.
_SHARED = ("tokenizer", "tokens")

# Positions of [PAD], [CLS] and [SEP] in `tokens`, and of the first word piece.
_PAD, _CLS, _SEP, _FIRST_PIECE = range(4)


@dataclasses.dataclass(frozen=True)
class Rows:
    """B rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

    Texts are tokenized once, to word pieces. `inputs` pads the rows of a batch.
    Examples of C rows each have tensors [B, C] instead of [B].

    Attributes:
        tokenizer: The tokenizer.
        tokens: Ids of [PAD], [CLS], [SEP] and of P word pieces [3 + P] int32. Rows may
            share pieces.
        segment_starts: First piece of each segment, counted in the word pieces, each
            [B] int32.
        segment_sizes: Number of pieces of each segment, each [B] int32.
        lengths: Number of tokens of each row [B] int32; 0 for a missing row.
    """

    tokenizer: Tokenizer
    tokens: tf.Tensor
    segment_starts: tuple[tf.Tensor, ...]
    segment_sizes: tuple[tf.Tensor, ...]
    lengths: tf.Tensor

    @classmethod
    def create(
        cls: type[_Rows],
        tokenizer: Tokenizer,
        pieces: tf.Tensor,
        starts: Iterable[tf.Tensor],
        sizes: Iterable[tf.Tensor],
        **columns: tf.Tensor,
    ) -> _Rows:
        """Returns rows of word pieces [P]; see `segment_starts`, `segment_sizes`."""
        vocabulary, sizes = tokenizer.vocabulary, tuple(sizes)
        specials = [vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id]
        tokens = tf.concat([specials, pieces], axis=0)
        lengths = 1 + sum(size + 1 for size in sizes)
        return cls(tokenizer, tokens, tuple(starts), sizes, lengths, **columns)

    def __len__(self) -> int:
        """Number of rows, or of examples; eager only."""
        return len(self.lengths)

    def __getitem__(self: _Rows, index: slice | tf.Tensor) -> _Rows:
        """Returns a range of the rows, or those with the indices of a tensor."""
        if isinstance(index, slice):
            return self.map_columns(lambda column: column[index])
        return self.map_columns(lambda column: tf.gather(column, index))

    def map_columns(self: _Rows, function: Callable[[tf.Tensor], tf.Tensor]) -> _Rows:
        """Applies a function to each tensor [B]."""
        columns = {k: v for k, v in vars(self).items() if k not in _SHARED}
        columns = tf.nest.map_structure(function, columns)
        return dataclasses.replace(self, **columns)

    def inputs(self, padded_length: int | tf.Tensor | None = None) -> dict[str, Any]:
        """Returns the inputs of the encoder, padded.

        Args:
            padded_length: S. By default the length of the longest row.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` (1 = token, 0 = padding), each
            [B, S] int32.
        """
        starts, sizes, (lengths,) = (
            [column[..., tf.newaxis] for column in columns]
            for columns in (self.segment_starts, self.segment_sizes, [self.lengths])
        )
        if padded_length is None:  # At least 1, also for an empty batch.
            padded_length = tf.maximum(tf.reduce_max(lengths), 1)
        position = tf.range(padded_length)
        in_row = position < lengths

        index = tf.where(in_row, _SEP, _PAD)  # In `tokens` [B, S].
        index = tf.where(position == 0, _CLS, index)
        segment_start = 1
        for start, size in zip(starts, sizes):
            offset = position - segment_start
            in_segment = (offset >= 0) & (offset < size)
            index = tf.where(in_segment, _FIRST_PIECE + start + offset, index)
            segment_start += size + 1
        return {
            "token_ids": tf.gather(self.tokens, index),
            "segment_ids": tf.cast(in_row & (position >= sizes[0] + 2), tf.int32)
            * self.tokenizer.rules.second_segment,
            "padding_mask": tf.cast(in_row, tf.int32),
        }
