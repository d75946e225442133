# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokens that are found as strings inside texts; graph functions.

The rules are those of `AddedVocabulary` in the library tokenizers: the leftmost match
wins, the longest if several begin there. Texts are split at the tokens, what is between
them is tokenized, and the results are joined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text.rules import AddedToken

_BLANK = r"[\t-\r\x{85}\p{Z}]"
_WORD = r"[\p{L}\p{M}\p{N}\p{Pc}\x{200c}\x{200d}]"


class Parts(NamedTuple):
    """B texts, split into P parts.

    Attributes:
        row: Index of the text [P] int64.
        start: Offset of the first byte in the text [P] int64.
        size: Number of bytes [P] int64.
        id: Id of the added token [P] int32, or -1.
        text: The part [P] string, or "" instead of an added token.
    """

    row: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    id: tf.Tensor
    text: tf.Tensor


class Matcher:
    """Finds added tokens.

    Attributes:
        tokens: The tokens, the longest first.
        pattern: A regular expression that matches all of them.

    Args:
        tokens: The tokens. All must have the same value of `normalized`.
        ids: Their ids.
        normalize: What the normalizer does with a text.
    """

    def __init__(
        self,
        tokens: Sequence[AddedToken],
        ids: Sequence[int],
        normalize: Callable[[str], str],
    ):
        pairs = sorted(zip(tokens, ids), key=lambda pair: -len(pair[0].content))
        self.tokens = [token for token, _ in pairs]
        self._ids = [token_id for _, token_id in pairs]
        self._contents = [
            normalize(token.content) if token.normalized else token.content
            for token in self.tokens
        ]
        self.pattern = "|".join(
            f"{_BLANK}*" * token.lstrip
            + re.escape(content)
            + f"{_BLANK}*" * token.rstrip
            for token, content in zip(self.tokens, self._contents)
        )

    def split(self, text: tf.Tensor) -> Parts:
        """Splits texts [B] at the tokens."""
        if not self.tokens:
            row = tf.range(tf.size(text, tf.int64))
            size = tf.cast(tf.strings.length(text), tf.int64)
            return Parts(row, 0 * row, size, tf.cast(0 * row - 1, tf.int32), text)
        parts, start, end = tf_text.regex_split_with_offsets(
            text, self.pattern, self.pattern
        )
        row, part, start, end = (
            parts.value_rowids(),
            parts.values,
            start.values,
            end.values,
        )
        blanks = f"^{_BLANK}+|{_BLANK}+$"
        content = tf.strings.regex_replace(part, blanks, "")
        contents = [re.sub(r"^\s+|\s+$", "", content) for content in self._contents]
        is_equal = content[:, tf.newaxis] == tf.constant(contents)  # [P, tokens]
        is_token = tf.reduce_any(is_equal, axis=1)
        index = tf.argmax(tf.cast(is_equal, tf.int32), axis=1)
        follows = tf.concat([[False], row[1:] == row[:-1]], 0)[: tf.size(row)]
        if any(token.single_word for token in self.tokens):
            before = tf.where(follows, tf.roll(part, 1, 0), "")
            after = tf.where(tf.roll(follows, -1, 0), tf.roll(part, -1, 0), "")
            touches = tf.strings.regex_full_match(before, f"(?s).*{_WORD}")
            touches &= ~tf.strings.regex_full_match(part, f"(?s){_BLANK}.*")
            touches_next = tf.strings.regex_full_match(after, f"(?s){_WORD}.*")
            touches |= touches_next & ~tf.strings.regex_full_match(
                part, f"(?s).*{_BLANK}"
            )
            single = tf.constant([token.single_word for token in self.tokens])
            is_token &= ~(touches & tf.gather(single, index))
            # Join the parts around a match that is none after all.
            was_token = tf.concat([[False], is_token[:-1]], 0)[: tf.size(row)]
            begins = is_token | was_token | ~follows
            group = tf.cumsum(tf.cast(begins, tf.int64)) - 1
            count = tf.reduce_sum(tf.cast(begins, tf.int64))
            part = tf.strings.unsorted_segment_join(part, group, count)
            row, start, is_token, index = (
                tf.boolean_mask(values, begins)
                for values in (row, start, is_token, index)
            )
            end = start + tf.cast(tf.strings.length(part), tf.int64)
        ids = tf.where(is_token, tf.gather(tf.constant(self._ids), index), -1)
        return Parts(row, start, end - start, ids, tf.where(is_token, "", part))


def is_found(text: tf.Tensor, pattern: str) -> tf.Tensor:
    """Whether each of the texts [B] contains the pattern; bool [B]."""
    return tf.strings.regex_replace(text, pattern, "", replace_global=False) != text


def join(
    pieces: Sequence[tf.RaggedTensor], parts: Parts, num_texts: tf.Tensor
) -> tuple[tf.RaggedTensor, ...]:
    """Joins the pieces of P parts to those of B texts.

    Args:
        pieces: Ids, starts and ends of the pieces in each part, ragged [P, (pieces)].
        parts: The parts.
        num_texts: B.

    Returns:
        Ids, starts and ends of the pieces in each text, ragged [B, (pieces)].
    """
    is_token = parts.id >= 0
    count = tf.cast(is_token, tf.int64)
    joined = []
    for field, values in zip(pieces, (parts.id, 0 * parts.size, parts.size)):
        values = tf.cast(tf.boolean_mask(values, is_token), field.dtype)
        token = tf.RaggedTensor.from_row_lengths(values, count, validate=False)
        joined.append(tf.concat([field, token], axis=1))
    ids, starts, ends = joined
    part = ids.value_rowids()
    offset = tf.cast(tf.gather(parts.start, part), starts.dtype)
    return tuple(
        tf.RaggedTensor.from_value_rowids(
            values,
            tf.gather(parts.row, part),
            nrows=tf.cast(num_texts, tf.int64),
            validate=False,
        )
        for values in (ids.values, starts.values + offset, ends.values + offset)
    )
