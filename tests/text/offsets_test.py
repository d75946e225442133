# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.offsets against BERT's rules in Python and Python strings."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text.offsets import (
    character_offsets,
    find_words,
    join_features,
    substrings,
)
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


def words_of(tokenizer, texts, join_weights=""):
    """Returns the words of each text as bytes."""
    text = tf.constant(texts, tf.string)
    pieces = tokenizer.tokenize_with_offsets(text)
    words = find_words(pieces, tokenizer.vocabulary, join_weights)
    found = substrings(text, words.row, words.start, words.end).numpy()
    return [found[words.row == row].tolist() for row in range(len(texts))]


WORDS = {
    "": "",
    "  the cat\tsat\n": "the cat sat",
    "\"It's Mr. O'Neil,\" she (1-0).": "\" It ' s Mr . O ' Neil , \" she ( 1 - 0 ) .",
    "“Hello”… (http://a.b)!": "“ Hello ” … ( http : / / a . b ) !",
    "Thé\u0301 naïve é.": "Thé\u0301 naïve é .",
    "in東京,now": "in 東 京 , now",
    "xyz\u200bxyz.": "xyz\u200bxyz .",
    "\u200b \x00": "",
    "a\u00a0b\u3000c": "a b c",
    ".c": ". c",
}


def test_find_words(tokenizer):
    texts = [*(text.encode() for text in WORDS), b"a\xff\xfeb. \xff"]
    expected = [words.encode().split() for words in WORDS.values()]
    assert words_of(tokenizer, texts) == [*expected, [b"a\xff\xfeb", b"."]]
    assert words_of(tokenizer, []) == []


def test_join_features_are_neighbors_and_their_shapes(tokenizer):
    vocabulary = tokenizer.vocabulary
    ids = tokenizer.tokenize(tf.constant(["", "ab1 12.", "b", "a..", "東a.京“"]))
    features, size = join_features(ids, vocabulary)
    shapes = {"東": "a", "京": "a", "“": "other", "##b": "##a"}
    shapes |= dict.fromkeys(["##1", "##2"], "00")
    expected = []
    for row in ids.to_list():
        tokens = ["", "", *(vocabulary.tokens[piece] for piece in row), ""]
        for window in zip(tokens, tokens[1:], tokens[2:], tokens[3:]):
            _, before, piece, after = (shapes.get(token, token) for token in window)
            expected.append(("constant", *window, (before, piece), (piece, after)))
    # Equal features have equal indices, others do not.
    pairs = {
        (column, value, index)
        for values, indices in zip(expected, features.numpy().tolist(), strict=True)
        for column, (value, index) in enumerate(zip(values, indices, strict=True))
    }
    assert len(pairs) == len({pair[:2] for pair in pairs})
    assert len(pairs) == len({pair[2] for pair in pairs})
    assert 0 <= features.numpy().min() <= features.numpy().max() < size


def test_weights_join_adjacent_words(tokenizer):
    ids = tokenizer.tokenize(tf.constant(["a,", "."]))
    features, _ = join_features(ids, tokenizer.vocabulary)
    after_a, is_stop = features[1, 2], features[2, 3]
    weights = f"{after_a}:1.5 {is_stop}:-1.5"
    assert words_of(tokenizer, ["a,a a,.", "a", ",a.", "a-a'", ""], weights) == [
        [b"a,", b"a", b"a,", b"."],
        [b"a"],
        [b",", b"a", b"."],
        [b"a-", b"a'"],
        [],
    ]
    # Not across texts. The second text continues where the first one ends.
    is_comma = features[1, 3]
    assert words_of(tokenizer, ["a", " ,"], f"{is_comma}:1") == [[b"a"], [b","]]


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
    assert substrings([b"\xff\xfea\x80"], [0], [0], [4]) == b"\xff\xfea\x80"
    for texts in ([], ["", "a"]):
        text, none = tf.constant(texts, tf.string), tf.zeros([0], tf.int32)
        assert substrings(text, none, none, none).shape == [0]
        assert character_offsets(text, none, none).shape == [0]
