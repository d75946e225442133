# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Small records and masked batches for tests."""

import itertools
import json
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data import Masker
from bert_tf.text import Vocabulary

LENGTH = 16  # Default row length.


def random_pairs(
    vocabulary: Vocabulary, batch_size: int, seed: int, length: int = LENGTH
) -> dict[str, tf.Tensor]:
    """Returns unmasked rows of random tokens, each one pair of at least 6 tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(6, length + 1, batch_size)[:, None]
    position = np.arange(length)[None]
    token_ids = rng.integers(5, vocabulary.size, (batch_size, length))
    token_ids[:, 0] = vocabulary.cls_id
    token_ids[:, 3] = vocabulary.sep_id
    token_ids = np.where(position == lengths - 1, vocabulary.sep_id, token_ids)
    token_ids = np.where(position < lengths, token_ids, vocabulary.pad_id)
    pairs = {
        "token_ids": token_ids,
        "segment_ids": (position > 3) & (position < lengths),
        "padding_mask": position < lengths,
        "first_positions": np.zeros((batch_size, 1)),
        "is_random_next": rng.integers(0, 2, (batch_size, 1)),
    }
    return {name: tf.constant(value, tf.int32) for name, value in pairs.items()}


def make_batch(vocabulary: Vocabulary, batch_size: int, seed: int):
    """Returns a masked batch `(x, y, sample_weight)` of random pairs."""
    pairs = random_pairs(vocabulary, batch_size, seed)
    return Masker(vocabulary=vocabulary)(pairs, (seed, tf.constant(0)))


def write_records(
    directory: pathlib.Path,
    vocabulary: Vocabulary,
    pairs: Sequence[tuple[list[int], int, int]],
    split: str = "train",
    length: int = LENGTH,
    pairs_per_row: int = 1,
    num_files: int = 1,
) -> None:
    """Writes one split of a record directory and updates the manifest.

    Args:
        directory: Created unless it exists.
        vocabulary: Written to `vocab.txt`.
        pairs: `(token_ids, first_segment_length, is_random_next)` of each pair.
        split: "train" or "validation".
        length: Row length in the manifest.
        pairs_per_row: Number of consecutive pairs packed into each row.
        num_files: Number of files with equally many consecutive rows.
    """
    directory.mkdir(exist_ok=True)
    path, sizes = directory / "manifest.json", {}
    manifest = json.loads(path.read_text()) if path.exists() else {}
    rows = [pairs[i : i + pairs_per_row] for i in range(0, len(pairs), pairs_per_row)]
    for number in range(num_files):
        file = directory / f"{split}-{number:05d}-of-{num_files:05d}.tfrecord"
        count = len(rows) // num_files
        with tf.io.TFRecordWriter(str(file)) as writer:
            for row in rows[number * count : (number + 1) * count]:
                writer.write(_serialize(row))
        sizes[file.name] = file.stat().st_size
    vocabulary.write(directory / "vocab.txt")
    manifest |= {
        "record_files": manifest.get("record_files", {}) | sizes,
        "max_sequence_length": length,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "lowercase": True,
        "padding_share": 0.25,
        f"{split}_pairs": len(pairs),
        f"{split}_rows": len(rows),
        "pairs_per_row": pairs_per_row,
    }
    path.write_text(json.dumps(manifest))


def write_both_splits(
    directory: pathlib.Path, vocabulary: Vocabulary, count: int = 64, **options
) -> None:
    """Writes `count` random pairs of 7 to 15 tokens as each split."""
    rng, cls, sep = np.random.default_rng(0), vocabulary.cls_id, vocabulary.sep_id
    pairs = []
    for a, b in rng.integers(2, 7, (count, 2)):
        words = rng.integers(5, vocabulary.size, a + b).tolist()
        ids = [cls, *words[:a], sep, *words[a:], sep]
        pairs.append((ids, int(a) + 2, len(pairs) % 2))
    for split in ("train", "validation"):
        write_records(directory, vocabulary, pairs, split, **options)


def _serialize(row: Sequence[tuple[list[int], int, int]]) -> bytes:
    token_ids, first, is_random = zip(*row)
    feature = {
        "token_ids": itertools.chain(*token_ids),
        "pair_length": map(len, token_ids),
        "first_segment_length": first,
        "is_random_next": is_random,
    }
    example = tf.train.Example()
    for name, values in feature.items():
        example.features.feature[name].int64_list.value.extend(values)
    return example.SerializeToString()
