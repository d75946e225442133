# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text -> token ids, inside the graph: the same function for training and serving.

In: UTF-8 strings [B]. Out: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32 of
[CLS] a [SEP], or [CLS] a [SEP] b [SEP], and on request the bytes of the input that each
token stands for.

The rules are those of `tokenization.py` in google-research/bert. Two differences are
left. A word is limited to 800 bytes instead of 200 characters, so that 200 characters
of any script fit (Thai has no spaces); an ASCII word of 201 to 800 letters is thus split
into pieces and is not [UNK]. And bytes that are not UTF-8 are passed over.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf import normalization
from bert_tf.vocab import MASK, Vocabulary

_MAX_BYTES_PER_WORD = 800

# Python lower-cases a sigma at the end of a word to ς, and normalisation character by
# character cannot know the end of a word (Unicode standard, section 3.13): a cased
# letter stands before it, none behind, with or without what case ignores between.
_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_CASE_IGNORABLE = r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·’"
_FINAL_SIGMA = (
    f"([{_CASED}][{_CASE_IGNORABLE}]*)Σ"
    f"([{_CASE_IGNORABLE}]*(?:[^{_CASED}{_CASE_IGNORABLE}]|$))"
)


class Pieces(NamedTuple):
    """Word pieces of B texts, each ragged [B, (pieces)] int32.

    A piece stands for the bytes `starts` to `ends` (exclusive) of its text.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Tokenizer:
    """BERT's tokenizer as graph functions (paper, section 3; arXiv 1609.08144).

    All methods work eagerly, in `tf.data` and in a SavedModel, which carries the
    vocabulary and the normalisation rules along. They use only ops that TensorFlow
    Serving has since 2.12.

    Args:
        vocabulary: A `Vocabulary` or the path of a vocabulary file.
        lowercase: Whether to lower-case and strip accents, as uncased models need.

    Example:

    ```python
    tokenizer = Tokenizer("vocab.txt")
    tokenizer.encode(tf.constant(["Strings in."]), max_sequence_length=128)
    ```
    """

    def __init__(
        self, vocabulary: Vocabulary | str | os.PathLike, lowercase: bool = True
    ):
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = Vocabulary.from_file(vocabulary)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self._tokenizer = tf_text.FastBertTokenizer(
            list(vocabulary.tokens),
            max_bytes_per_word=_MAX_BYTES_PER_WORD,
            token_out_type=tf.int32,
            fast_bert_normalizer_model_buffer=normalization.normalizer_model(lowercase),
        )

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocabulary!r}, lowercase={self.lowercase})"

    # --- Pieces ------------------------------------------------------------------

    def tokenize(self, text: tf.Tensor, *, allow_mask: bool = False) -> tf.RaggedTensor:
        """Returns the ids of the word pieces, ragged [B, (pieces)] int32.

        Args:
            text: Strings [B].
            allow_mask: Whether a typed `[MASK]` is the mask token. By default it is
                text like any other, as are all names of special tokens.
        """
        if allow_mask:
            return self.tokenize_with_offsets(text, allow_mask=True).ids
        return self._tokenizer.tokenize(self._mark_final_sigma(text))

    def tokenize_with_offsets(
        self, text: tf.Tensor, *, allow_mask: bool = False
    ) -> Pieces:
        """As `tokenize`, with the bytes of `text` that each piece stands for."""
        if allow_mask:
            return self._tokenize_around_masks(text)
        pieces = self._tokenizer.tokenize_with_offsets(self._mark_final_sigma(text))
        return Pieces(*(tf.cast(values, tf.int32) for values in pieces))

    def _mark_final_sigma(self, text):
        if not self.lowercase:
            return text
        # Both sigmas have two bytes: the offsets stay.
        return tf.strings.regex_replace(text, _FINAL_SIGMA, r"\1ς\2")

    def _tokenize_around_masks(self, text):
        parts = tf.strings.split(text, MASK)  # [B, (parts)]
        pieces = self.tokenize_with_offsets(parts.values)
        # Where a part begins in its text: behind the parts and masks before it.
        part_sizes = tf.strings.length(parts.values) + len(MASK)
        part_starts = tf.cumsum(part_sizes, exclusive=True)
        text_starts = tf.gather(part_starts, parts.row_starts())
        part_starts -= tf.gather(text_starts, parts.value_rowids())
        part_ends = part_starts + part_sizes - len(MASK)
        # Every part but the last of its text is followed by a mask.
        is_last = tf.equal(
            tf.range(parts.row_splits[-1]) + 1,
            tf.gather(parts.row_splits, parts.value_rowids() + 1),
        )

        def join(values, mask_values):
            masks = tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(mask_values, ~is_last), tf.cast(~is_last, tf.int64)
            )
            joined = tf.concat([values, masks], axis=1)
            return tf.RaggedTensor.from_row_splits(
                joined.values, tf.gather(joined.row_splits, parts.row_splits)
            )

        return Pieces(
            join(pieces.ids, tf.fill(tf.shape(part_ends), self.vocabulary.mask_id)),
            join(pieces.starts + part_starts[:, tf.newaxis], part_ends),
            join(pieces.ends + part_starts[:, tf.newaxis], part_ends + len(MASK)),
        )

    # --- Model inputs ------------------------------------------------------------

    def encode(
        self,
        text_a: tf.Tensor,
        text_b: tf.Tensor | None = None,
        *,
        max_sequence_length: int,
        padded_length: int | None = None,
        allow_mask: bool = False,
        return_offsets: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of the encoder.

        Args:
            text_a: Strings [B].
            text_b: Strings [B] of second segments.
            max_sequence_length: Most tokens of a row, special ones included. Longer
                pairs lose tokens at the end of whichever segment is longer.
            padded_length: S. The longest row of the batch when None.
            allow_mask: See `tokenize`.
            return_offsets: Whether to add `start_offsets`, `end_offsets` [B, S]: the
                bytes of `text_a` or, in segment 1, `text_b` that a token stands for;
                0, 0 for special tokens.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` (1 = token), each [B, S] int32.

        Raises:
            ValueError: The special tokens alone do not fit, or `padded_length` is
                less than `max_sequence_length`.
        """
        num_special = 2 if text_b is None else 3
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

        def pieces(text):
            if return_offsets:
                return self.tokenize_with_offsets(text, allow_mask=allow_mask)
            return Pieces(self.tokenize(text, allow_mask=allow_mask), None, None)

        segments = [pieces(text) for text in (text_a, text_b) if text is not None]
        return self._pack(
            segments, max_sequence_length - num_special, padded_length, return_offsets
        )

    def _pack(self, segments, max_pieces, padded_length, return_offsets):
        """Joins one or two segments, [B, (pieces)] each, to rows of S tokens."""
        sizes = [tf.cast(s.ids.row_lengths(), tf.int32) for s in segments]
        sizes = [size[:, tf.newaxis] for size in trim_sizes(sizes, max_pieces)]
        row_sizes = 1 + sum(size + 1 for size in sizes)  # [B, 1]
        # At least one, also for an empty batch.
        length = padded_length or tf.maximum(tf.reduce_max(row_sizes), 1)
        position = tf.range(length)[tf.newaxis]  # [1, S]

        # Where each token of [B, S] stands in a list of all pieces, preceded by the
        # special tokens: one look-up each for ids and offsets.
        specials = [getattr(self.vocabulary, f"{n}_id") for n in ("pad", "cls", "sep")]
        pad, cls, sep = range(3)
        index = tf.where(position < row_sizes, sep, pad)
        index = tf.where(position == 0, cls, index)
        segment_start, list_start = 1, len(specials)
        for segment, size in zip(segments, sizes):
            place = position - segment_start
            row_start = tf.cast(segment.ids.row_starts(), tf.int32)[:, tf.newaxis]
            inside = (place >= 0) & (place < size)
            index = tf.where(inside, list_start + row_start + place, index)
            segment_start += size + 1
            list_start += tf.size(segment.ids.values)

        def look_up(special_values, ragged):
            flat = [special_values, *(values.values for values in ragged)]
            return tf.gather(tf.concat(flat, axis=0), index)

        in_row = position < row_sizes
        second = (position >= sizes[0] + 2) & in_row
        inputs = {
            "token_ids": look_up(specials, [s.ids for s in segments]),
            "segment_ids": tf.cast(second, tf.int32),
            "padding_mask": tf.cast(in_row, tf.int32),
        }
        if return_offsets:
            zeros = [0] * len(specials)
            inputs["start_offsets"] = look_up(zeros, [s.starts for s in segments])
            inputs["end_offsets"] = look_up(zeros, [s.ends for s in segments])
        return inputs


def trim_sizes(sizes: list[tf.Tensor], max_pieces: int) -> list[tf.Tensor]:
    """Sizes [B] of one or two segments that together have at most `max_pieces`.

    The longer of two loses its last piece until they fit, the second when both are
    equally long, as in google-research/bert.
    """
    if len(sizes) == 1:
        return [tf.minimum(sizes[0], max_pieces)]
    a, b = sizes
    b = tf.minimum(b, tf.maximum(max_pieces // 2, max_pieces - a))
    return [tf.minimum(a, max_pieces - b), b]
