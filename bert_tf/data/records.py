# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Records: rows of sentence pairs in files, and the batches that are read from them.

A record is a `tf.train.Example` of one row, not masked and not padded. It holds
`token_ids` of all pairs, and with one value for each pair

* `pair_length`: number of tokens in [CLS] first segment [SEP] second segment [SEP]
* `first_segment_length`: number of tokens in [CLS] first segment [SEP]
* `is_random_next`: 1 if the second segment is from another document, 0 if it continues
  the first, -1 if there is none

`Records` is a directory of them, which `python -m bert_tf.corpus` wrote. Its dataset
yields tuples `(x, y, sample_weight)` for `model.fit`:

    x   token_ids, segment_ids, padding_mask [B, S], mask_positions [B, P],
        first_positions [B, Q]                                               int32
    y   mlm [B, P], nsp [B, Q]                                               int32
    sample_weight   mlm [B, P], nsp [B, Q]; each sums to one                 float32

In validation, weights sum to one in the mean over the batches.

B rows in a batch, S tokens in a row, P predictions, Q pairs; see `BertPretrainer`.
`first_positions` are the columns where the pairs begin, and 0 for pairs that a row
lacks.

Masks depend only on the seed and the number of the batch. So every pass over the rows
has new masks, and a run that resumes at step n gets the same batches as an
uninterrupted one. All shapes are static. This module does not require tensorflow-text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import storage, text_files
from bert_tf.data.masking import Masker
from bert_tf.data.pairs import Pair
from bert_tf.lazy import lazy_import
from bert_tf.text import Vocabulary

tf = lazy_import("tensorflow")

_FEATURES = ("token_ids", "pair_length", "first_segment_length", "is_random_next")
_NUM_MIXED_FILES = 16  # Files of which rows are read in turn.
_MASKED_TOGETHER = 32  # Rows of validation, whatever the batch size.


