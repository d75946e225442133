# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte offsets in texts -> words, substrings, character offsets; graph functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert_tf.text.word_pieces import Pieces

_BYTES = [bytes([byte]) for byte in range(256)]

# --- Words -----------------------------------------------------------------------


class Words(NamedTuple):
    """The T words of N texts, in order.

    Attributes:
        row: Index of the text [T] int32.
        start: Offset of the first byte in the text [T] int32.
        end: Offset after the last byte [T] int32.
        is_first_piece: For each piece, whether it is the first of a word [pieces] bool.
    """

    row: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor
    is_first_piece: tf.Tensor


def find_words(pieces: Pieces, vocabulary: Vocabulary, join_weights: str = "") -> Words:
    """Groups the pieces of N texts into words.

    By default these are the words of BERT's basic tokenizer. They are separated by
    whitespace; each punctuation mark and each Chinese character is a word by itself::

        Mr. O'Neil's U.S.-based team won 1-0.
        Mr . O ' Neil ' s U . S . - based team won 1 - 0 .

    Args:
        pieces: Pieces with offsets, ragged [N, (pieces)] int32.
        vocabulary: Vocabulary of the pieces.
        join_weights: Weights of a linear classifier of `join_features` as
            "index:weight", separated by spaces; the others are 0. A word with a
            positive sum is joined to the word before, unless there is a space between
            them.
    """
    ids, starts, ends = pieces.ids, pieces.starts.values, pieces.ends.values
    row = tf.cast(ids.value_rowids(), tf.int32)
    is_first = tf.gather(tf.constant(~vocabulary.is_continuation), ids.values)
    if join_weights:
        features, size = join_features(ids, vocabulary)
        weights = np.zeros(size, np.float32)
        for pair in join_weights.split():
            index, weight = pair.split(":")
            weights[int(index)] = weight
        score = tf.reduce_sum(tf.gather(tf.constant(weights), features), axis=1)
        # In a single text, the first piece does not start where the last one ends.
        is_adjacent = (tf.roll(row, 1, 0) == row) & (tf.roll(ends, 1, 0) == starts)
        is_first &= ~(is_adjacent & (score > 0))
    is_last = tf.concat([is_first[1:], [True]], axis=0)[: tf.size(is_first)]
    return Words(
        row=tf.boolean_mask(row, is_first),
        start=tf.boolean_mask(starts, is_first),
        end=tf.boolean_mask(ends, is_last),
        is_first_piece=is_first,
    )


def join_features(
    ids: tf.RaggedTensor, vocabulary: Vocabulary
) -> tuple[tf.Tensor, int]:
    """Returns features that tell whether a piece belongs to the word before it.

    They are binary: a constant, the piece, its two predecessors and its successor, and
    the shapes of the piece and its predecessor and of the piece and its successor.

    Args:
        ids: Pieces of N texts, ragged [N, (pieces)] int32.
        vocabulary: Vocabulary of the pieces.

    Returns:
        The indices of the features that are 1 [pieces, 7] int32, and the number of
        features.
    """
    edge = tf.fill([ids.nrows(), 2], vocabulary.size)
    padded = tf.concat([edge, ids, edge[:, :1]], axis=1)
    window = tf.stack([padded[:, i : i - 3 or None].values for i in range(4)], axis=1)
    names, shapes = np.unique(
        [*map(_shape, vocabulary.tokens), ""], return_inverse=True
    )
    shape = tf.gather(tf.constant(shapes, tf.int32), window)
    pairs = shape[:, 1:3] * len(names) + shape[:, 2:]
    columns = tf.concat([tf.zeros_like(window[:, :1]), window, pairs], axis=1)
    sizes = [1, *[len(shapes)] * 4, *[len(names) ** 2] * 2]
    return columns + np.cumsum([0, *sizes[:-1]], dtype=np.int32), sum(sizes)


def _shape(token: str) -> str:
    """Returns an ASCII character itself, 00 for digits, a to aaaa for letters."""
    if len(token) == 1 and token.isascii():
        return token
    letters = token.removeprefix(CONTINUATION_PREFIX)
    if letters.isdigit():
        return "00"
    prefix = token[: len(token) - len(letters)]
    return prefix + "a" * min(len(letters), 4) if letters.isalpha() else "other"


# --- Substrings ------------------------------------------------------------------
# `tf.strings.substr` copies the whole text for each substring, which is quadratic for
# a long text with many words. These functions take time and memory in the size of the
# result.


def substrings(
    text: tf.Tensor, row: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tf.Tensor:
    """Returns the bytes `text[row[k]][start[k]:end[k]]`, [K] string.

    Args:
        text: Strings [N].
        row: Indices of texts [K] int32.
        start: Byte offsets [K] int32.
        end: Byte offsets, exclusive [K] int32.
    """
    values, text_starts = _decode(text)
    text_start = tf.gather(text_starts, row)
    index = tf.ragged.range(text_start + start, text_start + end)  # [K, (bytes)]
    characters = tf.gather(tf.constant(_BYTES), tf.gather(values, index.values))
    return tf.strings.unsorted_segment_join(
        characters, index.value_rowids(), tf.size(row)
    )


def character_offsets(text: tf.Tensor, row: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Converts byte offsets to offsets in characters (code points), [K] int32.

    Args:
        text: UTF-8 strings [N].
        row: Indices of texts [K] int32.
        offset: Byte offsets of the starts of characters, or of the end of the text
            [K] int32.
    """
    values, text_starts = _decode(text)
    starts_character = tf.cast((values & 0xC0) != 0x80, tf.int32)
    count = tf.concat([[0], tf.cumsum(starts_character)], 0)  # [bytes + 1]
    text_start = tf.gather(text_starts, row)
    return tf.gather(count, text_start + offset) - tf.gather(count, text_start)


def _decode(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bytes of all texts int32, and where each text starts [N] int32."""
    values = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    return tf.cast(values, tf.int32), tf.cumsum(tf.strings.length(text), exclusive=True)
