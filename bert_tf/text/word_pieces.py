# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""From strings to word pieces, as TensorFlow graph functions.

Common texts take one pass of tf_text's normalizer and WordPiece tokenizer. Texts that
need rules of more than one character, e.g. with added tokens, are tokenized again.

The graph uses only ops that TensorFlow Serving links since 2.12: tf_text's
FastBertNormalize, FastWordpieceTokenizeWithOffsets and RegexSplitWithOffsets, and core
TensorFlow ops.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.lazy import import_tensorflow_text
from bert_tf.text import normalization
from bert_tf.text.normalization import AddedToken, TokenizerRules
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, MASK, Vocabulary

tf_text = import_tensorflow_text()

# Python lowercases a sigma at the end of a word to ς (Unicode standard, section 3.13):
# a cased letter precedes it and none follows, ignoring certain characters in between.
# The normalizer sees single characters, so a regular expression replaces final sigmas
# before it. Characters that the normalizer deletes are ignored too.
_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_IGNORED = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·՟״‘’․‧︓﹒﹕＇．："
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\x{fffd}"
)
_FINAL_SIGMA = f"([{_CASED}][{_IGNORED}]*)Σ([{_IGNORED}]*(?:[^{_CASED}{_IGNORED}]|$))"

# The characters of words in a normalized text: all but spaces, ASCII punctuation and
# ideographs. Other punctuation has spaces around it. In other texts, such words may be
# longer, but never shorter than a third.
_WORD_CHARACTER = f"[^ -/:-@[-`{{-~{normalization.IDEOGRAPHS}]"
_MAX_BYTES_PER_CHARACTER = 4
# The normalizer makes up to three characters of one, of Hangul syllables.
_MAX_EXPANSION = 3

# Texts that an eager call tokenizes together.
_TEXTS_AT_ONCE = 4096

_BYTES = [bytes([byte]) for byte in range(256)]


