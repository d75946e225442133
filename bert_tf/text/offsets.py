# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte offsets in texts -> words, substrings, character offsets; graph functions.

`find_words` groups the word pieces of raw text into words like those of tagged corpora.
It splits the text at whitespace and splits punctuation marks off both ends of each
part. Each of these marks is a word, and so is each Chinese character::

    "It's Mr. O'Neil," she said (1-0).
    "  It's  Mr  .  O'Neil  ,  "  she  said  (  1-0  )  .

A tagger is trained on the first piece of each word in its corpus, so its input needs
words like those of CoNLL-2003 and WNUT. BERT's basic tokenizer also splits "O'Neil",
"1-0" and URLs, at pieces without training. Splitting at whitespace only leaves commas
on names. F1 of one model on the WNUT-17 test set, with the words joined to running
text: 36.0 with these words, 32.8 with those of the basic tokenizer, 28.1 with
whitespace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.text.normalization import is_punctuation, is_single_character_word
from bert_tf.text.tokenizer import Pieces
from bert_tf.text.vocabulary import Vocabulary

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


def find_words(pieces: Pieces, vocabulary: Vocabulary) -> Words:
    """Groups the pieces of N texts into words.

    Args:
        pieces: Pieces with offsets, ragged [N, (pieces)] int32.
        vocabulary: Vocabulary of the pieces. [UNK] counts as a letter.
    """
    is_first = _is_first_piece(pieces, vocabulary)
    is_last = tf.concat([is_first[1:], [True]], axis=0)[: tf.size(is_first)]
    row = tf.cast(pieces.ids.value_rowids(), tf.int32)
    return Words(
        row=tf.boolean_mask(row, is_first),
        start=tf.boolean_mask(pieces.starts.values, is_first),
        end=tf.boolean_mask(pieces.ends.values, is_last),
        is_first_piece=is_first,
    )


def _is_first_piece(pieces: Pieces, vocabulary: Vocabulary) -> tf.Tensor:
    """Returns for each piece whether it is the first of a word, [pieces] bool."""

    def look_up(table: np.ndarray) -> tf.Tensor:
        return tf.gather(tf.constant(table), pieces.ids.values)

    def previous(values: tf.Tensor) -> tf.Tensor:
        return tf.roll(values, 1, axis=0)

    tokens = [token if len(token) == 1 else "a" for token in vocabulary.tokens]
    is_mark = look_up(np.array([is_punctuation(token) for token in tokens]))
    is_own_word = look_up(
        np.array([is_single_character_word(token) for token in tokens])
    )
    is_continuation = look_up(vocabulary.is_continuation)

    # Split at whitespace into runs of adjacent pieces.
    row, index = pieces.ids.value_rowids(), tf.range(tf.size(is_mark))
    has_gap = (pieces.starts.values > previous(pieces.ends.values)) & ~is_continuation
    starts_run = has_gap | (previous(row) != row) | (index == 0)
    run = tf.cumsum(tf.cast(starts_run, tf.int32)) - 1

    # Strip the punctuation from both ends of each run. Chinese characters are words
    # even between letters.
    first = tf.math.segment_min(tf.where(is_mark, tf.int32.max, index), run)
    last = tf.math.segment_max(tf.where(is_mark, -1, index), run)
    is_inside = (tf.gather(first, run) <= index) & (index <= tf.gather(last, run))
    is_inside &= is_mark | ~is_own_word
    is_split = ~is_inside | ~previous(is_inside)
    return ~is_continuation & (starts_run | is_split)


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
