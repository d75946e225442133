# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pytest
import tensorflow as tf

from bert_tf.text.spans import substrings
from bert_tf.text.tokenizer import Tokenizer
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.text.words import words

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(scope="module")
def tokenizer():
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    marks = "\"'.,;:!?()[]-–@#/…“”"
    continued = (f"##{char}" for char in LETTERS)
    return Tokenizer(Vocabulary((*special, *LETTERS, *continued, *marks, "東", "京")))


def found(tokenizer, *texts):
    text = tf.constant(texts, tf.string)
    result = words(tokenizer.tokenize_with_offsets(text), tokenizer.vocabulary)
    cut = substrings(text, result.row, result.start, result.end).numpy()
    return [
        [word.decode() for word, row in zip(cut, result.row, strict=True) if row == n]
        for n in range(len(texts))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  the cat\tsat\n", "the cat sat"),
        (
            "\"It's Mr. O'Neil,\" she said (1-0).",
            "\" It's Mr . O'Neil , \" she said ( 1-0 ) .",
        ),
        ("“Hello”… (see http://a.b/c?d=1)!", "“ Hello ” … ( see http://a.b/c?d=1 ) !"),
        ("@paul #tag U.S. --", "@ paul # tag U.S . - -"),
        ("a,b , c,", "a,b , c ,"),
        ("Thé\u0301 naïve é.", "Thé\u0301 naïve é ."),
        ("in東京,now", "in 東 京 ,now"),
        ("xyz\u200bxyz.", "xyz\u200bxyz ."),
        ("\u200b \x00", ""),
        ("a\u00a0b\u3000c", "a b c"),
    ],
)
def test_words(tokenizer, text, expected):
    assert found(tokenizer, text) == [expected.split(" ") if expected else []]


def test_texts_do_not_meet(tokenizer):
    assert found(tokenizer, "a.", "", "b", ".c") == [["a", "."], [], ["b"], [".", "c"]]


def test_no_texts_and_bytes_that_are_not_utf8(tokenizer):
    assert found(tokenizer) == []
    text = tf.constant([b"a\xff\xfeb. \xff"])
    result = words(tokenizer.tokenize_with_offsets(text), tokenizer.vocabulary)
    cut = substrings(text, result.row, result.start, result.end)
    assert cut.numpy().tolist() == [b"a\xff\xfeb", b"."]
