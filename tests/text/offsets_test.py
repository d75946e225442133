# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.word_pieces against Python strings."""

import numpy as np
import tensorflow as tf

from bert_tf.text.word_pieces import character_offsets, substrings

TEXTS = ["", "aé", "日本 𝄞!", "\0\xff plain", "b" * 1000]


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
