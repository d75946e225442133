# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of problems in the text. See preparation_test.py for records of parts."""

import pytest

from bert_tf import text
from bert_tf.data import parts


@pytest.fixture
def count(vocabulary):
    def count(documents: list[list[str]]) -> dict[str, int]:
        ids, lengths = parts._tokenize(text.Tokenizer(vocabulary), documents)
        return parts.count_problems(documents, ids, lengths, vocabulary)

    return count


def test_counts(count):
    documents = [["The cat.", "\u0301", "The mat."], ["\u0301"], ["The cat."], ["猫"]]
    assert count(documents) == {
        "documents": 3,
        "sentences": 4,
        "tokens": 3 + 3 + 3 + 1,
        "unknown": 1,
        "garbled": 0,
        "repeated": 3,
        "one_sentence": 2,
    }


def test_good_text_has_no_warnings(count):
    words = ["« Déjà vu » à Âge d’or.", "NÃO é ação – ok…", "Łódź “é”."]
    assert count([words])["garbled"] == 0
    good = [[f"The cat {letter} sat.", f"A mat {letter}."] for letter in "abcdef"]
    assert parts.text_warnings(count(good)) == []


@pytest.mark.parametrize(
    ("documents", "warning"),
    [
        ([["猫坐在垫子上。", "狗也在。"]], "100.0% of the tokens are [UNK]"),
        ([["The cat."], ["The mat."], ["a", "b"]], "66.7% of the documents have 1 sen"),
        ([["The cat Ã©.", "The mat."]], "50.0% of the sentences contain text like"),
        ([["The catâ€™s.", "a"]], "50.0% of the sentences contain text like"),
        ([["The cat \ufffd.", "a"]], "50.0% of the sentences contain text like"),
        ([["the", "mat"], ["the", "cat"]], "25.0% of the tokens are in sentences"),
    ],
)
def test_warnings(count, documents, warning):
    found = parts.text_warnings(count(documents))
    assert [w for w in found if w.startswith(warning)]
