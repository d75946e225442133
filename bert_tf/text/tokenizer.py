# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's tokenizer as TensorFlow graph functions, shared by training and serving.

Input: UTF-8 strings [B]. Output: `token_ids`, `segment_ids`, `padding_mask` [B, S]
int32 of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

`TokenizerRules` says whose tokenizer the results equal: that of google-research/bert or
that of a Hugging Face folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import lazy
from bert_tf.text.normalization import GOOGLE_RULES, TokenizerRules
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert_tf.text.word_pieces import Pieces, WordPieces


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
        self._pieces = WordPieces(vocabulary, lowercase, rules)

    @classmethod
    def from_checkpoint(cls, checkpoint: Any) -> Tokenizer:
        """Returns the tokenizer of a checkpoint, with its casing and maximum length.

        Args:
            checkpoint: A `Checkpoint`, or its path as for
                `BertBackbone.from_checkpoint`.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT, or its tokenizer has
                rules that are not supported.
        """
        if isinstance(checkpoint, str | os.PathLike):
            checkpoint = lazy.checkpoints().open_checkpoint(checkpoint)
        return cls(
            checkpoint.vocabulary,
            checkpoint.lowercase,
            checkpoint.architecture.max_sequence_length,
            rules=checkpoint.rules,
        )

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocabulary!r}, lowercase={self.lowercase})"

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
        ids = self._pieces.tokenize(_batch(text), allow_mask, with_offsets=False).ids
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
        return self._pieces.tokenize(_batch(text), allow_mask, with_offsets=True)

    # --- Model inputs ------------------------------------------------------------

    def encode(
        self,
        text_a: tf.Tensor,
        text_b: tf.Tensor | None = None,
        *,
        max_sequence_length: int | None = None,
        padded_length: int | None = None,
        allow_mask: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Tokenizes single texts or pairs into inputs of the encoder.

        Args:
            text_a: Strings [B] or one string, the first segments.
            text_b: The second segments, like `text_a`.
            max_sequence_length: Maximum number of tokens in a row, including special
                tokens; by default that of the tokenizer, at most `padded_length`.
                Longer pairs are truncated token by token, always in the longer segment.
            padded_length: S. By default the length of the longest row; for one string,
                `max_sequence_length`, so that `dataset.map(tokenizer.encode).batch(8)`
                gets rows of one length. `dataset.batch(8).map(tokenizer.encode)` pads
                less, which is faster.
            allow_mask: See `tokenize`.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` (1 = token, 0 = padding), each
            [B, S] int32; [S] if `text_a` is one string.

        Raises:
            ValueError: `max_sequence_length` is too small for the special tokens, or a
                text does not have shape [B].
            tf.errors.InvalidArgumentError: `text_a` and `text_b` differ in size.
        """
        is_single = _is_single(text_a)
        texts = [_batch(text) for text in (text_a, text_b) if text is not None]
        if max_sequence_length is None:
            max_sequence_length = self.max_sequence_length
        if padded_length is not None:
            max_sequence_length = min(max_sequence_length, padded_length)
        elif is_single:
            padded_length = max_sequence_length
        num_special = len(texts) + 1
        if max_sequence_length < num_special:
            raise ValueError(
                f"`max_sequence_length` must be at least {num_special}, the number of "
                f"special tokens. Received: max_sequence_length={max_sequence_length}"
            )
        if text_b is not None:
            tf.debugging.assert_equal(
                tf.size(texts[0]),
                tf.size(texts[1]),
                "`text_a` and `text_b` must have the same size.",
            )
        text = tf.concat(texts, axis=0)  # One call is faster than two.
        ids = self.tokenize(text, allow_mask=allow_mask)
        sizes = tf.split(tf.cast(ids.row_lengths(), tf.int32), len(texts))
        max_pieces = max_sequence_length - num_special
        sizes = truncate_sizes(sizes, max_pieces, self.rules.library)
        starts = tf.split(tf.cast(ids.row_starts(), tf.int32), len(texts))
        inputs = self.pack(ids, starts, sizes, padded_length)
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
        ids: tf.RaggedTensor,
        starts: Sequence[tf.Tensor],
        sizes: Sequence[tf.Tensor],
        padded_length: int | None = None,
    ) -> dict[str, tf.Tensor]:
        """Combines pieces into rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

        Args:
            ids: Word pieces of any number of texts, ragged [texts, (pieces)] int32.
            starts: For each segment, [B] int32: the index of its first piece in the
                flat values of `ids`. Rows may share pieces.
            sizes: For each segment, [B] int32: its number of pieces.
            padded_length: S. By default the length of the longest row.

        Returns:
            Same as `encode`.
        """
        starts = [start[:, tf.newaxis] for start in starts]
        sizes = [size[:, tf.newaxis] for size in sizes]
        row_sizes = 1 + sum(size + 1 for size in sizes)  # [B, 1]
        # At least 1, also for an empty batch.
        length = padded_length or tf.maximum(tf.reduce_max(row_sizes), 1)
        position = tf.range(length)[tf.newaxis]  # [1, S]
        in_row = position < row_sizes

        # Index [B, S] of each token in a list of the special tokens and all pieces.
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
        return {
            "token_ids": tf.gather(tf.concat([specials, ids.values], 0), index),
            "segment_ids": tf.cast(in_row & (position >= sizes[0] + 2), tf.int32)
            * self.rules.second_segment,
            "padding_mask": tf.cast(in_row, tf.int32),
        }


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
