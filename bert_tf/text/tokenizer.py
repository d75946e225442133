# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text -> token ids, inside the graph: the same function for training and serving.

In: UTF-8 strings [B]. Out: `token_ids`, `segment_ids`, `padding_mask` [B, S] int32 of
[CLS] a [SEP], or [CLS] a [SEP] b [SEP], and on request the bytes of the input that each
token stands for.

The rules are those of `tokenization.py` in google-research/bert, and so are the
results, with one exception: a word is limited to 800 bytes instead of 200 characters.
All that google's code takes apart is taken apart alike (200 Thai letters are 600
bytes); an ASCII word of 201 to 800 letters gives pieces instead of [UNK]. What is a
letter or an accent is as in the Python that builds the graph, see
`bert_tf.normalization`.

TensorFlow Serving has all ops in use since 2.12: the two of FastBertTokenizer in
tf_text, and TensorFlow's own.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from bert_tf.text import normalization
from bert_tf.text.vocabulary import MASK, UNK, Vocabulary

_MAX_BYTES_PER_WORD = 800

# Python lower-cases a sigma at the end of a word to ς, and normalisation character by
# character cannot know the end of a word (Unicode standard, section 3.13): a cased
# letter stands before it, none behind, with or without what case ignores between. What
# is deleted, like control characters, is ignored too.
_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_IGNORED = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}'.:·՟״‘’․‧︓﹒﹕＇．："
    r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\x{fffd}"
)
_FINAL_SIGMA = f"([{_CASED}][{_IGNORED}]*)Σ([{_IGNORED}]*(?:[^{_CASED}{_IGNORED}]|$))"

# Stands for a typed [MASK] inside the graph: a code point among the Chinese ones that
# Unicode never assigned, hence a word of its own. With the control characters, which
# normalisation deletes, it is as long as "[MASK]", so that all bytes keep their places.
_MASK_MARK = "\ufaff"
_PADDED_MASK_MARK = _MASK_MARK + "\1\1\1"


