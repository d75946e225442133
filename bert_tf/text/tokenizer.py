# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's tokenizer as TensorFlow graph functions, shared by training and serving.

Input: UTF-8 strings [B]. Output: `token_ids`, `segment_ids`, `padding_mask` [B, S]
int32 of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP], optionally with byte offsets.

`TokenizerRules` says whose tokenizer the results equal: that of google-research/bert or
that of a Hugging Face folder.

The graph uses only ops that TensorFlow Serving links since 2.12: tf_text's
FastBertNormalize, FastWordpieceTokenizeWithOffsets and RegexSplitWithOffsets, and core
TensorFlow ops.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import flatbuffers
import flatbuffers.encode
import flatbuffers.packer
import flatbuffers.table
import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf import loading
from bert_tf.text import added_tokens, normalization
from bert_tf.text.rules import GOOGLE_RULES, AddedToken, TokenizerRules
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


class Tokenizer:
    """BERT's tokenizer (arXiv 1810.04805, section 3; arXiv 1609.08144).

    All methods work eagerly, in `tf.data` and in a SavedModel, which then contains the
    vocabulary and the normalization rules. Invalid UTF-8 bytes are skipped.

    Like the layers of Keras, `encode` and `tokenize` map strings [B] to tensors [B, S],
    and one string to tensors [S].

    Args:
        vocabulary: A `Vocabulary` or the path of a vocabulary file.
        lowercase: Whether to lowercase and strip accents, as uncased models require.
        max_sequence_length: The default of `encode`.
        rules: All other rules. By default those of google-research/bert.

    Example:

    ```python
    tokenizer = Tokenizer("vocab.txt")
    inputs = tokenizer.encode(["The cat sat."], max_sequence_length=128)
    tokenizer.decode(inputs["token_ids"])
    ```
    """

    def __init__(
        self,
        vocabulary: Vocabulary | str | os.PathLike,
        lowercase: bool = True,
        max_sequence_length: int = 512,
        *,
        rules: TokenizerRules = GOOGLE_RULES,
    ):
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = Vocabulary.from_file(vocabulary)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.max_sequence_length = max_sequence_length
        self.rules = rules
        model = normalization.normalizer_model(lowercase, rules)
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(np.frombuffer(model, np.uint8))
        )
        self._has_final_sigma = lowercase and rules.library == "google"
        # Words with more bytes than allowed characters are checked again.
        self._max_bytes = rules.max_characters_per_word
        self._characters = normalization.character_rules(lowercase, rules)
        unreachable = {t.content for t in rules.added_tokens if not t.in_wordpiece}

        def protect(index: int, token: str) -> str:
            # tf_text would find a token with a space across words. It never finds
            # tokens with punctuation inside.
            if token.split() != [token] or token in unreachable:
                return f"[]{index}"
            prefix = CONTINUATION_PREFIX * token.startswith(CONTINUATION_PREFIX)
            escapes = self._characters.escapes
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

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike) -> Tokenizer:
        """Returns the tokenizer of a checkpoint, with its casing and maximum length.

        Args:
            path: As for `BertBackbone.from_checkpoint`.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT, or its tokenizer has
                rules that are not supported.
        """
        return loading.load_tokenizer(loading.open_checkpoint(path))

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocabulary!r}, lowercase={self.lowercase})"

    def normalize(self, text: str) -> str:
        """Returns the text that is split into words; in Python, not in the graph."""
        return self._characters.apply(text)

    # --- Word pieces -------------------------------------------------------------

    def tokenize(self, text: tf.Tensor, *, allow_mask: bool = False) -> tf.RaggedTensor:
        """Splits texts into word pieces, without special tokens.

        Args:
            text: Strings [B], or one string.
            allow_mask: Whether "[MASK]" in a text becomes the mask token, although
                the rules do not have it among their `added_tokens`.

        Returns:
            Ids, ragged [B, (pieces)] int32; for one string, [pieces].
        """
        ids = self._tokenize(_batch(text), allow_mask, with_offsets=False).ids
        return ids[0] if _is_single(text) else ids

    def tokenize_words(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Splits the T words of a text into pieces, at least one each.

        Args:
            words: Strings [T].

        Returns:
            Ids, ragged [T, (pieces)] int32. A word without pieces, e.g. of control
            characters, is [UNK].
        """
        pieces = self.tokenize(words)
        is_empty = (pieces.row_lengths() == 0)[:, tf.newaxis]
        unknown = tf.fill(tf.shape(is_empty), self.vocabulary.unk_id)
        return tf.concat([pieces, tf.ragged.boolean_mask(unknown, is_empty)], axis=1)

    def tokenize_with_offsets(
        self, text: tf.Tensor, *, allow_mask: bool = False
    ) -> Pieces:
        """Like `tokenize`, and returns the byte offsets in `text` of each piece."""
        return self._tokenize(_batch(text), allow_mask, with_offsets=True)

    def _tokenize(
        self, text: tf.Tensor, allow_mask: bool, with_offsets: bool
    ) -> Pieces:
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
                is_matched |= added_tokens.is_found(forms, normalized.pattern)
            is_rare = tf.reduce_any(tf.concat([is_long, is_matched], axis=0))
        common = self._to_text(pieces, *origins, rest) if origins else pieces[:1]

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
        pieces = added_tokens.join(pieces, form_parts, tf.size(parts.text))
        pieces = self._to_text(pieces, origins, parts.text)
        pieces = added_tokens.join(pieces, parts, tf.size(rare))
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

    def _matchers(
        self, allow_mask: bool
    ) -> tuple[added_tokens.Matcher, added_tokens.Matcher]:
        """Returns the matchers of tokens in the texts and in normalized texts."""
        tokens = list(self.rules.added_tokens)
        if allow_mask and all(token.content != MASK for token in tokens):
            tokens.append(AddedToken(MASK))
        raw = self._matcher([token for token in tokens if not token.normalized])
        return raw, self._matcher([token for token in tokens if token.normalized])

    def _matcher(self, tokens: Sequence[AddedToken]) -> added_tokens.Matcher:
        ids = self.vocabulary.ids(token.content for token in tokens)
        return added_tokens.Matcher(tokens, ids, self._characters.apply)

    def _to_text(
        self,
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

    def _mark_long_words(self, words: tf.Tensor) -> tf.Tensor:
        """Makes words that are too long unknown. The number of bytes stays the same."""
        limit = self.rules.max_characters_per_word
        for characters, marker in _WORD_CHARACTERS:
            pattern = f"({_WORD_CHARACTER}{{{limit}}})[{characters}]"
            words = tf.strings.regex_replace(words, pattern, rf"\1{marker}")
        return words

    # --- Model inputs ------------------------------------------------------------

    def encode(
        self,
        text_a: tf.Tensor,
        text_b: tf.Tensor | None = None,
        *,
        max_sequence_length: int | None = None,
        padded_length: int | None = None,
        keep: str = "head",
        allow_mask: bool = False,
        return_offsets: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Tokenizes single texts or pairs into inputs of the encoder.

        Args:
            text_a: Strings [B] or one string, the first segments.
            text_b: The second segments, like `text_a`.
            max_sequence_length: Maximum number of tokens in a row, including special
                tokens; by default that of the tokenizer, or `padded_length` if it is
                smaller. Longer pairs are truncated token by token, always in the longer
                segment.
            padded_length: S. By default the length of the longest row; for one string,
                `max_sequence_length`, so that `dataset.map(tokenizer.encode).batch(8)`
                gets rows of one length. `dataset.batch(8).map(tokenizer.encode)` pads
                less, which is faster.
            keep: Which part of a truncated segment to keep: "head" (the tail if the
                rules have `truncation_side="left"`), or "head_tail" for one quarter
                from the head and the rest from the tail (arXiv 1905.05583, section
                5.3.1).
            allow_mask: See `tokenize`.
            return_offsets: Whether to return `start_offsets` and `end_offsets` [B, S]
                int32: byte offsets in `text_a`, or `text_b` in segment 1. Both are 0
                for special tokens.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` (1 = token, 0 = padding), each
            [B, S] int32; [S] if `text_a` is one string.

        Raises:
            ValueError: `max_sequence_length` is too small for the special tokens,
                `padded_length` is less than `max_sequence_length`, or a text does not
                have shape [B].
            tf.errors.InvalidArgumentError: `text_a` and `text_b` differ in size.
        """
        is_single = _is_single(text_a)
        texts = [_batch(text) for text in (text_a, text_b) if text is not None]
        if max_sequence_length is None:
            limits = (self.max_sequence_length, padded_length)
            max_sequence_length = min(limit for limit in limits if limit is not None)
        if is_single and padded_length is None:
            padded_length = max_sequence_length
        num_special = len(texts) + 1
        if max_sequence_length < num_special:
            raise ValueError(
                f"`max_sequence_length` must be at least {num_special}, the number of "
                f"special tokens. Received: max_sequence_length={max_sequence_length}"
            )
        if padded_length is not None and padded_length < max_sequence_length:
            raise ValueError(
                "`padded_length` must be at least `max_sequence_length`. Received: "
                f"padded_length={padded_length}, "
                f"max_sequence_length={max_sequence_length}"
            )
        if text_b is not None:
            tf.debugging.assert_equal(
                tf.size(texts[0]),
                tf.size(texts[1]),
                "`text_a` and `text_b` must have the same size.",
            )
        text = tf.concat(texts, axis=0)  # One call is faster than two.
        pieces = self._tokenize(text, allow_mask, with_offsets=return_offsets)
        sizes = tf.cast(pieces.ids.row_lengths(), tf.int32)
        max_pieces = max_sequence_length - num_special
        sizes = tf.split(sizes, len(texts))
        sizes = truncate_sizes(sizes, max_pieces, self.rules.library)
        head = {"head_tail": 0.25, "head": self.rules.truncation_side == "right"}[keep]
        if head < 1:
            pieces = _keep_head_and_tail(pieces, tf.concat(sizes, axis=0), head)
        starts = tf.cast(pieces.ids.row_starts(), tf.int32)
        inputs = self.pack(pieces, tf.split(starts, len(texts)), sizes, padded_length)
        return {name: x[0] for name, x in inputs.items()} if is_single else inputs

    def decode(self, token_ids: tf.Tensor) -> tf.Tensor:
        """Joins word pieces to words and words to texts, with spaces between all words.

        Leaves out [PAD], [CLS] and [SEP]. Uncased texts stay in lower case.

        Args:
            token_ids: Ids [B, S], dense, ragged, or lists.

        Returns:
            Strings [B].
        """
        if isinstance(token_ids, list):
            token_ids = tf.ragged.constant(token_ids)
        vocabulary, ids = self.vocabulary, tf.cast(token_ids, tf.int32)
        is_kept = ids != vocabulary.pad_id
        is_kept &= (ids != vocabulary.cls_id) & (ids != vocabulary.sep_id)
        tokens = tf.gather(tf.constant(vocabulary.tokens), ids)
        tokens = tf.ragged.boolean_mask(tokens, is_kept)
        texts = tf.strings.reduce_join(tokens, axis=-1, separator=" ")
        return tf.strings.regex_replace(texts, f" {CONTINUATION_PREFIX}", "")

    def pack(
        self,
        pieces: Pieces,
        starts: Sequence[tf.Tensor],
        sizes: Sequence[tf.Tensor],
        padded_length: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Combines pieces into rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

        Args:
            pieces: Word pieces of any number of texts, with or without offsets.
            starts: For each segment, [B] int32: the index of its first piece in the
                flat values of `pieces`. Rows may share pieces.
            sizes: For each segment, [B] int32: its number of pieces.
            padded_length: S. By default the length of the longest row.

        Returns:
            Same as `encode`, with offsets if `pieces` has them.
        """
        starts = [start[:, tf.newaxis] for start in starts]
        sizes = [size[:, tf.newaxis] for size in sizes]
        row_sizes = 1 + sum(size + 1 for size in sizes)  # [B, 1]
        # At least 1, also for an empty batch.
        length = padded_length or tf.maximum(tf.reduce_max(row_sizes), 1)
        position = tf.range(length)[tf.newaxis]  # [1, S]
        in_row = position < row_sizes

        # Index [B, S] of each token in a list of the special tokens and all pieces. One
        # gather each then gives ids and offsets.
        vocabulary = self.vocabulary
        specials = [vocabulary.pad_id, vocabulary.cls_id, vocabulary.sep_id]
        pad, cls, sep = range(3)
        index = tf.where(in_row, sep, pad)
        index = tf.where(position == 0, cls, index)
        segment_start = 1
        for start, size in zip(starts, sizes):
            offset = position - segment_start
            in_segment = (offset >= 0) & (offset < size)
            index = tf.where(in_segment, len(specials) + start + offset, index)
            segment_start += size + 1

        def look_up(special_values: Sequence[int], values: tf.RaggedTensor):
            return tf.gather(tf.concat([special_values, values.values], 0), index)

        inputs = {
            "token_ids": look_up(specials, pieces.ids),
            "segment_ids": tf.cast(in_row & (position >= sizes[0] + 2), tf.int32)
            * self.rules.second_segment,
            "padding_mask": tf.cast(in_row, tf.int32),
        }
        if pieces.starts is not None:
            inputs["start_offsets"] = look_up([0, 0, 0], pieces.starts)
            inputs["end_offsets"] = look_up([0, 0, 0], pieces.ends)
        return inputs


def _is_single(text: Any) -> bool:
    return tf.convert_to_tensor(text, tf.string).shape.rank == 0


def _batch(text: Any) -> tf.Tensor:
    """Returns strings [B] for strings [B] or one string."""
    text = tf.convert_to_tensor(text, tf.string)
    if text.shape.rank == 0:
        return text[tf.newaxis]
    if text.shape.rank != 1:
        raise ValueError(
            "`text` must be a string or have shape [B]. Received: "
            f"text.shape={text.shape}"
        )
    return text


def truncate_sizes(
    sizes: Sequence[tf.Tensor], max_pieces: int, library: str = "google"
) -> list[tf.Tensor]:
    """Truncates one or two segments to at most `max_pieces` in total.

    Removes pieces one by one from the longer of two segments. If both get about half
    of an odd maximum, google-research/bert gives the odd piece to the first segment,
    the library tokenizers to the second one unless it was shorter.

    Args:
        sizes: For each segment, [B] int32: its number of pieces.
        max_pieces: The maximum of their sum.
        library: The `library` of `TokenizerRules`.

    Returns:
        The truncated sizes.
    """
    if len(sizes) == 1:
        return [tf.minimum(sizes[0], max_pieces)]
    a, b = sizes
    half = max_pieces // 2
    if library != "google":
        half += tf.cast(b >= a, tf.int32) * (max_pieces % 2)
    b = tf.minimum(b, tf.maximum(half, max_pieces - a))
    return [tf.minimum(a, max_pieces - b), b]


def _keep_head_and_tail(pieces: Pieces, sizes: tf.Tensor, head: float) -> Pieces:
    """Truncates each text to `sizes` [B] pieces, the fraction `head` from its head."""
    num_removed = tf.cast(pieces.ids.row_lengths(), tf.int32) - sizes
    kept = tf.ragged.range(sizes)
    row = kept.value_rowids()
    from_head = tf.cast(head * tf.cast(sizes, tf.float32), tf.int32)
    is_tail = kept.values >= tf.gather(from_head, row)
    skipped = tf.where(is_tail, tf.gather(num_removed, row), 0)
    index = kept.values + skipped
    index += tf.cast(tf.gather(pieces.ids.row_starts(), row), tf.int32)

    fields = [field for field in pieces if field is not None]
    return Pieces(*(kept.with_values(tf.gather(f.values, index)) for f in fields))
