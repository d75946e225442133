# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.normalization."""

import random
import sys

import tensorflow_text as tf_text

from bert_tf.text import normalization

NUM_CODE_POINTS = sys.maxunicode + 1


def look_up(units, key: bytes):
    """Looks up a key in a darts-clone double array; None if it is missing."""
    index = 0
    for label in key:
        index ^= int(units[index]) >> 10 ^ label
        if int(units[index]) & 0x800000FF != label:
            return None
    unit = int(units[index])
    if not unit & 0x100:
        return None
    return int(units[index ^ unit >> 10]) & 0x7FFFFFFF


def test_double_array_contains_exactly_its_keys():
    rng = random.Random(1)

    def random_key():
        alphabet = rng.choice([range(1, 4), range(1, 256)])
        return bytes(rng.choices(alphabet, k=rng.randint(1, 5)))

    values = {random_key(): rng.randrange(1 << 31) for _ in range(5000)}
    # A node with all possible children, and keys that are prefixes of others.
    values |= {bytes([7, label]): label for label in range(1, 256)}
    values |= {b"\7": 1, b"\7\1\1": 2}
    units = normalization.double_array_trie(values)
    assert len(units) % 256 == 0
    assert {key: look_up(units, key) for key in values} == values
    prefixes = {key[:length] for key in values for length in range(len(key))}
    prefixes = rng.sample(sorted(prefixes), 500)
    others = {prefix + bytes([label]) for prefix in prefixes for label in range(1, 256)}
    found = [key for key in others - values.keys() if look_up(units, key) is not None]
    assert not found
    # A root with few children.
    values = {bytes([a, b]): b for a in (1, 9) for b in range(1, 99)} | {b"\1": 0}
    units = normalization.double_array_trie(values)
    assert {key: look_up(units, key) for key in values} == values
    assert look_up(units, b"\2") is None


def test_stray_bytes_and_truncated_characters_are_deleted():
    # Each 64 characters share all bytes but the last.
    code_points = range(0x80, NUM_CODE_POINTS, 64)
    characters = [chr(n).encode("utf-8", "surrogatepass") for n in code_points]
    invalid = {utf8[:n] for utf8 in characters for n in range(1, len(utf8))}
    invalid |= {bytes([byte]) for byte in range(0x80, 0x100)}
    model = normalization.normalizer_model(False)
    normalizer = tf_text.FastBertNormalizer(model_buffer=model)
    texts = normalizer.normalize([b"X" + s + b"?" for s in invalid])
    assert set(texts.numpy()) == {b"X?"}
