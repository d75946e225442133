# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens without padding: ranges of word pieces, which become model inputs.

`cut_windows` cuts texts of any length into overlapping windows that fit the model: from
word pieces of N texts to W >= N windows, rows of [CLS] text [SEP], or of [CLS] question
[SEP] text [SEP] with the whole question in every window of its text.

Each piece of a text is *owned* by one window, the one in which it has the most context
on both sides. Values computed for the owned pieces of all windows are in the order of
the texts, without duplicates. All are graph functions.
"""

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


# --- Windows ---------------------------------------------------------------------

# By default a window repeats 1 / _OVERLAP of the previous one. Inside a long text, each
# piece then has at least half of that as context on either side.
_OVERLAP = 4

# Windows in one call of the model.
_BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Windows(Rows):
    """W windows over N texts, in the order of the texts; rows of the model.

    Attributes:
        row: Index of the text [W] int32.
        start: First piece, counted in the text [W] int32.
        own_start, own_end: The window owns these pieces of the text, end exclusive
            [W] int32.

    The last segment is the part of the text.
    """

    row: tf.Tensor
    start: tf.Tensor
    own_start: tf.Tensor
    own_end: tf.Tensor

    @property
    def size(self) -> tf.Tensor:
        """Number of pieces of the text in each window [W] int32."""
        return self.segment_sizes[-1]

    @property
    def first_token(self) -> tf.Tensor:
        """Position in the row of the first piece of the text [W] int32."""
        return self.lengths - self.size - 1

    def owned_pieces(self, length: int | tf.Tensor) -> tf.Tensor:
        """Returns for each token its index in the word pieces, [W, S] int32.

        The value is -1 for special tokens, padding, pieces of the question, and pieces
        that another window owns.

        Args:
            length: S.
        """
        token = tf.range(length) - self.first_token[:, tf.newaxis]  # [W, S]
        piece = token + self.start[:, tf.newaxis]
        is_owned = piece >= self.own_start[:, tf.newaxis]
        is_owned &= piece < self.own_end[:, tf.newaxis]
        return tf.where(is_owned, token + self.segment_starts[-1][:, tf.newaxis], -1)

    def map(self, function: Callable[[Windows], Any], outputs: Any) -> Any:
        """Applies a function to a few windows at a time, which bounds the memory.

        Args:
            function: Maps `Windows` to a nested structure of tensors.
            outputs: The same structure of `tf.TensorSpec`; first dimensions are None.

        Returns:
            The function's results, concatenated along the first dimension.
        """
        count = tf.size(self.row)
        arrays = tf.nest.map_structure(
            lambda spec: tf.TensorArray(
                spec.dtype,
                size=-(-count // _BATCH_SIZE),
                infer_shape=False,
                element_shape=spec.shape,
            ),
            outputs,
        )

        def step(number: tf.Tensor, arrays: Any) -> tuple[tf.Tensor, Any]:
            begin = number * _BATCH_SIZE
            results = function(self[begin : begin + _BATCH_SIZE])
            return number + 1, tf.nest.map_structure(
                lambda array, result: array.write(number, result), arrays, results
            )

        _, arrays = tf.while_loop(
            lambda number, _: number * _BATCH_SIZE < count,
            step,
            (0, arrays),
            parallel_iterations=1,
        )
        return tf.nest.map_structure(lambda array: array.concat(), arrays)


def cut_windows(
    tokenizer: Tokenizer,
    ids: tf.RaggedTensor,
    max_sequence_length: int,
    *,
    max_question_length: int | None = None,
    stride: int | None = None,
) -> Windows:
    """Cuts texts into windows. A text that fits, or is empty, is one window.

    Args:
        tokenizer: The tokenizer of the encoder.
        ids: Pieces of N texts, ragged [N, (pieces)] int32; with
            `max_question_length`, of N questions followed by N texts, [2N, (pieces)].
        max_sequence_length: Maximum tokens of a window, question and special tokens
            included; at least 3, or `max_question_length` + 4.
        max_question_length: Maximum pieces of a question. Longer ones are truncated.
        stride: Number of pieces between the starts of two windows, reduced to the size
            of a window if larger. The last window may be shorter than the others, as in
            google-research/bert. By default windows overlap by a quarter and all
            windows of a long text have the same size.
    """
    num_segments = 1 if max_question_length is None else 2
    *questions, starts = tf.split(tf.cast(ids.row_starts(), tf.int32), num_segments)
    *lengths, sizes = tf.split(tf.cast(ids.row_lengths(), tf.int32), num_segments)
    lengths = [tf.minimum(length, max_question_length) for length in lengths]
    room = tf.fill([tf.size(sizes)], max_sequence_length - 1 - num_segments)
    capacity = room - sum(lengths)
    if stride is None:
        strides = capacity - capacity // _OVERLAP
    else:
        strides = tf.minimum(stride, capacity)
    excess = tf.maximum(sizes - capacity, 0)
    count = 1 + (excess + strides - 1) // strides  # Windows of each text [N].

    number = tf.ragged.range(count)  # Index of a window in its text.
    row = tf.cast(number.value_rowids(), tf.int32)  # [W], as all below.
    number = number.values
    start = number * tf.gather(strides, row)
    if stride is None:
        start = tf.minimum(start, tf.gather(excess, row))
    size = tf.minimum(tf.gather(capacity, row), tf.gather(sizes, row) - start)

    # The windows of a text own adjacent intervals of it.
    end = start + size
    next_start, next_size = tf.roll(start, -1, 0), tf.roll(size, -1, 0)
    if stride is None:
        boundary = (next_start + end) // 2
    else:
        boundary = _google_boundary(end, size, next_start, next_size)
    own_end = tf.where(number == tf.gather(count, row) - 1, end, boundary)
    own_start = tf.where(number == 0, 0, tf.roll(own_end, 1, 0))

    return Windows.create(
        tokenizer,
        ids.values,
        [*(tf.gather(q, row) for q in questions), tf.gather(starts, row) + start],
        [*(tf.gather(length, row) for length in lengths), size],
        row=row,
        start=start,
        own_start=own_start,
        own_end=own_end,
    )


def _google_boundary(
    end: tf.Tensor, size: tf.Tensor, next_start: tf.Tensor, next_size: tf.Tensor
) -> tf.Tensor:
    """Returns the first piece that the next window owns, [W] int32.

    The rule is "max context" of run_squad.py in google-research/bert: in a window, a
    piece with l pieces on its left and r on its right has a context of
    min(l, r) + 0.01 * size; if two windows are equal, the earlier one owns the piece.
    Comparing adjacent windows suffices, because all windows of a text are equally long
    except the last, which may be shorter.
    """
    bonus = (size - next_size) // 100  # The 0.01 * size, in pieces of context.
    middle = tf.minimum((next_start + end + 1 + bonus) // 2, end)
    # If the next window adds so few pieces, it owns only those.
    return tf.where(next_start + next_size - end <= bonus, end, middle)
