# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logits of word pieces -> tagged words and entities of raw text; graph functions."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from bert_tf.text import (
    Pieces,
    Vocabulary,
    character_offsets,
    find_words,
    substrings,
)


def tag_text(
    text: tf.Tensor,
    pieces: Pieces,
    logits: tf.Tensor,
    *,
    vocabulary: Vocabulary,
    labels: Sequence[str],
) -> dict[str, tf.Tensor]:
    """Returns the words of N texts with their tags, and the entities.

    Args:
        text: Strings [N].
        pieces: Pieces of the texts with offsets, ragged [N, (pieces)].
        logits: Logits of all pieces [pieces, C]. Those of the first piece of a word
            are the word's.
        vocabulary: Vocabulary of the pieces.
        labels: The C tags: O, then B and I of each type.

    Returns:
        For the W words of a text: `words`, `tags` [N, W] string, `scores` [N, W]
        float32, the probabilities of the tags. For its E entities: `entities`,
        `entity_types` [N, E] string; their offsets in characters, `entity_starts`,
        `entity_ends`, and in bytes, `entity_start_bytes`, `entity_end_bytes` [N, E]
        int32, ends exclusive. Rows are padded with "" and 0.
    """
    row, start, end, is_first_piece = find_words(pieces, vocabulary)
    probabilities = tf.nn.softmax(tf.boolean_mask(logits, is_first_piece))  # [T, C]
    tag = tf.argmax(probabilities, axis=1, output_type=tf.int32)
    tag, first, last = find_entities(tag, row)
    words = {
        "words": substrings(text, row, start, end),
        "tags": tf.gather(tf.constant(labels), tag),
        "scores": tf.reduce_max(probabilities, axis=1),
    }
    types = tf.constant([label[2:] for label in labels])
    entity_row = tf.gather(row, first)
    entity_start, entity_end = tf.gather(start, first), tf.gather(end, last)
    entities = {
        "entities": substrings(text, entity_row, entity_start, entity_end),
        "entity_types": tf.gather(types, tf.gather(tag, first)),
        "entity_starts": character_offsets(text, entity_row, entity_start),
        "entity_ends": character_offsets(text, entity_row, entity_end),
        "entity_start_bytes": entity_start,
        "entity_end_bytes": entity_end,
    }

    def padded(columns: dict[str, tf.Tensor], row: tf.Tensor) -> dict[str, tf.Tensor]:
        partition = tf.RaggedTensor.from_value_rowids(
            row, row, nrows=tf.size(text), validate=False
        )
        return {k: partition.with_values(x).to_tensor() for k, x in columns.items()}

    return padded(words, row) | padded(entities, entity_row)


def find_entities(
    tag: tf.Tensor, row: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds entities as conlleval does: an I without a predecessor begins one.

    Args:
        tag: Indices of the tags of T words: O is 0, B of a type is odd, and its I is
            the next index [T] int32.
        row: The text of each word [T] int32.

    Returns:
        The tags as IOB2 [T] int32; the first and the last word of each entity, both
        [E] int64.
    """
    entity_type = (tag + 1) // 2  # 0 for O.
    is_same = tf.roll(entity_type, 1, 0) == entity_type
    is_same &= (tf.roll(row, 1, 0) == row) & (tf.range(tf.size(tag)) > 0)
    is_continued = (entity_type > 0) & (tag % 2 == 0) & is_same
    is_first = (entity_type > 0) & ~is_continued
    is_next_continued = tf.concat([is_continued[1:], [False]], 0)[: tf.size(tag)]
    is_last = (entity_type > 0) & ~is_next_continued
    tag = tf.where(is_first, 2 * entity_type - 1, tag)
    return tag, tf.where(is_first)[:, 0], tf.where(is_last)[:, 0]
