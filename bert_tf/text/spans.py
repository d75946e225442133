# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Byte offsets of texts -> substrings and character offsets; graph functions.

A span k is the bytes `start[k]` to `end[k]` (exclusive) of `text[row[k]]`. Time and
memory are those of what is cut out: TensorFlow's own op copies the whole text for every
substring, which makes a long one with many words impossible.
"""

from __future__ import annotations

import tensorflow as tf

# Each of the 256 bytes as a string.
_BYTES = [bytes([byte]) for byte in range(256)]


def substrings(
    text: tf.Tensor, row: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tf.Tensor:
    """Returns the bytes of each span, [K] string.

    Args:
        text: Strings [N].
        row, start, end: The spans, each [K] int32.
    """
    values, text_starts = _bytes_of(text)
    text_start = tf.gather(text_starts, row)
    place = tf.ragged.range(text_start + start, text_start + end)  # [K, (bytes)]
    byte = tf.gather(values, place.values)
    return tf.strings.unsorted_segment_join(
        tf.gather(tf.constant(_BYTES), byte), place.value_rowids(), tf.size(row)
    )


def characters(text: tf.Tensor, row: tf.Tensor, offset: tf.Tensor) -> tf.Tensor:
    """Returns how many characters stand before a byte of a text, [K] int32.

    Args:
        text: UTF-8 strings [N].
        row: Numbers of texts [K] int32.
        offset: Bytes of these texts, each the first of a character, or behind the last
            one [K] int32.
    """
    values, text_starts = _bytes_of(text)
    is_first = tf.cast((values & 0xC0) != 0x80, tf.int32)
    before = tf.concat([[0], tf.cumsum(is_first)], 0)  # [bytes + 1]
    text_start = tf.gather(text_starts, row)
    return tf.gather(before, text_start + offset) - tf.gather(before, text_start)


def _bytes_of(text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the bytes of all texts int32, and where each text begins [N] int32."""
    values = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    return tf.cast(values, tf.int32), tf.cumsum(tf.strings.length(text), exclusive=True)
