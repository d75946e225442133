# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Logits of word pieces -> tagged words and entities; graph functions."""

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
    by_word: bool = True,
    join_weights: str = "",
) -> dict[str, tf.Tensor]:
    """Returns the words of N texts with their tags, and the entities.

    Labels other than B-, I- and O make each tagged word an entity of its own.

    Args:
        text: Strings [N].
        pieces: Pieces of the texts with offsets, ragged [N, (pieces)].
        logits: Logits of all pieces [pieces, C].
        vocabulary: Vocabulary of the pieces.
        labels: The C tags.
        by_word: Whether the first piece of a word decides its tag, as in the paper.
            Otherwise, every piece counts as a word; these are the entities of
            transformers' pipeline with `aggregation_strategy="simple"`.
        join_weights: As in `find_words`.

    Returns:
        For the W words of a text: `words`, `tags` [N, W] string, `scores` [N, W]
        float32, the probabilities of the tags. For its E entities: `entities`,
        `entity_types` [N, E] string; `entity_scores` [N, E] float32, the mean of the
        scores of their words; their offsets in characters, `entity_starts`,
        `entity_ends`, and in bytes, `entity_start_bytes`, `entity_end_bytes` [N, E]
        int32, ends exclusive. Rows are padded with "" and 0.
    """
    if by_word:
        row, start, end, is_first_piece = find_words(pieces, vocabulary, join_weights)
        logits = tf.boolean_mask(logits, is_first_piece)
    else:
        row = tf.cast(pieces.ids.value_rowids(), tf.int32)
        start, end = pieces.starts.values, pieces.ends.values
    tags, scores, entity_type, is_first, is_last = _decode(logits, row, labels)
    words = {"words": substrings(text, row, start, end), "tags": tags, "scores": scores}
    first, last = tf.where(is_first)[:, 0], tf.where(is_last)[:, 0]
    entity_row = tf.gather(row, first)
    entity_start, entity_end = tf.gather(start, first), tf.gather(end, last)
    entity = tf.cumsum(tf.cast(is_first, tf.int32)) - 1  # Of each word of an entity.
    in_entity = tf.not_equal(entity_type, "")
    entities = {
        "entities": substrings(text, entity_row, entity_start, entity_end),
        "entity_types": tf.gather(entity_type, first),
        "entity_scores": tf.math.segment_mean(
            tf.boolean_mask(scores, in_entity), tf.boolean_mask(entity, in_entity)
        ),
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


def tag_words(
    is_word: tf.Tensor, logits: tf.Tensor, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Returns the tags of N texts that the client has split into words.

    Args:
        is_word: Which of the W values of each text are words, not padding [N, W] bool.
        logits: Logits of the words [T, C].
        labels: The C labels, as in `tag_text`.

    Returns:
        `tags` [N, W] string and `scores` [N, W] float32; "" and 0 for padding.
    """
    index = tf.where(is_word)  # [T, 2]
    tags, scores, *_ = _decode(logits, tf.cast(index[:, 0], tf.int32), labels)
    shape = tf.shape(is_word, out_type=tf.int64)
    # 1 + the number of the word; 0 for padding.
    number = tf.scatter_nd(index, tf.range(tf.size(tags)) + 1, shape)
    return {
        "tags": tf.gather(tf.concat([[""], tags], axis=0), number),
        "scores": tf.gather(tf.concat([[0.0], scores], axis=0), number),
    }


def _decode(
    logits: tf.Tensor, row: tf.Tensor, labels: Sequence[str]
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the best tags of T words, each [T].

    Returns:
        The tag, its probability, the entity type ("" for O), and whether the word is
        the first, and the last, of an entity.
    """
    is_iob = is_iob_scheme(labels)
    probabilities = tf.nn.softmax(logits)
    tag = tf.argmax(probabilities, axis=1, output_type=tf.int32)
    types = ["" if x == "O" else x[2:] if is_iob else x for x in labels]
    names = sorted({"", *types})  # The first is that of O.
    entity_type = tf.gather(tf.constant([names.index(x) for x in types]), tag)
    begins = [not is_iob or label.startswith("B-") for label in labels]
    is_first, is_last = find_entities(
        entity_type, tf.gather(tf.constant(begins), tag), row
    )
    tags = tf.gather(tf.constant(labels), tag)
    if is_iob:
        iob2 = tf.constant([f"B-{name}" for name in names])
        tags = tf.where(is_first, tf.gather(iob2, entity_type), tags)
    entity_type = tf.gather(tf.constant(names), entity_type)
    return tags, tf.reduce_max(probabilities, axis=1), entity_type, is_first, is_last


def is_iob_scheme(labels: Sequence[str]) -> bool:
    """Returns whether labels are those of IOB1 or IOB2 (BIO): O, and B- or I-type."""
    labels = set(labels) - {"O"}
    return bool(labels) and all(x[:2] in ("B-", "I-") and x[2:] for x in labels)


def find_entities(
    entity_type: tf.Tensor, begins: tf.Tensor, row: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds entities as conlleval does: an I without a predecessor begins one.

    Args:
        entity_type: Index of the entity type of T words, 0 for O [T] int32.
        begins: Whether the tag of the word is a B [T] bool.
        row: The text of each word [T] int32.

    Returns:
        Whether each word is the first, and the last, of an entity [T] bool.
    """
    in_entity = entity_type > 0
    is_same = tf.roll(entity_type, 1, 0) == entity_type
    is_same &= (tf.roll(row, 1, 0) == row) & (tf.range(tf.size(row)) > 0)
    is_continued = in_entity & ~begins & is_same
    is_next_continued = tf.concat([is_continued[1:], [False]], 0)[: tf.size(row)]
    return in_entity & ~is_continued, in_entity & ~is_next_continued
