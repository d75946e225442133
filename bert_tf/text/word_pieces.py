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

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import flatbuffers
import flatbuffers.encode
import flatbuffers.packer
import flatbuffers.table
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import normalization
from bert_tf.text.rules import AddedToken, TokenizerRules
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

# The characters of words in a normalized text, by their number of UTF-8 bytes: all but
# spaces, ASCII punctuation and ideographs. Other punctuation has spaces around it.
# With them, a character of the same size that no vocabulary contains.
_WORD_CHARACTERS = (
    (r"\x00-\x1f0-9A-Za-z\x7f", "\1"),
    (r"\x{80}-\x{7ff}", "\x80"),
    (r"\x{800}-\x{33ff}\x{4dc0}-\x{4dff}\x{a000}-\x{f8ff}\x{fb00}-\x{ffff}", "\ufdd0"),
    (
        r"\x{10000}-\x{1ffff}\x{2a6e0}-\x{2a6ff}\x{2ceb0}-\x{2f7ff}"
        r"\x{2fa20}-\x{10ffff}",
        "\U0010ffff",
    ),
)
_WORD_CHARACTER = f"[{''.join(characters for characters, _ in _WORD_CHARACTERS)}]"
_MAX_BYTES_PER_CHARACTER = 4

# The place of `max_bytes_per_word` in the vtable of a WordPiece model, a flatbuffer of
# the schema `fast_wordpiece_tokenizer_model.fbs` of tensorflow/text.
_MAX_BYTES_FIELD = 12


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
        model = normalization.normalizer_model(lowercase, rules)
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(np.frombuffer(model, np.uint8))
        )
        self._has_final_sigma = lowercase and rules.library == "google"
        # Words with more bytes than allowed characters are checked again.
        self._max_bytes = rules.max_characters_per_word
        self.characters = normalization.character_rules(lowercase, rules)
        added = {token.content for token in rules.added_tokens}

        def protect(index: int, token: str) -> str:
            # tf_text would find a token with a space across words. It never finds
            # tokens with punctuation inside.
            if token.split() != [token] or token in added:
                return f"[]{index}"
            prefix = CONTINUATION_PREFIX * token.startswith(CONTINUATION_PREFIX)
            escapes = self.characters.escapes
            return prefix + token.removeprefix(prefix).translate(escapes)

        tokens = [*itertools.starmap(protect, enumerate(vocabulary.tokens))]
        self._wordpiece = tf_text.FastWordpieceTokenizer(
            tokens,
            max_bytes_per_word=self._max_bytes,
            token_out_type=tf.int32,
            unknown_token=tokens[vocabulary.unk_id],
        )
        with tf.init_scope():
            buffer = self._wordpiece._model.numpy()
        root = flatbuffers.encode.Get(flatbuffers.packer.uoffset, buffer, 0)
        table = flatbuffers.table.Table(buffer, root)
        self._max_bytes_offset = root + table.Offset(_MAX_BYTES_FIELD)
        self._rare_function = tf.function(
            self._tokenize_rare,
            autograph=False,
            reduce_retracing=True,
            experimental_attributes={"_noinline": True},
        )

    def tokenize(self, text: tf.Tensor, allow_mask: bool, with_offsets: bool) -> Pieces:
        """Splits strings [B] into pieces; see `Tokenizer.tokenize`."""
        raw, normalized = self._matchers(allow_mask)
        patterns = [raw.pattern] * bool(raw.tokens) + ["Σ"] * self._has_final_sigma
        # Rules that need more than one character are rare and slow. Texts that need
        # them are tokenized again.
        rest = tf.strings.regex_replace(text, "|".join(patterns) or "^$", "")
        forms, *origins = (
            self._normalizer.normalize_with_offsets(rest)
            if with_offsets
            else [self._normalizer.normalize(rest)]
        )
        pieces = self._wordpiece.tokenize_with_offsets(forms)
        # In parallel to the tokenizer, these ops would take longer.
        with tf.control_dependencies([pieces[0].values]):
            is_long = pieces[2].values - pieces[1].values > self._max_bytes
            is_matched = tf.strings.length(rest) != tf.strings.length(text)
            if normalized.tokens:
                is_matched |= forms != tf.strings.regex_replace(
                    forms, normalized.pattern, "", replace_global=False
                )
            is_rare = tf.reduce_any(tf.concat([is_long, is_matched], axis=0))
        common = _to_text(pieces, *origins, rest) if origins else pieces[:1]

        def with_rare() -> tuple[tf.RaggedTensor, ...]:
            row = tf.boolean_mask(pieces[0].value_rowids(), is_long)[:, tf.newaxis]
            mask = tf.tensor_scatter_nd_update(is_matched, row, row[:, 0] >= 0)
            # Inlined ops of an untaken branch would take time.
            eager = tf.executing_eagerly()
            replace = self._tokenize_rare if eager else self._rare_function
            return replace(text, mask, common, allow_mask)

        return Pieces(*tf.cond(is_rare, with_rare, lambda: common))

    def _tokenize_rare(
        self,
        text: tf.Tensor,
        is_rare: tf.Tensor,
        common: tuple[tf.RaggedTensor, ...],
        allow_mask: bool,
    ) -> tuple[tf.RaggedTensor, ...]:
        """Replaces the pieces `common` of some of the texts."""
        raw, normalized = self._matchers(allow_mask)
        rare = tf.boolean_mask(text, is_rare)
        # tf_text's split drops what follows NUL. Another control character has the same
        # effect.
        rest = tf.strings.regex_replace(rare, r"\x00", "\1")
        if self._has_final_sigma:
            rest = tf.strings.regex_replace(rest, _FINAL_SIGMA, r"\1ς\2")
        parts = raw.split(rest)
        forms, origins = self._normalizer.normalize_with_offsets(parts.text)
        form_parts = normalized.split(forms)
        words = self._mark_long_words(form_parts.text)
        pieces = self._long_wordpiece().tokenize_with_offsets(words)
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

    def _long_wordpiece(self) -> tf_text.FastWordpieceTokenizer:
        """Returns the WordPiece model with `_max_bytes` for the longest scripts."""
        buffer = self._wordpiece._model
        start = self._max_bytes_offset
        size = np.array([_MAX_BYTES_PER_CHARACTER * self._max_bytes], "<i4")
        changed = [buffer[:start], size.view(np.uint8), buffer[start + 4 :]]
        return tf_text.FastWordpieceTokenizer(
            model_buffer=tf.concat(changed, axis=0), token_out_type=tf.int32
        )

    def _matchers(self, allow_mask: bool) -> tuple[_Matcher, _Matcher]:
        """Returns the matchers of tokens in the texts and in normalized texts."""
        tokens = list(self._rules.added_tokens)
        if allow_mask and all(token.content != MASK for token in tokens):
            tokens.append(AddedToken(MASK))
        raw, normalized = (
            _Matcher(
                (token for token in tokens if token.normalized == is_normalized),
                self._vocabulary,
                self.characters.apply,
            )
            for is_normalized in (False, True)
        )
        return raw, normalized

    def _mark_long_words(self, words: tf.Tensor) -> tf.Tensor:
        """Makes words that are too long unknown. The number of bytes stays the same."""
        limit = self._rules.max_characters_per_word
        for characters, marker in _WORD_CHARACTERS:
            pattern = f"({_WORD_CHARACTER}{{{limit}}})[{characters}]"
            words = tf.strings.regex_replace(words, pattern, rf"\1{marker}")
        return words


