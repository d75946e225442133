# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads records as masked batches: the `tf.data.Dataset` of pre-training.

The dataset yields tuples `(x, y, sample_weight)` for `model.fit`:

    x   token_ids, segment_ids, padding_mask [B, S], mask_positions [B, P],
        first_positions [B, Q]                                               int32
    y   mlm [B, P], nsp [B, Q]                                               int32
    sample_weight   mlm [B, P], nsp [B, Q]; each sums to one                 float32

A row holds up to Q pairs, see `BertPretrainer`: `padding_mask` numbers them from 1, and
`first_positions` are the columns where they begin.

Masks depend only on the seed and the number of the batch. So every epoch has new masks,
and a run that resumes at step n gets the same batches as an uninterrupted one. All
shapes are static. This module does not require tensorflow-text.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from bert_tf import storage
from bert_tf.data.masking import Masker
from bert_tf.text import Vocabulary

_NUM_MIXED_FILES = 16  # Files of which rows are read in turn.


def pretrain_dataset(
    records: str | os.PathLike,
    *,
    batch_size: int,
    split: str = "train",
    shuffle_buffer: int = 100_000,
    first_step: int = 0,
    seed: int = 0,
    **masking: Any,
) -> tf.data.Dataset:
    """Returns a dataset of masked batches for `BertPretrainer.fit`.

    Args:
        records: Directory written by `python -m bert_tf.corpus`.
        batch_size: Number of rows in a global batch, B.
        split: `"train"` is shuffled and repeated forever. `"validation"` is read once,
            in order, with the same masks each time; a partial last batch is dropped.
        shuffle_buffer: Number of rows in the shuffle buffer.
        first_step: Number of batches to skip when a run resumes.
        seed: Seed of shuffling and masking.
        **masking: Arguments of `Masker`, for example `whole_word_masking=True`.

    Raises:
        ValueError: The records are incomplete, `vocab.txt` is not their vocabulary, or
            a rate is out of range.
    """
    manifest, vocabulary = read_manifest(records)
    masker = Masker(vocabulary=vocabulary, **masking)
    rows = manifest.get(f"{split}_rows")
    if not rows:
        raise ValueError(f"{records} contains no rows of the split {split}.")
    paths = storage.glob(os.path.join(records, f"{split}-*.tfrecord"))
    files = tf.data.Dataset.from_tensor_slices(paths)
    if split == "train":  # Each file is a part of the text: mix several of them.
        files = files.shuffle(len(paths), seed=seed)
        dataset = files.interleave(tf.data.TFRecordDataset, _NUM_MIXED_FILES, 1)
        dataset = dataset.shuffle(shuffle_buffer, seed=seed)
    else:
        dataset = tf.data.TFRecordDataset(paths)
    # Keras needs the number of batches of an evaluation.
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(rows))
    if split == "train":
        dataset = dataset.repeat()
    dataset = dataset.batch(batch_size, drop_remainder=True).skip(first_step)

    def to_batch(step, serialized):
        length, pairs = manifest["max_sequence_length"], manifest["pairs_per_row"]
        return masker(_parse(serialized, batch_size, length, pairs), (seed, step))

    # Every worker reads the same global batch and keeps its part.
    options = tf.data.Options()
    sharding = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = sharding
    batches = map_ahead(dataset.enumerate(start=first_step), to_batch)
    return batches.with_options(options)


def map_ahead(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Maps the elements in order, in parallel, before they are needed.

    Without autotuning: the thread that tunes may miss that the iterator is deleted, and
    the deletion waits for it for up to a minute (TensorFlow 2.21). The reason is that
    `CancellationManager::StartCancelWithStatus` wakes `Model::OptimizeLoop` before it
    sets `is_cancelled_`.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(2)
        .with_options(options)
    )


