# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte offsets in texts -> substrings, character offsets; graph functions."""

from __future__ import annotations

import tensorflow as tf

_BYTES = [bytes([byte]) for byte in range(256)]

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
    values, text_starts = decode(text)
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
    values, text_starts = decode(text)
    starts_character = tf.cast((values & 0xC0) != 0x80, tf.int32)
    count = tf.concat([[0], tf.cumsum(starts_character)], 0)  # [bytes + 1]
    text_start = tf.gather(text_starts, row)
    return tf.gather(count, text_start + offset) - tf.gather(count, text_start)


def decode(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bytes of all texts int32, and where each text starts [N] int32."""
    values = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    return tf.cast(values, tf.int32), tf.cumsum(tf.strings.length(text), exclusive=True)
