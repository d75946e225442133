# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Substrings and characters against Python's own."""

import numpy as np
import tensorflow as tf

from bert_tf.text import spans

TEXTS = ["", "aé", "日本 𝄞!", "\0\xff plain", "b" * 1000]


def all_spans():
    """Every span of characters of every text, overlapping ones too."""
    rows, starts, ends, texts, characters = [], [], [], [], []
    for row, text in enumerate(text[:12] for text in TEXTS):
        for start in range(len(text) + 1):
            for end in range(start, len(text) + 1):
                rows.append(row)
                starts.append(len(text[:start].encode()))
                ends.append(len(text[:end].encode()))
                texts.append(text[start:end].encode())
                characters.append((start, end))
    return *map(tf.constant, (rows, starts, ends)), texts, characters


def test_substrings_and_characters():
    row, start, end, texts, characters = all_spans()
    text = tf.constant(TEXTS)
    assert spans.substrings(text, row, start, end).numpy().tolist() == texts
    found = [spans.characters(text, row, offset) for offset in (start, end)]
    np.testing.assert_array_equal(np.stack(found, axis=1), characters)


def test_nothing_to_cut():
    none = tf.zeros([0], tf.int32)
    for texts in ([], ["", "a"]):
        text = tf.constant(texts, tf.string)
        assert spans.substrings(text, none, none, none).shape == [0]
        assert spans.characters(text, none, none).shape == [0]


def test_bytes_that_are_not_utf8_come_back():
    text = tf.constant([b"\xff\xfea\x80"])
    zero = tf.constant([0])
    found = spans.substrings(text, zero, zero, tf.constant([4]))
    assert found.numpy().tolist() == [b"\xff\xfea\x80"]