def read_manifest(records: str | os.PathLike) -> tuple[dict[str, Any], Vocabulary]:
    """Returns the manifest and the vocabulary of a directory of records.

    Raises:
        ValueError: The directory has no manifest, so the records are incomplete; or
            `vocab.txt` is not the vocabulary of the records.
    """
    path = os.path.join(records, "manifest.json")
    if not storage.exists(path):
        raise ValueError(
            f"{records} has no manifest.json, so its records are incomplete. Write "
            "records with `python -m bert_tf.corpus --output=...`."
        )
    try:
        manifest = storage.read_json(path)
    except ValueError as error:
        raise ValueError(f"{error}. {_write_again(records)}") from error
    for name, size in manifest.get("record_files", {}).items():
        file = os.path.join(records, name)
        found = storage.stat(file)[0] if storage.exists(file) else 0
        if found != size:
            raise ValueError(
                f"{file} is damaged: it has {found:,} bytes instead of {size:,}. "
                f"{_write_again(records)}"
            )
    vocabulary = Vocabulary.from_file(os.path.join(records, "vocab.txt"))
    if vocabulary.fingerprint != manifest["vocabulary_fingerprint"]:
        raise ValueError(
            f"{records}/vocab.txt is not the vocabulary of the records. Expected "
            f"fingerprint {manifest['vocabulary_fingerprint'][:12]}. "
            f"Got {vocabulary.fingerprint[:12]}. Write the records again."
        )
    return manifest, vocabulary


def check_records(directories: Iterable[str | os.PathLike]) -> None:
    """Reads all record files and verifies their checksums.

    Raises:
        ValueError: A file is damaged; the message names it.
    """
    for records in directories:
        for path in storage.glob(os.path.join(records, "*.tfrecord")):
            try:
                for _ in tf.data.TFRecordDataset(path):
                    pass
            except tf.errors.DataLossError as error:
                raise ValueError(
                    f"{path} is damaged: {error.message}. {_write_again(records)}"
                ) from error


def _write_again(records: str | os.PathLike) -> str:
    return (
        f"Remove {os.path.join(records, 'manifest.json')} and rerun the bert_tf.corpus "
        "command that wrote it: it writes the same records again."
    )


def _parse(
    serialized: tf.Tensor, batch_size: int, length: int, pairs: int
) -> dict[str, tf.Tensor]:
    """Parses serialized rows [B] into the inputs of the encoder and `is_random_next`.

    `is_random_next` is [B, Q], with -1 in rows of fewer than Q pairs.
    """
    names = ("token_ids", "pair_length", "first_segment_length", "is_random_next")
    features = {name: tf.io.RaggedFeature(tf.int64) for name in names}
    row = {
        name: tf.cast(values, tf.int32)
        for name, values in tf.io.parse_example(serialized, features).items()
    }
    lengths = row["pair_length"].to_tensor(shape=(batch_size, pairs))
    ends = tf.cumsum(lengths, axis=1)  # [B, Q]
    starts = ends - lengths
    first_ends = starts + row["first_segment_length"].to_tensor(shape=starts.shape)
    position = tf.tile(tf.range(length)[tf.newaxis], [batch_size, 1])  # [B, S]
    number = tf.searchsorted(ends, position, side="right")  # Index of the pair.
    is_real = position < ends[:, -1:]
    number = tf.where(is_real, number, 0)
    in_second = is_real & (position >= tf.gather(first_ends, number, batch_dims=1))
    inputs = {
        "token_ids": row["token_ids"].to_tensor(shape=(batch_size, length)),
        "segment_ids": tf.cast(in_second, tf.int32),
        "padding_mask": tf.where(is_real, number + 1, 0),
    }
    random_next = row["is_random_next"].to_tensor(-1, shape=starts.shape)
    first_positions = tf.where(lengths > 0, starts, 0)
    return inputs | {"first_positions": first_positions, "is_random_next": random_next}


def unigram_accuracy(dataset: tf.data.Dataset) -> float:
    """Returns the accuracy of always predicting the most frequent masked token."""
    counts: collections.Counter[int] = collections.Counter()
    for _, labels, weights in dataset:
        counts.update(labels["mlm"].numpy()[weights["mlm"].numpy() > 0].tolist())
    return counts.most_common(1)[0][1] / counts.total()
