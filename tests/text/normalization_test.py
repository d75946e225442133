# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.normalization."""

import sys

import tensorflow_text as tf_text

from bert_tf.text import normalization

NUM_CODE_POINTS = sys.maxunicode + 1


def test_stray_bytes_and_truncated_characters_are_deleted():
    # Each 64 characters share all bytes but the last.
    code_points = range(0x80, NUM_CODE_POINTS, 64)
    characters = [chr(n).encode("utf-8", "surrogatepass") for n in code_points]
    invalid = {utf8[:n] for utf8 in characters for n in range(1, len(utf8))}
    invalid |= {bytes([byte]) for byte in range(0x80, 0x100)}
    rules = normalization.character_rules(False, "google", None, True)
    model = rules.normalizer_model
    assert len(model) < 200_000  # The trie is compact.
    normalizer = tf_text.FastBertNormalizer(model_buffer=model)
    texts = normalizer.normalize([b"X" + s + b"?" for s in invalid])
    assert set(texts.numpy()) == {b"X?"}
