# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's tokenizer as a layer of Keras, shared by training and serving.

Input: UTF-8 strings [B]. Output: `token_ids`, `segment_ids`, `padding_mask` [B, S]
int32 of rows [CLS] a [SEP] or [CLS] a [SEP] b [SEP].

`TokenizerRules` selects whose results it reproduces: those of google-research/bert or
of a Hugging Face folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import keras_private
from bert_tf.text.normalization import GOOGLE_RULES, AddedToken, TokenizerRules
from bert_tf.text.rows import Rows
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert_tf.text.word_pieces import Pieces, WordPieces

keras_private.allow_strings()


@keras.saving.register_keras_serializable(package="bert_tf")
class Tokenizer(keras.layers.Layer):
    """BERT's tokenizer (arXiv 1810.04805, section 3; arXiv 1609.08144).

    A layer that maps strings [B], or a pair of them, to the inputs of `BertBackbone`,
    as `encode` does. All methods work eagerly, in `tf.data`, in models, and in
    SavedModels and `.keras` files, which then contain the vocabulary and the rules.
    Invalid UTF-8 bytes are skipped.

    Like other layers, `encode` and `tokenize` map strings [B] to tensors [B, S], and
    one string to tensors [S].

    Args:
        vocabulary: A `Vocabulary` or the path of a vocabulary file.
        lowercase: Whether to lowercase and strip accents, as uncased models require.
        max_sequence_length: The default of `encode`.
        rules: All other rules. By default those of google-research/bert.
        **kwargs: Arguments of all layers, such as `name`.

    Inputs: strings [B], or two of them as a tuple or as two arguments. Outputs: those
    of `encode`.

    Raises:
        ValueError: The inputs are something else; or strings enter a model on the JAX
            backend, which has no strings.

    Example:

    ```python
    tokenizer = Tokenizer("vocab.txt", max_sequence_length=128)
    inputs = tokenizer(["The cat sat."])
    tokenizer.decode(inputs["token_ids"])

    text = keras.Input((), dtype="string")
    model = keras.Model(text, BertBackbone(config)(tokenizer(text)))
    ```
    """

    def __init__(
        self,
        vocabulary: Vocabulary | str | os.PathLike,
        lowercase: bool = True,
        max_sequence_length: int = 512,
        *,
        rules: TokenizerRules = GOOGLE_RULES,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not isinstance(vocabulary, Vocabulary):
            vocabulary = Vocabulary.from_file(vocabulary)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.max_sequence_length = max_sequence_length
        self.rules = rules
        self._pieces = WordPieces(vocabulary, lowercase, rules)
        self.built, self.supports_jit = True, False  # XLA has no strings.

    @classmethod
    def from_checkpoint(cls, checkpoint: Any, **arguments: Any) -> Tokenizer:
        """Returns the tokenizer of a checkpoint, with its casing and maximum length.

        It cuts texts where `bert_tf.load` does.

        Args:
            checkpoint: A `Checkpoint`, or its path as for
                `BertBackbone.from_checkpoint`.
            **arguments: Other arguments of the constructor, such as a shorter
                `max_sequence_length`.

        Raises:
            ValueError: The checkpoint is damaged or not a BERT, or its tokenizer has
                rules that are not supported.
        """
        if isinstance(checkpoint, str | os.PathLike):
            from bert_tf.checkpoints import open_checkpoint

            checkpoint = open_checkpoint(checkpoint)
        length = {"max_sequence_length": checkpoint.max_sequence_length}
        vocabulary, lowercase = checkpoint.vocabulary, checkpoint.lowercase
        return cls(vocabulary, lowercase, rules=checkpoint.rules, **length | arguments)

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocabulary!r}, lowercase={self.lowercase})"

    # --- Layer -------------------------------------------------------------------

    # `Sequential` reads the dtype of its inputs from `compute_dtype`.
    compute_dtype = variable_dtype = "string"

    def __call__(self, text: Any, text_b: Any = None, **kwargs: Any) -> dict[str, Any]:
        texts = _strings(*_segments(text, text_b))
        if keras.backend.backend() == "tensorflow":
            return super().__call__(*texts, **kwargs)
        if any(isinstance(x, keras.KerasTensor) for x in texts):
            raise ValueError(
                "Strings can enter a model on Keras' backend tensorflow only. Tokenize "
                "in the input pipeline, dataset.map(tokenizer), and build the model on "
                f"the inputs of the encoder. Received: {texts}"
            )
        return self._encode(texts)

    def call(self, text: tf.Tensor, text_b: tf.Tensor | None = None):
        return self._encode([text] if text_b is None else [text, text_b])

    def compute_output_spec(self, text: Any, text_b: Any = None) -> dict[str, Any]:
        shape = (*text.shape, None)
        names = ("token_ids", "segment_ids", "padding_mask")
        return {x: keras.KerasTensor(shape, "int32", name=x) for x in names}

    def get_config(self):
        return super().get_config() | {
            "vocabulary": list(self.vocabulary.tokens),
            "lowercase": self.lowercase,
            "max_sequence_length": self.max_sequence_length,
            "rules": dataclasses.asdict(self.rules),
        }

    @classmethod
    def from_config(cls, config):
        rules = dict(config["rules"])
        rules["added_tokens"] = tuple(AddedToken(**x) for x in rules["added_tokens"])
        vocabulary = Vocabulary(tuple(config["vocabulary"]))
        arguments = {"vocabulary": vocabulary, "rules": TokenizerRules(**rules)}
        return cls(**config | arguments)

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
        (text,) = _strings(text)
        pieces = self._pieces.tokenize(_batch(text), allow_mask, with_offsets=False)
        return pieces.ids if text.shape.rank else pieces.ids[0]

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
        text = _batch(*_strings(text))
        return self._pieces.tokenize(text, allow_mask, with_offsets=True)

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
            ValueError: `max_sequence_length` is too small for the special tokens, a
                text is not strings [B], or `text_a` and `text_b` differ in size.
            tf.errors.InvalidArgumentError: In a graph, they differ in size.
        """
        texts = _strings(text_a, text_b)
        return self._encode(texts, max_sequence_length, padded_length, allow_mask)

    def _encode(
        self,
        texts: Sequence[tf.Tensor],
        max_sequence_length: int | None = None,
        padded_length: int | None = None,
        allow_mask: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Does what `encode` does, for texts that `_strings` checked."""
        is_single = texts[0].shape.rank == 0
        if max_sequence_length is None:
            max_sequence_length = self.max_sequence_length
        if padded_length is not None:
            max_sequence_length = min(max_sequence_length, padded_length)
        elif is_single:
            padded_length = max_sequence_length
        rows = self._rows(texts, max_sequence_length, allow_mask)
        inputs = rows.inputs(padded_length)
        return {name: x[0] for name, x in inputs.items()} if is_single else inputs

    def rows(
        self,
        text_a: tf.Tensor,
        text_b: tf.Tensor | None = None,
        *,
        max_sequence_length: int,
        allow_mask: bool = False,
    ) -> Rows:
        """Does what `encode` does, but does not pad: `encode` is `rows(...).inputs()`.

        The arguments are those of `encode`.
        """
        texts = _strings(text_a, text_b)
        return self._rows(texts, max_sequence_length, allow_mask)

    def _rows(
        self, texts: Sequence[tf.Tensor], max_sequence_length: int, allow_mask: bool
    ) -> Rows:
        """Does what `rows` does, for texts that `_strings` checked."""
        texts = [*map(_batch, texts)]
        num_special = len(texts) + 1
        if max_sequence_length < num_special:
            raise ValueError(
                f"`max_sequence_length` must be at least {num_special}, the number of "
                f"special tokens. Received: max_sequence_length={max_sequence_length}"
            )
        if len(texts) > 1:
            tf.debugging.assert_equal(
                tf.size(texts[0]),
                tf.size(texts[1]),
                "`text_a` and `text_b` must have the same size.",
            )
        text = tf.concat(texts, axis=0)  # One call is faster than two.
        max_pieces = max_sequence_length - num_special
        # To truncate pairs, the library tokenizers compare the sizes of whole texts.
        is_cut = len(texts) == 1 or self.rules.library == "google"
        needed = max_pieces if is_cut else None
        pieces = self._pieces.tokenize(
            text, allow_mask, with_offsets=False, max_pieces=needed
        )
        ids = pieces.ids
        sizes = tf.split(tf.cast(ids.row_lengths(), tf.int32), len(texts))
        sizes = truncate_sizes(sizes, max_pieces, self.rules.library)
        starts = tf.split(tf.cast(ids.row_starts(), tf.int32), len(texts))
        return Rows.create(self, ids.values, starts, sizes)

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


