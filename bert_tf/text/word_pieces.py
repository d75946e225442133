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
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import normalization, offsets
from bert_tf.text.normalization import AddedToken, TokenizerRules
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, MASK, Vocabulary

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
        self._rare_function = tf.function(
            self._tokenize_rare,
            autograph=False,
            reduce_retracing=True,
            experimental_attributes={"_noinline": True},
        )

    def tokenize(self, text: tf.Tensor, allow_mask: bool, with_offsets: bool) -> Pieces:
        """Splits strings [B] into pieces; see `Tokenizer.tokenize`."""
        raw, normalized = self._added_ids(allow_mask)
        # Rules that need more than one character are rare and slow. Texts that may need
        # them are tokenized again.
        limit = self._rules.max_characters_per_word // _MAX_EXPANSION
        patterns = (_any(raw), "Σ" * self._has_final_sigma, _word_longer_than(limit))
        rest = tf.strings.regex_replace(text, "|".join(filter(None, patterns)), "")
        forms, *origins = (
            self._normalizer.normalize_with_offsets(rest)
            if with_offsets
            else [self._normalizer.normalize(rest)]
        )
        pieces = self._wordpiece.tokenize_with_offsets(forms)
        common = _to_text(pieces, *origins, rest) if origins else pieces[:1]
        is_rare = tf.strings.length(rest) != tf.strings.length(text)
        if normalized:
            is_rare |= forms != tf.strings.regex_replace(
                forms, _any(normalized), "", replace_global=False
            )

        def with_rare() -> tuple[tf.RaggedTensor, ...]:
            # Tracing takes seconds. In graphs, inlined ops of an untaken branch would
            # take time.
            eager = tf.executing_eagerly()
            replace = self._tokenize_rare if eager else self._rare_function
            return replace(text, is_rare, common, allow_mask)

        return Pieces(*tf.cond(tf.reduce_any(is_rare), with_rare, lambda: common))

    def _tokenize_rare(
        self,
        text: tf.Tensor,
        is_rare: tf.Tensor,
        common: tuple[tf.RaggedTensor, ...],
        allow_mask: bool,
    ) -> tuple[tf.RaggedTensor, ...]:
        """Replaces the pieces `common` of some of the texts."""
        raw, normalized = self._added_ids(allow_mask)
        rare = tf.boolean_mask(text, is_rare)
        # tf_text's split drops what follows NUL. Another control character has the same
        # effect.
        rest = tf.strings.regex_replace(rare, r"\x00", "\1")
        if self._has_final_sigma:
            rest = tf.strings.regex_replace(rest, _FINAL_SIGMA, r"\1ς\2")
        parts = _split(rest, _any(raw), raw)
        forms, origins = self._normalizer.normalize_with_offsets(parts.text)
        form_parts = _split(forms, _any(normalized), normalized)
        long_word = _word_longer_than(self._rules.max_characters_per_word)
        unknown = self._vocabulary.unk_id
        word_parts = _split(form_parts.text, long_word, {}, unknown)
        pieces = self._wordpiece.tokenize_with_offsets(word_parts.text)
        pieces = _join_parts(pieces, word_parts, tf.size(form_parts.text))
        pieces = _join_parts(pieces, form_parts, tf.size(parts.text))
        pieces = _to_text(pieces, origins, parts.text)
        pieces = _join_parts(pieces, parts, tf.size(rare))
        count = tf.size(text, tf.int64)
        last = count + tf.range(tf.size(rare, tf.int64))
        order = tf.range(count)
        order = tf.tensor_scatter_nd_update(order, tf.where(is_rare), last)
        return tuple(
            tf.gather(tf.concat(both, axis=0), order) for both in zip(common, pieces)
        )

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


def _to_text(
    pieces: Sequence[tf.RaggedTensor], origins: tf.RaggedTensor, text: tf.Tensor
) -> tuple[tf.RaggedTensor, ...]:
    """Maps offsets in normalized texts to offsets in the texts [B]."""
    ids, starts, ends = pieces
    row = ids.value_rowids()

    # `origins` has one more value per row: the length of the text.
    first = starts.values + tf.gather(origins.row_starts(), row)
    after_last = ends.values + tf.gather(origins.row_starts(), row)
    start = tf.gather(origins.values, first)
    last = tf.gather(origins.values, after_last - 1)
    end = tf.gather(origins.values, after_last)

    # All bytes of a replacement map to the first byte of the replaced character.
    # Extend pieces that end inside a replacement to the end of that character.
    start, last, end = (tf.cast(offset, tf.int32) for offset in (start, last, end))
    all_bytes, text_starts = offsets.decode(text)
    first_byte = tf.gather(all_bytes, tf.gather(text_starts, row) + last)
    is_longer = [first_byte >= lead for lead in (0xC0, 0xE0, 0xF0)]  # UTF-8.
    size = 1 + tf.add_n([tf.cast(longer, tf.int32) for longer in is_longer])
    end = tf.maximum(end, last + size)
    return ids, ids.with_values(start), ids.with_values(end)


# --- Parts -----------------------------------------------------------------------
# The rules are those of `AddedVocabulary` in the library tokenizers: the leftmost match
# wins, the longest if several begin there. Texts are split at the tokens, the parts
# between them are tokenized, and the results are joined.


class _Parts(NamedTuple):
    """B texts, split into P parts.

    Attributes:
        row: Index of the text [P] int64.
        start: Offset of the first byte in the text [P] int64.
        size: Number of bytes [P] int64.
        id: Id of the added token [P] int32, or a negative number.
        text: The part [P] string, or "" instead of an added token.
    """

    row: tf.Tensor
    start: tf.Tensor
    size: tf.Tensor
    id: tf.Tensor
    text: tf.Tensor


def _split(
    text: tf.Tensor, pattern: str, ids: Mapping[str, int], other_id: int = -1
) -> _Parts:
    """Splits texts [B] at the matches of a regular expression.

    Args:
        text: The texts.
        pattern: The regular expression.
        ids: The ids of some matches.
        other_id: The id of the others.
    """
    fields = tf_text.regex_split_with_offsets(text, pattern, pattern)
    part, start, end = (field.values for field in fields)
    is_match = tf.strings.regex_full_match(part, pattern)
    is_token = part[:, tf.newaxis] == tf.constant([*ids], tf.string)  # [P, tokens]
    token_ids = tf.where(is_token, tf.constant([*ids.values()], tf.int32), -1)
    part_ids = tf.where(is_match, other_id, -1)
    part_ids = tf.maximum(part_ids, tf.reduce_max(token_ids, axis=1))
    rest = tf.where(is_match, "", part)
    return _Parts(fields[0].value_rowids(), start, end - start, part_ids, rest)


def _join_parts(
    pieces: Sequence[tf.RaggedTensor], parts: _Parts, num_texts: tf.Tensor
) -> tuple[tf.RaggedTensor, ...]:
    """Joins the pieces of P parts to those of B texts.

    Args:
        pieces: Ids, starts and ends of the pieces in each part, ragged [P, (pieces)].
        parts: The parts.
        num_texts: B.

    Returns:
        Ids, starts and ends of the pieces in each text, ragged [B, (pieces)].
    """
    is_token = parts.id[:, tf.newaxis] >= 0
    joined = []
    for field, values in zip(pieces, (parts.id, 0 * parts.size, parts.size)):
        values = tf.cast(values, field.dtype)[:, tf.newaxis]
        token = tf.ragged.boolean_mask(values, is_token)
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