class Records:
    """The records in a directory, opened once.

    Args:
        path: Directory written by `python -m bert_tf.corpus`.

    Attributes:
        path: The directory.
        manifest: Its statistics and settings, from `manifest.json`.
        vocabulary: The vocabulary of the token ids, from `vocab.txt`.
        has_pairs: Whether sequences are pairs, for next sentence prediction.

    Raises:
        ValueError: The directory has no manifest, so the records are incomplete; a file
            has another size than was written; or `vocab.txt` is not the vocabulary of
            the records.

    Example: `model.fit(Records("records").dataset(batch_size=32), ...)`.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        manifest = os.path.join(self.path, "manifest.json")
        if not storage.exists(manifest):
            raise ValueError(
                f"{self.path} has no manifest.json: the path is wrong, or the records "
                "are incomplete or of another program, such as create_pretraining_data."
                "py of google-research/bert. Write records with `python -m "
                "bert_tf.corpus --output=...`."
            )
        self._repair = (
            f"Remove {manifest} and rerun the bert_tf.corpus command that wrote it: it "
            "writes the same records again."
        )
        try:
            self.manifest: dict[str, Any] = text_files.read_json(manifest)
        except ValueError as error:
            raise ValueError(f"{error}. {self._repair}") from error
        self.has_pairs = self.manifest.get("next_sentence_prediction", True)
        sizes = self.manifest["record_files"]
        self._files = {os.path.join(self.path, n): sizes[n] for n in sorted(sizes)}
        for file, size in self._files.items():
            found = 0
            with contextlib.suppress(FileNotFoundError):
                found = storage.stat(file)[0]
            if found != size:
                raise ValueError(
                    f"{file} is damaged: it has {found:,} bytes instead of {size:,}. "
                    f"{self._repair}"
                )
        vocabulary = os.path.join(self.path, "vocab.txt")
        self.vocabulary = Vocabulary.from_file(vocabulary)
        expected = self.manifest["vocabulary_fingerprint"]
        if self.vocabulary.fingerprint != expected:
            raise ValueError(
                f"{vocabulary} is not the vocabulary of the records. Expected "
                f"fingerprint {expected[:12]}. Got {self.vocabulary.fingerprint[:12]}. "
                "Write the records again."
            )

    def dataset(
        self,
        split: str = "train",
        *,
        batch_size: int,
        shuffle_buffer: int = 100_000,
        first_step: int = 0,
        seed: int = 0,
        **masking: Any,
    ) -> tf.data.Dataset:
        """Returns a dataset of masked batches for `BertPretrainer.fit`.

        Args:
            split: `"train"` is shuffled and repeated forever. `"validation"` is read
                once, in order, with the same masks each time. Empty rows fill the last
                batch. Metrics are the same for all batch sizes.
            batch_size: Number of rows in a global batch, B.
            shuffle_buffer: Number of rows in the shuffle buffer; 0 to read any split as
                `"validation"`.
            first_step: Number of batches to skip when a run resumes.
            seed: Seed of shuffling and masking.
            **masking: Arguments of `Masker`, for example `whole_word_masking=True`.

        Raises:
            ValueError: A rate is out of range, or there is no batch.
        """
        masker = Masker(vocabulary=self.vocabulary, **masking)
        rows = self.manifest.get(f"{split}_rows", 0)
        if not rows:
            raise ValueError(f"{self.path} has no {split} rows.")

        if masker.whole_word_masking and split == "train":
            ids = self.token_ids(2**16)
            share = self.vocabulary.is_continuation[ids[ids > 0]].mean()
            if share < 0.01:
                logging.warning(
                    "%s: whole-word masking changes little, because %.2g %% of the "
                    "tokens continue a word. Each Chinese character is a word.",
                    self.path, 100 * share,
                )  # fmt: skip

        def to_batch(step, serialized):
            return masker(self._parse(serialized, serialized.shape[0]), (seed, step))

        paths = self._paths(split)
        if split != "train" or not shuffle_buffer:
            dataset = tf.data.TFRecordDataset(paths)
            return _validation_batches(dataset, rows, batch_size, to_batch)
        # Each file is a part of the text: mix several of them.
        files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=seed)
        dataset = files.interleave(tf.data.TFRecordDataset, _NUM_MIXED_FILES, 1)
        dataset = dataset.shuffle(shuffle_buffer, seed=seed)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(rows)).repeat()
        dataset = dataset.batch(batch_size, drop_remainder=True).skip(first_step)
        return map_ahead(dataset.enumerate(start=first_step), to_batch)

    def token_ids(self, count: int = 2**24) -> np.ndarray:
        """Returns training rows from evenly spaced files, [R, S] int32, 0 at padding.

        Args:
            count: How many tokens to read at most, padding included.
        """
        limit = max(1, count // self.manifest["max_sequence_length"])  # In rows.
        step = -(-self.manifest["train_rows"] // limit)
        # Of a part whose documents are all held out, the file is empty.
        files = [path for path in self._paths("train") if self._files[path]]
        rows = tf.data.TFRecordDataset(files[::step])
        batches = rows.take(limit).batch(4096)
        parsed = (self._parse(batch, len(batch))["token_ids"] for batch in batches)
        return np.concatenate([token_ids.numpy() for token_ids in parsed])

    def check(self) -> None:
        """Reads all files and verifies their checksums.

        Raises:
            ValueError: A file is damaged; the message names it.
        """
        for path in self._files:
            try:
                for _ in tf.data.TFRecordDataset(path):
                    pass
            except tf.errors.DataLossError as error:
                raise ValueError(
                    f"{path} is damaged: {error.message}. {self._repair}"
                ) from error

    @property
    def fingerprint(self) -> str:
        """Number of rows; hash of the vocabulary, file sizes and beginnings of files.

        Copies in other directories have the same one.
        """
        sizes = self.manifest["record_files"]
        described = {**sizes, "tokens": self.vocabulary.fingerprint}
        content = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for path in [*self._files][:: math.ceil(len(sizes) / _NUM_MIXED_FILES)]:
            with storage.open_file(path, "rb") as file:
                content.update(file.read(4096))
        rows, length = self.manifest["train_rows"], self.manifest["max_sequence_length"]
        return f"{rows:,} rows of {length} tokens, {content.hexdigest()[:12]}"

    def _paths(self, split: str) -> list[str]:
        return [x for x in self._files if os.path.basename(x).startswith(f"{split}-")]

    def _parse(self, serialized: tf.Tensor, batch_size: int) -> dict[str, tf.Tensor]:
        """Parses serialized rows [B] into the inputs of the encoder and their labels.

        Those are `is_random_next` [B, Q], with -1 in rows of fewer than Q pairs.
        """
        features = {name: tf.io.RaggedFeature(tf.int64) for name in _FEATURES}
        row = {
            name: tf.cast(values, tf.int32)
            for name, values in tf.io.parse_example(serialized, features).items()
        }
        shape = (batch_size, self.manifest["pairs_per_row"])
        lengths = row["pair_length"].to_tensor(shape=shape)
        ends = tf.cumsum(lengths, axis=1)  # [B, Q]
        starts = ends - lengths
        first_ends = starts + row["first_segment_length"].to_tensor(shape=shape)
        length = self.manifest["max_sequence_length"]
        position = tf.tile(tf.range(length)[tf.newaxis], [batch_size, 1])  # [B, S]
        is_token = position < ends[:, -1:]
        pair = tf.where(is_token, tf.searchsorted(ends, position, side="right"), 0)
        in_second = is_token & (position >= tf.gather(first_ends, pair, batch_dims=1))
        return {
            "token_ids": row["token_ids"].to_tensor(shape=position.shape),
            "segment_ids": tf.cast(in_second, tf.int32),
            "padding_mask": tf.cast(is_token, tf.int32),
            "first_positions": tf.where(lengths > 0, starts, 0),
            "is_random_next": row["is_random_next"].to_tensor(-1, shape=shape),
        }


# --- Datasets --------------------------------------------------------------------


def pretrain_dataset(
    records: str | os.PathLike, *, batch_size: int, **options: Any
) -> tf.data.Dataset:
    """Returns `Records(records).dataset(batch_size=batch_size, **options)`."""
    return Records(records).dataset(batch_size=batch_size, **options)


def _validation_batches(
    dataset: tf.data.Dataset, rows: int, batch_size: int, to_batch: Callable
) -> tf.data.Dataset:
    """Returns batches of all rows, with masks that do not depend on the batch size.

    The weights of an output sum to one in the mean over the batches, so metrics do not
    depend on the batch size either.
    """
    size, num_batches = _MASKED_TOGETHER, -(-rows // batch_size)
    total = num_batches * batch_size
    empty = tf.data.Dataset.from_tensors(b"").repeat(total - rows + size)
    masked = dataset.concatenate(empty).batch(size, drop_remainder=True)
    masked = masked.enumerate().map(to_batch, tf.data.AUTOTUNE)

    def count(totals, batch):
        weights = batch[2].items()
        counts = {k: tf.math.count_nonzero(w, dtype=tf.float32) for k, w in weights}
        return tf.nest.map_structure(tf.add, totals, counts)

    totals = masked.reduce({"mlm": 0.0, "nsp": 0.0}, count)

    def rescale(x, y, weights):
        scales = {k: tf.math.divide_no_nan(num_batches, n) for k, n in totals.items()}
        return x, y, {name: tf.sign(w) * scales[name] for name, w in weights.items()}

    # Keras needs the number of batches of an evaluation.
    known = tf.data.experimental.assert_cardinality(total)
    dataset = masked.unbatch().take(total).apply(known)
    return map_ahead(dataset.batch(batch_size, drop_remainder=True), rescale)


def map_ahead(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Maps the elements in order, in parallel, before they are needed.

    Without autotuning: the thread that tunes may miss that the iterator is deleted, and
    the deletion waits for it for up to a minute (TensorFlow 2.21). The reason is that
    `CancellationManager::StartCancelWithStatus` wakes `Model::OptimizeLoop` before it
    sets `is_cancelled_`.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    # Every worker reads the same global batch and keeps its part.
    sharding = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = sharding
    mapped = dataset.map(function, tf.data.AUTOTUNE, deterministic=True)
    return mapped.prefetch(2).with_options(options)


def baseline_accuracies(
    dataset: tf.data.Dataset, token_ids: np.ndarray
) -> dict[str, float]:
    """Returns the accuracies of two predictions that need only counts of tokens.

    Args:
        dataset: Masked batches.
        token_ids: Training rows [R, S], in which pairs of neighbors are counted.

    Returns:
        `unigram_accuracy`, of always predicting the most frequent masked token, and
        `bigram_accuracy`, of predicting the one that most often follows the token
        before the mask.
    """
    previous, labels = [], []
    for x, y, weights in dataset.as_numpy_iterator():
        selected = weights["mlm"] > 0
        before = np.maximum(x["mask_positions"] - 1, 0)
        before = np.take_along_axis(x["token_ids"], before, axis=1)
        previous.append(before[selected])
        labels.append(y["mlm"][selected])
    previous, labels = np.concatenate(previous), np.concatenate(labels)
    size = 1 + max(previous.max(), labels.max(), token_ids.max())
    label_counts = np.bincount(labels, minlength=size)
    most_frequent = label_counts.argmax()
    pairs = token_ids[:, :-1].astype(np.int64) * size + token_ids[:, 1:]
    # Special tokens are never predicted.
    pairs = pairs[label_counts[token_ids[:, 1:]] > 0]
    pairs, counts = np.unique(pairs, return_counts=True)
    pairs = pairs[np.argsort(counts, kind="stable")]
    follower = np.full(size, most_frequent)
    follower[pairs // size] = pairs % size  # The last assignment, the most frequent.
    return {
        "unigram_accuracy": float(np.mean(labels == most_frequent)),
        "bigram_accuracy": float(np.mean(labels == follower[previous])),
    }


# --- Files -----------------------------------------------------------------------


@contextlib.contextmanager
def record_writer(
    path: str, vocabulary: Vocabulary
) -> Iterator[Callable[[Iterable[Sequence[Pair]]], None]]:
    """Opens a file of records, which appears when it is complete.

    Yields:
        A function that writes rows of pairs.
    """
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    # Reusing one message is three times faster than creating one for each record.
    example = tf.train.Example()
    token_ids, pair_length, first_segment_length, is_random_next = (
        example.features.feature[name].int64_list.value for name in _FEATURES
    )

    def write(rows: Iterable[Sequence[Pair]]) -> None:
        for row in rows:
            tokens = []
            for pair in row:
                tokens += [cls, *pair.first.tolist(), sep]
                tokens += [*pair.second.tolist(), sep] if len(pair.second) else []
            token_ids[:] = tokens
            pair_length[:] = [pair.length for pair in row]
            first_segment_length[:] = [len(pair.first) + 2 for pair in row]
            is_random_next[:] = [int(pair.is_random_next) for pair in row]
            writer.write(example.SerializeToString(deterministic=True))

    with (
        storage.atomic_path(path) as temporary,
        storage.tensorflow_files(),
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        yield write
