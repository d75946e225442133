# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib

import pytest

from bert_tf.finetuning.passages import chunk_questions
from bert_tf.finetuning.squad import Question


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5], [1]),
        ([0] * 2_500, [999, 1_000, 501]),  # Each counts for 2,000 characters.
        ([900_000] * 5, [2, 2, 1]),
        ([5_000_000, 10, 1_999_999, 10], [2, 2]),
    ],
)
def test_chunks_add_less_than_two_million_characters_to_their_first_passage(
    lengths, expected
):
    questions = [
        Question(pathlib.Path(), str(row), "?", "a" * length, None, False)
        for row, length in enumerate(lengths)
    ]
    chunks = chunk_questions(questions)
    assert [question for chunk in chunks for question in chunk] == questions
    assert [len(chunk) for chunk in chunks] == expected
