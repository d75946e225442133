# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Questions about passages -> windows, and the targets of windows for training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.finetuning.squad import Question, answer_bytes
from bert_tf.text import Pieces, Tokenizer, Windows, cut_windows

# Characters of passages tokenized at once, not counting the first passage. A shorter
# passage than the minimum counts as the minimum.
_CHUNK_CHARACTERS = 2_000_000
_MIN_CHARACTERS = 2_000


class Passages(NamedTuple):
    """N questions about N passages, tokenized.

    Attributes:
        context: The passages, strings [N].
        pieces: Pieces of the questions, followed by those of the passages
            [2N, (pieces)].
        windows: W windows over the passages.
    """

    context: tf.Tensor
    pieces: Pieces
    windows: Windows

    @property
    def starts(self) -> tf.Tensor:
        """First piece of each passage, counted in all pieces [N] int32."""
        return tf.split(tf.cast(self.pieces.ids.row_starts(), tf.int32), 2)[1]


def cut_passages(
    tokenizer: Tokenizer, question: tf.Tensor, context: tf.Tensor, **limits: int
) -> Passages:
    """Tokenizes questions and passages, and cuts the passages into windows.

    Args:
        tokenizer: The tokenizer of the encoder.
        question: Strings [N], possibly empty.
        context: Strings [N], possibly empty.
        **limits: `max_sequence_length`, `max_question_length` and `stride` of
            `text.cut_windows`.

    Raises:
        tf.errors.InvalidArgumentError: The numbers of questions and passages differ.
    """
    tf.debugging.assert_equal(
        tf.size(question), tf.size(context), "`context` must have a text per question."
    )
    pieces = tokenizer.tokenize_with_offsets(tf.concat([question, context], axis=0))
    return Passages(context, pieces, cut_windows(tokenizer, pieces.ids, **limits))


def answer_targets(
    passages: Passages, questions: Sequence[Question]
) -> dict[str, np.ndarray]:
    """Returns the first and last token of the answer in each window; eager only.

    Args:
        passages: N passages, W windows.
        questions: The N questions, with answers.

    Returns:
        `start_logits` and `end_logits`, tokens [W] int32; both are 0, [CLS], if the
        window does not contain the whole answer.

    Raises:
        ValueError: An answer has no token, or is not at its offset in the passage.
    """
    splits = passages.pieces.ids.row_splits.numpy()[len(questions) :]
    starts = passages.pieces.starts.values.numpy()
    ends = passages.pieces.ends.values.numpy()
    spans = np.full([len(questions), 2], -1)
    for row, question in enumerate(questions):
        answer = answer_bytes(question)
        if answer:
            in_passage = slice(*splits[row : row + 2])
            first = np.searchsorted(ends[in_passage], answer[0], side="right")
            last = np.searchsorted(starts[in_passage], answer[1], side="left") - 1
            if first > last:
                raise ValueError(
                    f"{question.path}, question {question.id!r}: the answer must "
                    f"contain a token. Got {question.answers[0][0]!r}."
                )
            spans[row] = first, last
    windows = passages.windows
    start, row = windows.start.numpy(), windows.row.numpy()
    first, last = spans[row].T
    is_inside = (first >= start) & (last < start + windows.size.numpy())
    offset = windows.first_token.numpy() - start
    return {
        "start_logits": np.where(is_inside, first + offset, 0).astype(np.int32),
        "end_logits": np.where(is_inside, last + offset, 0).astype(np.int32),
    }


def chunk_questions(questions: Sequence[Question]) -> list[Sequence[Question]]:
    """Returns groups of questions to tokenize at once, which bounds the memory."""
    sizes = [max(len(question.context), _MIN_CHARACTERS) for question in questions]
    chunk = np.cumsum(sizes) // _CHUNK_CHARACTERS
    splits = np.flatnonzero(np.diff(chunk, prepend=-1)).tolist()
    return [questions[a:b] for a, b in zip(splits, [*splits[1:], None])]
