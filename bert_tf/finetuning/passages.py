# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Targets of the windows of passages for training, and chunks of questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bert_tf.finetuning.squad import Question, answer_bytes
from bert_tf.heads import Passages

# Characters of passages tokenized at once, not counting the first passage. A shorter
# passage than the minimum counts as the minimum.
_CHUNK_CHARACTERS = 2_000_000
_MIN_CHARACTERS = 2_000


def answer_targets(
    passages: Passages, questions: Sequence[Question]
) -> dict[str, np.ndarray]:
    """Returns the first and last token of the answer in each window; eager only.

    Args:
        passages: N passages, W windows.
        questions: The N questions, with answers.

    Returns:
        `start_logits` and `end_logits`, tokens [W] int32; both are 0, [CLS], if the
        window does not contain the whole answer of `answer_bytes`.

    Raises:
        ValueError: An answer has no token.
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
