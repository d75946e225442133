# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.offsets against BERT's rules in Python and Python strings."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.offsets import character_offsets, find_words, substrings
from bert_tf.text.tokenizer import Tokenizer
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

TEXTS = ["", "aé", "日本 𝄞!", "\0\xff plain", "b" * 1000]


@pytest.fixture(scope="module")
def tokenizer():
    marks = "\"'.,;:!?()[]-–@#/…“”"
    continued = (f"##{char}" for char in LETTERS)
    tokens = (*SPECIAL_TOKENS, *LETTERS, *continued, *marks, "東", "京")
    return Tokenizer(Vocabulary(tokens))


# --- Words -----------------------------------------------------------------------


def words_of(tokenizer, texts):
    """Returns the words of each text as bytes."""
    text = tf.constant(texts, tf.string)
    words = find_words(tokenizer.tokenize_with_offsets(text), tokenizer.vocabulary)
    found = substrings(text, words.row, words.start, words.end).numpy()
    return [found[words.row == row].tolist() for row in range(len(texts))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  the cat\tsat\n", "the cat sat"),
        (
            "\"It's Mr. O'Neil,\" she said (1-0).",
            "\" It ' s Mr . O ' Neil , \" she said ( 1 - 0 ) .",
        ),
        ("“Hello”… (http://a.b)!", "“ Hello ” … ( http : / / a . b ) !"),
        ("Thé\u0301 naïve é.", "Thé\u0301 naïve é ."),
        ("in東京,now", "in 東 京 , now"),
        ("xyz\u200bxyz.", "xyz\u200bxyz ."),
        ("\u200b \x00", ""),
        ("a\u00a0b\u3000c", "a b c"),
    ],
)
def test_find_words(tokenizer, text, expected):
    assert words_of(tokenizer, [text]) == [expected.encode().split()]


def test_words_do_not_cross_texts(tokenizer):
    assert words_of(tokenizer, ["a.", "", "b", ".c"]) == [
        [b"a", b"."],
        [],
        [b"b"],
        [b".", b"c"],
    ]
    assert words_of(tokenizer, []) == []


def test_words_of_invalid_utf8(tokenizer):
    assert words_of(tokenizer, [b"a\xff\xfeb. \xff"]) == [[b"a\xff\xfeb", b"."]]


# --- Substrings ------------------------------------------------------------------


def test_substrings_and_character_offsets_match_python():
    rows, starts, ends, expected, offsets = [], [], [], [], []
    for row, text in enumerate(text[:12] for text in TEXTS):
        for start in range(len(text) + 1):
            for end in range(start, len(text) + 1):
                rows.append(row)
                starts.append(len(text[:start].encode()))
                ends.append(len(text[:end].encode()))
                expected.append(text[start:end].encode())
                offsets.append((start, end))
    text = tf.constant(TEXTS)
    assert substrings(text, rows, starts, ends).numpy().tolist() == expected
    found = [character_offsets(text, rows, offset) for offset in (starts, ends)]
    np.testing.assert_array_equal(np.stack(found, axis=1), offsets)


@pytest.mark.parametrize("texts", [[], ["", "a"]])
def test_no_substrings(texts):
    text, none = tf.constant(texts, tf.string), tf.zeros([0], tf.int32)
    assert substrings(text, none, none, none).shape == [0]
    assert character_offsets(text, none, none).shape == [0]


def test_substring_of_invalid_utf8():
    text = tf.constant([b"\xff\xfea\x80"])
    assert substrings(text, [0], [0], [4]).numpy().tolist() == [b"\xff\xfea\x80"]