class Pieces(NamedTuple):
    """Word pieces of B texts, each ragged [B, (pieces)] int32.

    A piece stands for the bytes `starts` to `ends` (exclusive) of its text. Accents
    behind a letter belong to it; pieces of one character all have the whole of it.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Tokenizer:
    """BERT's tokenizer as graph functions (paper, section 3; arXiv 1609.08144).

    All methods work eagerly, in `tf.data` and in a SavedModel, which carries the
    vocabulary and the normalisation rules along. Bytes that are not UTF-8 are skipped.

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
        model = normalization.normalizer_model(lowercase)
        self._normalizer = tf_text.FastBertNormalizer(
            model_buffer=tf.constant(np.frombuffer(model, np.uint8))
        )
        self._wordpiece = _wordpiece(vocabulary.tokens)

    @functools.cached_property
    def _wordpiece_with_mask(self) -> tf_text.FastWordpieceTokenizer:
        tokens = list(self.vocabulary.tokens)
        tokens[self.vocabulary.mask_id] = _MASK_MARK
        with tf.init_scope():  # The first use may be while a graph is traced.
            return _wordpiece(tokens)

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
        text, wordpiece = self._prepare(text, allow_mask)
        return wordpiece.tokenize(self._normalizer.normalize(text))

    def tokenize_with_offsets(
        self, text: tf.Tensor, *, allow_mask: bool = False
    ) -> Pieces:
        """As `tokenize`, with the bytes of `text` that each piece stands for."""
        text, wordpiece = self._prepare(text, allow_mask)
        normalized, origins = self._normalizer.normalize_with_offsets(text)
        ids, starts, ends = wordpiece.tokenize_with_offsets(normalized)
        row = ids.value_rowids()

        # From bytes of the normalised text to those of the text. `origins` has one
        # more in each row: where the text ends.
        first = starts.values + tf.gather(origins.row_starts(), row)
        behind = ends.values + tf.gather(origins.row_starts(), row)
        start = tf.gather(origins.values, first)
        last = tf.gather(origins.values, behind - 1)
        end = tf.gather(origins.values, behind)

        # All that replaces a character has the place of its first byte. A piece that
        # ends there, inside the replacement or at its end, gets the whole character.
        sizes = tf.cast(tf.strings.length(text), tf.int64)
        text_starts = tf.gather(tf.cumsum(sizes, exclusive=True), row)
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
        size = _utf8_size(tf.gather(all_bytes, text_starts + last))
        end = tf.maximum(end, last + size)
        return Pieces(
            ids,
            ids.with_values(tf.cast(start, tf.int32)),
            ids.with_values(tf.cast(end, tf.int32)),
        )

    def _prepare(
        self, text: tf.Tensor, allow_mask: bool
    ) -> tuple[tf.Tensor, tf_text.FastWordpieceTokenizer]:
        """Replaces what depends on its neighbours; all bytes keep their places."""
        text = tf.convert_to_tensor(text, tf.string)
        if text.shape.rank != 1:
            raise ValueError(
                f"`text` must be of shape [B]. Received: shape={text.shape}"
            )
        if self.lowercase:
            text = tf.strings.regex_replace(text, _FINAL_SIGMA, r"\1ς\2")
        if not allow_mask:
            return text, self._wordpiece
        text = tf.strings.regex_replace(text, re.escape(MASK), _PADDED_MASK_MARK)
        return text, self._wordpiece_with_mask

    # --- Model inputs ------------------------------------------------------------

    def encode(
        self,
        text_a: tf.Tensor,
        text_b: tf.Tensor | None = None,
        *,
        max_sequence_length: int,
        padded_length: int | None = None,
        keep: str = "head",
        allow_mask: bool = False,
        return_offsets: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Returns the inputs of the encoder.

        Args:
            text_a: Strings [B].
            text_b: Strings [B] of second segments.
            max_sequence_length: Most tokens of a row, special ones included. Longer
                pairs lose tokens of whichever segment is longer.
            keep: What is left of a segment that loses tokens: "head", its beginning, or
                "head_tail", the first quarter and the rest from its end (as in arXiv
                1905.05583, section 5.3.1).
            padded_length: S. The longest row of the batch when None.
            allow_mask: See `tokenize`.
            return_offsets: Whether to add `start_offsets`, `end_offsets` [B, S]: the
                bytes of `text_a` or, in segment 1, `text_b` that a token stands for;
                0, 0 for special tokens.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` (1 = token), each [B, S] int32.

        Raises:
            ValueError: The special tokens alone do not fit, `padded_length` is less
                than `max_sequence_length`, or a text is not of shape [B].
            tf.errors.InvalidArgumentError: There are not as many `text_b` as `text_a`.
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
        texts = [text_a] if text_b is None else [text_a, text_b]
        if text_b is not None:
            tf.debugging.assert_equal(
                tf.size(text_a), tf.size(text_b), "`text_b` must have a text per row."
            )
        text = tf.concat(texts, axis=0)  # One call is faster than two.
        if return_offsets:
            pieces = self.tokenize_with_offsets(text, allow_mask=allow_mask)
        else:
            pieces = Pieces(self.tokenize(text, allow_mask=allow_mask), None, None)
        sizes = tf.cast(pieces.ids.row_lengths(), tf.int32)
        max_pieces = max_sequence_length - num_special
        sizes = trim_sizes(tf.split(sizes, len(texts)), max_pieces)
        if keep == "head_tail":
            pieces = _head_and_tail(pieces, tf.concat(sizes, axis=0))
        starts = tf.cast(pieces.ids.row_starts(), tf.int32)
        return self.pack(pieces, tf.split(starts, len(texts)), sizes, padded_length)

    def pack(
        self,
        pieces: Pieces,
        starts: Sequence[tf.Tensor],
        sizes: Sequence[tf.Tensor],
        padded_length: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Makes rows of [CLS] a [SEP], or [CLS] a [SEP] b [SEP], out of pieces.

        Args:
            pieces: Those of any texts; their `starts` and `ends` may be None.
            starts: For each segment, [B] int32: the first of its pieces, counted
                through all texts. Rows may share pieces.
            sizes: For each segment, [B] int32: how many pieces it has.
            padded_length: S. The longest row when None.

        Returns:
            As `encode`, with offsets if the pieces have them.
        """
        starts = [start[:, tf.newaxis] for start in starts]
        sizes = [size[:, tf.newaxis] for size in sizes]
        row_sizes = 1 + sum(size + 1 for size in sizes)  # [B, 1]
        # At least one, also for an empty batch.
        length = padded_length or tf.maximum(tf.reduce_max(row_sizes), 1)
        position = tf.range(length)[tf.newaxis]  # [1, S]
        in_row = position < row_sizes

        # Where each token of [B, S] stands in a list of all pieces, preceded by the
        # special tokens: one look-up each for ids and offsets.
        specials = [getattr(self.vocabulary, f"{n}_id") for n in ("pad", "cls", "sep")]
        pad, cls, sep = range(3)
        index = tf.where(in_row, sep, pad)
        index = tf.where(position == 0, cls, index)
        segment_start = 1
        for start, size in zip(starts, sizes):
            place = position - segment_start
            inside = (place >= 0) & (place < size)
            index = tf.where(inside, len(specials) + start + place, index)
            segment_start += size + 1

        def look_up(special_values: Sequence[int], values: tf.RaggedTensor):
            return tf.gather(tf.concat([special_values, values.values], 0), index)

        inputs = {
            "token_ids": look_up(specials, pieces.ids),
            "segment_ids": tf.cast(in_row & (position >= sizes[0] + 2), tf.int32),
            "padding_mask": tf.cast(in_row, tf.int32),
        }
        if pieces.starts is not None:
            inputs["start_offsets"] = look_up([0, 0, 0], pieces.starts)
            inputs["end_offsets"] = look_up([0, 0, 0], pieces.ends)
        return inputs


def trim_sizes(sizes: Sequence[tf.Tensor], max_pieces: int) -> list[tf.Tensor]:
    """Sizes of one or two segments that together have at most `max_pieces`.

    The longer of two loses its last piece until they fit, the second when both are
    equally long, as in google-research/bert.
    """
    if len(sizes) == 1:
        return [tf.minimum(sizes[0], max_pieces)]
    a, b = sizes
    b = tf.minimum(b, tf.maximum(max_pieces // 2, max_pieces - a))
    return [tf.minimum(a, max_pieces - b), b]


def _head_and_tail(pieces: Pieces, sizes: tf.Tensor) -> Pieces:
    """Leaves `sizes` [B] of each text's pieces, a quarter of them at its beginning."""
    left_out = tf.cast(pieces.ids.row_lengths(), tf.int32) - sizes
    place = tf.ragged.range(sizes)
    row = place.value_rowids()
    is_tail = place.values >= tf.gather(sizes // 4, row)
    skipped = tf.where(is_tail, tf.gather(left_out, row), 0)
    index = place.values + skipped
    index += tf.cast(tf.gather(pieces.ids.row_starts(), row), tf.int32)
    return Pieces(
        *(
            None
            if column is None
            else place.with_values(tf.gather(column.values, index))
            for column in pieces
        )
    )


def _wordpiece(tokens: Sequence[str]) -> tf_text.FastWordpieceTokenizer:
    return tf_text.FastWordpieceTokenizer(
        list(tokens),
        max_bytes_per_word=_MAX_BYTES_PER_WORD,
        token_out_type=tf.int32,
        unknown_token=UNK,
    )


def _utf8_size(byte: tf.Tensor) -> tf.Tensor:
    """The bytes, int64, of a character by its first one; 1 for a later one."""
    return 1 + tf.add_n([tf.cast(byte >= b, tf.int64) for b in (0xC0, 0xE0, 0xF0)])
