# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts of any length -> windows that the model takes; a graph function.

In: word pieces, ragged [N, (pieces)]. Out: W windows, rows of [CLS] pieces [SEP].
Windows of one text overlap, and each piece belongs to one window, the one in which it
has most context on both sides; so whatever is computed for each piece comes out in the
order of the text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.vocabulary import Vocabulary

# Of a window's pieces, the share that the next window has as well. Half of it is the
# least context that a piece has on either side within a long text.
_OVERLAP = 0.25

# Windows that `run` gives a model at once.
_AT_ONCE = 64


class Windows(NamedTuple):
    """W windows over the pieces of N texts, in the order of the texts.

    Attributes:
        token_ids: Rows [CLS] pieces [SEP], ragged [W, (S)] int32.
        piece: Where each token stands among all pieces of all texts, ragged [W, (S)]
            int32; -1 for special tokens and for pieces that belong to another window.
        text: The number of the text of each window [W] int32.
    """

    token_ids: tf.RaggedTensor
    piece: tf.RaggedTensor
    text: tf.Tensor

    @property
    def inputs(self) -> dict[str, tf.RaggedTensor]:
        """What the encoder takes, each ragged [W, (S)] int32."""
        return {
            "token_ids": self.token_ids,
            "segment_ids": tf.zeros_like(self.token_ids),
            "padding_mask": tf.ones_like(self.token_ids),
        }


def cut(
    pieces: tf.RaggedTensor, vocabulary: Vocabulary, max_sequence_length: int
) -> Windows:
    """Cuts texts into windows; a text that fits, or is empty, is one.

    Args:
        pieces: Ids of the word pieces of N texts, ragged [N, (pieces)] int32.
        vocabulary: Knows the special tokens.
        max_sequence_length: Most tokens of a window, the special ones included.
    """
    capacity = max_sequence_length - 2
    stride = max(1, capacity - int(_OVERLAP * capacity))
    sizes = tf.cast(pieces.row_lengths(), tf.int32)  # [N]
    excess = tf.maximum(sizes - capacity, 0)
    count = 1 + (excess + stride - 1) // stride  # Windows of each text.

    number = tf.ragged.range(count)  # [N, (windows)]
    text = tf.cast(number.value_rowids(), tf.int32)  # [W]
    number = number.values
    # The last window is as long as the others.
    start = tf.minimum(number * stride, tf.gather(excess, text))
    end = tf.minimum(start + capacity, tf.gather(sizes, text))
    # Two windows meet in the middle of what they share.
    is_first = number == 0
    is_last = number == tf.gather(count, text) - 1
    own_start = tf.where(is_first, start, (start + tf.roll(end, 1, 0)) // 2)
    own_end = tf.where(is_last, end, tf.roll(own_start, -1, 0))

    text_start = tf.cast(tf.gather(pieces.row_starts(), text), tf.int32)
    piece = tf.ragged.range(text_start + start, text_start + end)  # [W, (S - 2)]
    window = piece.value_rowids()
    belongs = (piece.values >= tf.gather(text_start + own_start, window)) & (
        piece.values < tf.gather(text_start + own_end, window)
    )
    token_ids = piece.with_values(tf.gather(pieces.values, piece.values))
    piece = piece.with_values(tf.where(belongs, piece.values, -1))

    def between(first: int, rows: tf.RaggedTensor, last: int) -> tf.RaggedTensor:
        column = tf.ones_like(start)[:, tf.newaxis]
        return tf.concat([first * column, rows, last * column], axis=1)

    return Windows(
        between(vocabulary.cls_id, token_ids, vocabulary.sep_id),
        between(-1, piece, -1),
        text,
    )


def run(
    function: Callable[[dict[str, tf.Tensor], tf.Tensor], tf.Tensor],
    windows: Windows,
    width: int,
) -> tf.Tensor:
    """Applies a function to a few windows at a time; that bounds the memory it takes.

    Args:
        function: From `inputs` and `piece` of w windows, padded (with 0 and -1), [w, S]
            each, to any number of rows [., width] float32.
        windows: W windows.
        width: Of the rows.

    Returns:
        The rows of all windows, one after the other [., width].
    """
    inputs = {name: column.to_tensor() for name, column in windows.inputs.items()}
    piece = windows.piece.to_tensor(-1)
    count = tf.shape(piece)[0]
    rows = tf.TensorArray(
        tf.float32,
        size=-(-count // _AT_ONCE),
        infer_shape=False,
        element_shape=[None, width],
    )

    def step(number: tf.Tensor, rows: tf.TensorArray):
        few = slice(number * _AT_ONCE, (number + 1) * _AT_ONCE)
        result = function({name: x[few] for name, x in inputs.items()}, piece[few])
        return number + 1, rows.write(number, result)

    _, rows = tf.while_loop(
        lambda number, _: number * _AT_ONCE < count,
        step,
        (0, rows),
        parallel_iterations=1,
    )
    return rows.concat()