def _batch(text: tf.Tensor) -> tf.Tensor:
    """Returns strings [B] for strings [B] or one string."""
    return text if text.shape.rank else text[tf.newaxis]


def _segments(text: Any, text_b: Any) -> list[Any]:
    """Returns the texts in the arguments of a layer: one, or two of a pair."""
    is_batch = isinstance(text, list) and (
        not text or any(isinstance(x, str | bytes) for x in text)
    )
    if is_batch or not isinstance(text, list | tuple):
        return [text] if text_b is None else [text, text_b]
    if len(text) != 2 or text_b is not None:
        raise ValueError(
            f"A pair must be two texts. Received: {len(text) + (text_b is not None)}"
        )
    return [*text]


def _strings(text: Any, text_b: Any = None) -> list[Any]:
    """Returns one text, or two of a pair, as tensors [B] or []; keeps symbolic ones.

    Raises:
        ValueError: A text is not strings, or has another shape. The message names it.
    """
    pair = {"text": text} if text_b is None else {"text_a": text, "text_b": text_b}
    shapes, tensors = [], []
    for name, x in pair.items():
        with contextlib.suppress(TypeError, ValueError):
            if not isinstance(x, keras.KerasTensor):
                x = tf.convert_to_tensor(x, tf.string)
        is_string = "string" in str(getattr(x, "dtype", ""))
        shapes.append(tf.TensorShape(x.shape if is_string else None))
        if shapes[-1].rank not in (0, 1):
            shape = f"{x.dtype} of shape {x.shape}" if hasattr(x, "shape") else repr(x)
            raise ValueError(
                f"`{name}` must be strings of shape [B], or one string. Received: "
                f"{shape:.200}"
            )
        tensors.append(x)
    if not shapes[0].is_compatible_with(shapes[-1]):
        raise ValueError(
            "`text_a` and `text_b` must have the same shape. Received: "
            f"{shapes[0]} and {shapes[1]}"
        )
    return tensors


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