class Pieces(NamedTuple):
    """Word pieces of B texts, each field ragged [B, (pieces)] int32.

    A piece covers the bytes `starts` to `ends` (exclusive) of its text, including
    combining accents after its letters. If one character gives several pieces, each of
    them covers the whole character.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor | None = None
    ends: tf.RaggedTensor | None = None


class WordPieces:
    """The normalizer and the WordPiece model of a tokenizer.

    Args:
        vocabulary: The vocabulary.
        lowercase: Whether to lowercase and strip accents.
        rules: All other rules.
    """

    def __init__(self, vocabulary: Vocabulary, lowercase: bool, rules: TokenizerRules):
        self._vocabulary = vocabulary
        self._rules = rules
        self.characters = normalization.character_rules(
            lowercase, rules.library, rules.strip_accents, rules.split_chinese
        )
        model = self.characters.normalizer_model
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(np.frombuffer(model, np.uint8))
        )
        self._has_final_sigma = lowercase and rules.library == "google"
        added = {token.content for token in rules.added_tokens}

        def protect(index: int, token: str) -> str:
            # tf_text would find a token with a space across words, and refuses one of
            # more than 256 bytes. It never finds tokens with punctuation inside.
            if token.split() != [token] or token in added or len(token.encode()) > 256:
                return f"[]{index}"
            prefix = CONTINUATION_PREFIX * token.startswith(CONTINUATION_PREFIX)
            escapes = self.characters.escapes
            return prefix + token.removeprefix(prefix).translate(escapes)

        tokens = [protect(i, token) for i, token in enumerate(vocabulary.tokens)]
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            tokens,
            max_bytes_per_word=_MAX_BYTES_PER_CHARACTER * rules.max_characters_per_word,
            token_out_type=tf.int32,
            unknown_token=tokens[vocabulary.unk_id],
        )

    def tokenize(
        self,
        text: tf.Tensor,
        allow_mask: bool,
        with_offsets: bool,
        max_pieces: int | None = None,
    ) -> Pieces:
        """Splits strings [B] into pieces; see `Tokenizer.tokenize`.

        Args:
            text: The texts. Eagerly, many texts are tokenized in parts, which bounds
                the memory.
            allow_mask: See `Tokenizer.tokenize`.
            with_offsets: Whether to compute the offsets.
            max_pieces: The first pieces of a text that the caller needs; None for all.
                Further ones may be returned.
        """
        if tf.executing_eagerly() and len(text) > _TEXTS_AT_ONCE:
            parts = []
            for start in range(0, len(text), _TEXTS_AT_ONCE):
                part = text[start : start + _TEXTS_AT_ONCE]
                pieces = self.tokenize(part, allow_mask, with_offsets)
                parts.append([x[:, :max_pieces] for x in pieces if x is not None])
            return Pieces(*(tf.concat(fields, axis=0) for fields in zip(*parts)))
        raw, normalized = self._added_ids(allow_mask)
        # Rules that need more than one character are rare and slow. Texts that may need
        # them are tokenized again.
        limit = self._rules.max_characters_per_word // _MAX_EXPANSION
        patterns = (_any(raw), "Σ" * self._has_final_sigma, _word_longer_than(limit))
        rest = tf.strings.regex_replace(text, "|".join(filter(None, patterns)), "")
        is_rare = tf.strings.length(rest) != tf.strings.length(text)
        forms, origins = self._normalize(rest, with_offsets)
        if normalized:
            is_rare |= forms != tf.strings.regex_replace(
                forms, _any(normalized), "", replace_global=False
            )
        ids, starts, ends = self._wordpiece.tokenize_with_offsets(
            tf.where(is_rare, "", forms)
        )
        common = _FlatPieces.from_ragged(ids, starts, ends)
        if with_offsets:
            common = _to_text(common, origins, rest)

        def with_rare() -> tuple[tf.Tensor, ...]:
            index = tf.where(is_rare)[:, 0]
            rare = tf.gather(text, index)
            rare = self._tokenize_rare(rare, raw, normalized, with_offsets)
            rare = rare._replace(row=tf.gather(index, rare.row))
            # Again, so that the graph computes the rows of common texts only here.
            both = common._replace(row=ids.value_rowids()), rare
            row, *fields = (tf.concat(field, axis=0) for field in zip(*both))
            order = tf.argsort(row, stable=True)
            every_row = tf.range(tf.size(text, tf.int64) + 1)
            row = tf.gather(row, order)
            splits = tf.searchsorted(row, every_row, out_type=tf.int64)
            return splits, *(tf.gather(field, order) for field in fields)

        splits, *fields = tf.cond(
            tf.reduce_any(is_rare), with_rare, lambda: (ids.row_splits, *common[1:])
        )
        fields = fields if with_offsets else fields[:1]
        ids = tf.RaggedTensor.from_row_splits(fields[0], splits, validate=False)
        return Pieces(*(ids.with_values(field) for field in fields))

    def _normalize(
        self, text: tf.Tensor, with_offsets: bool
    ) -> tuple[tf.Tensor, tf.RaggedTensor | None]:
        """Returns normalized texts [B], and where each of their bytes comes from.

        Those are offsets in `text`, ragged [B, (bytes + 1)] int64. The last of a text
        is its size.
        """
        if with_offsets:
            return self._normalizer.normalize_with_offsets(text)
        return self._normalizer.normalize(text), None  # Twice as fast.

    def _tokenize_rare(
        self,
        text: tf.Tensor,
        raw: Mapping[str, int],
        normalized: Mapping[str, int],
        with_offsets: bool,
    ) -> _FlatPieces:
        """Splits texts [B] into pieces by all rules.

        Args:
            text: The texts.
            raw: Ids of the tokens to find in the texts.
            normalized: Ids of the tokens to find in normalized texts.
            with_offsets: Whether to compute the offsets.
        """
        # NUL separates parts. Another control character has the same effect.
        text = tf.strings.regex_replace(text, r"\x00", "\1")
        if self._has_final_sigma:
            text = tf.strings.regex_replace(text, _FINAL_SIGMA, r"\1ς\2")
        parts = _split(text, _any(raw), raw)
        forms, origins = self._normalize(parts.text, with_offsets)
        form_parts = _split(forms, _any(normalized), normalized)
        long_word = _word_longer_than(self._rules.max_characters_per_word)
        words = _split(form_parts.text, long_word, {}, self._vocabulary.unk_id)
        ragged = self._wordpiece.tokenize_with_offsets(words.text)
        pieces = _join(_join(_FlatPieces.from_ragged(*ragged), words), form_parts)
        if with_offsets:
            pieces = _to_text(pieces, origins, parts.text)
        return _join(pieces, parts)

    def _added_ids(self, allow_mask: bool) -> tuple[dict[str, int], dict[str, int]]:
        """Returns the ids of the added tokens in texts and in normalized texts."""
        tokens = [*self._rules.added_tokens, *[AddedToken(MASK)] * allow_mask]
        raw, normalized = {}, {}
        ids = self._vocabulary.ids(token.content for token in tokens)
        for token, token_id in zip(tokens, ids):
            if token.normalized:
                # The first counts of those that differ in case or accents only.
                normalized.setdefault(self.characters.apply(token.content), token_id)
            else:
                raw[token.content] = token_id
        return raw, normalized


def _any(tokens: Iterable[str]) -> str:
    """Returns a regular expression of tokens that prefers the longest."""
    ordered = sorted(tokens, key=len, reverse=True)
    return "|".join(map(re.escape, ordered)) or r"[^\x00-\x{10ffff}]"


def _word_longer_than(limit: int) -> str:
    return f"{_WORD_CHARACTER}{{{limit + 1},}}"


class _FlatPieces(NamedTuple):
    """The K pieces of B texts, in the order of the texts.

    Attributes:
        row: Index of the text [K] int64.
        id: [K] int32.
        start, end: Offsets in bytes [K] int32, the end exclusive.
    """

    row: tf.Tensor
    id: tf.Tensor
    start: tf.Tensor
    end: tf.Tensor

    @classmethod
    def from_ragged(
        cls, ids: tf.RaggedTensor, starts: tf.RaggedTensor, ends: tf.RaggedTensor
    ) -> _FlatPieces:
        fields = (tf.cast(field.values, tf.int32) for field in (ids, starts, ends))
        return cls(ids.value_rowids(), *fields)


def _to_text(
    pieces: _FlatPieces, origins: tf.RaggedTensor, text: tf.Tensor
) -> _FlatPieces:
    """Maps offsets in normalized texts to offsets in the texts [B]."""
    # `origins` has one more value per row: the length of the text.
    row_start = tf.cast(tf.gather(origins.row_starts(), pieces.row), tf.int32)
    origin = tf.cast(origins.values, tf.int32)
    start = tf.gather(origin, row_start + pieces.start)
    last = tf.gather(origin, row_start + pieces.end - 1)
    end = tf.gather(origin, row_start + pieces.end)

    # All bytes of a replacement map to the first byte of the replaced character.
    # Extend pieces that end inside a replacement to the end of that character.
    all_bytes, text_starts = _decode(text)
    first_byte = tf.gather(all_bytes, tf.gather(text_starts, pieces.row) + last)
    is_longer = first_byte[:, tf.newaxis] >= [0xC0, 0xE0, 0xF0]  # UTF-8.
    size = 1 + tf.math.count_nonzero(is_longer, axis=1, dtype=tf.int32)
    return pieces._replace(start=start, end=tf.maximum(end, last + size))


# --- Parts -----------------------------------------------------------------------
# The rules are those of `AddedVocabulary` in the library tokenizers: the leftmost match
# wins, the longest if several begin there. Texts are split at the tokens, the parts
# between them are tokenized, and the results are joined. All tensors are flat: ragged
# ones would make the graph several times larger, which slows down the start of servers.


class _Parts(NamedTuple):
    """B texts, split into P parts.

    Attributes:
        row: Index of the text [P] int64.
        start: Offset of the first byte in the text [P] int32.
        size: Number of bytes [P] int32.
        id: Id of the added token [P] int32, or a negative number.
        text: The part [P] string; instead of an added token, a letter, which has one
            piece.
    """

    row: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    id: tf.Tensor
    text: tf.Tensor


def _split(
    text: tf.Tensor, pattern: str, ids: Mapping[str, int], other_id: int = -1
) -> _Parts:
    """Splits texts [B] without NUL at the matches of a regular expression.

    Args:
        text: The texts.
        pattern: The regular expression.
        ids: The ids of some matches.
        other_id: The id of the others.
    """
    marked = tf.strings.regex_replace(text, f"({pattern})", "\0\\1\0")
    fields = tf.raw_ops.StringSplitV2(input=marked, sep="\0")
    row, number = tf.unstack(fields.indices, axis=1)
    part, size = fields.values, tf.strings.length(fields.values)
    text_start = tf.cumsum(tf.strings.length(text), exclusive=True)
    start = tf.cumsum(size, exclusive=True) - tf.gather(text_start, row)
    is_match = number % 2 == 1
    is_token = part[:, tf.newaxis] == tf.constant([*ids], tf.string)  # [P, tokens]
    token_ids = tf.where(is_token, tf.constant([*ids.values()], tf.int32), -1)
    part_ids = tf.maximum(tf.reduce_max(token_ids, axis=1), other_id)
    part_ids = tf.where(is_match, part_ids, -1)
    return _Parts(row, start, size, part_ids, tf.where(is_match, "a", part))


def _join(pieces: _FlatPieces, parts: _Parts) -> _FlatPieces:
    """Joins the pieces of P parts to those of B texts."""
    row, start, size, part_id = (tf.gather(x, pieces.row) for x in parts[:4])
    is_token = part_id >= 0
    return _FlatPieces(
        row,
        tf.where(is_token, part_id, pieces.id),
        start + tf.where(is_token, 0, pieces.start),
        start + tf.where(is_token, size, pieces.end),
    )


# --- Byte offsets ----------------------------------------------------------------
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