def _to_text(
    pieces: Sequence[tf.RaggedTensor],
    origins: tf.RaggedTensor,
    text: tf.Tensor,
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
    sizes = tf.cast(tf.strings.length(text), tf.int64)
    text_starts = tf.gather(tf.cumsum(sizes, exclusive=True), row)
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
    first_byte = tf.gather(all_bytes, text_starts + last)
    is_longer = [first_byte >= lead for lead in (0xC0, 0xE0, 0xF0)]  # UTF-8.
    size = 1 + tf.add_n([tf.cast(longer, tf.int64) for longer in is_longer])
    end = tf.maximum(end, last + size)
    offsets = (tf.cast(offset, tf.int32) for offset in (start, end))
    return ids, *(ids.with_values(offset) for offset in offsets)


# --- Added tokens ----------------------------------------------------------------
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


class _Matcher:
    """Finds added tokens.

    Attributes:
        tokens: The tokens, the longest first.
        pattern: A regular expression that matches all of them.

    Args:
        tokens: The tokens. All must have the same value of `normalized`.
        vocabulary: The vocabulary, which contains them.
        normalize: What the normalizer does with a text.
    """

    def __init__(
        self,
        tokens: Iterable[AddedToken],
        vocabulary: Vocabulary,
        normalize: Callable[[str], str],
    ):
        self.tokens = sorted(tokens, key=lambda token: -len(token.content))
        self._ids = vocabulary.ids(token.content for token in self.tokens)
        self._contents = [
            normalize(token.content) if token.normalized else token.content
            for token in self.tokens
        ]
        nothing = r"[^\x00-\x{10ffff}]"
        self.pattern = "|".join(map(re.escape, self._contents)) or nothing

    def split(self, text: tf.Tensor) -> _Parts:
        """Splits texts [B] at the tokens."""
        fields = tf_text.regex_split_with_offsets(text, self.pattern, self.pattern)
        part, start, end = (field.values for field in fields)
        is_equal = part[:, tf.newaxis] == tf.constant(self._contents, tf.string)
        ids = tf.where(is_equal, tf.constant(self._ids, tf.int32), -1)  # [P, tokens]
        ids = tf.reduce_max(ids, axis=1)
        rest = tf.where(ids >= 0, "", part)
        return _Parts(fields[0].value_rowids(), start, end - start, ids, rest)


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
