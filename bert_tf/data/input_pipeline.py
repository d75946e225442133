# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads records as masked batches: the `tf.data.Dataset` of pre-training.

The dataset yields tuples `(x, y, sample_weight)` for `model.fit`:

    x   token_ids, segment_ids, padding_mask [B, S], mask_positions [B, P],
        first_positions [B, Q]                                               int32
    y   mlm [B, P], nsp [B, Q]                                               int32
    sample_weight   mlm [B, P], nsp [B, Q]; each sums to one                 float32

In validation, weights sum to one in the mean over the batches.

B rows in a batch, S tokens in a row, P predictions, Q pairs; see `BertPretrainer`.
`padding_mask` numbers the pairs of a row from 1, and `first_positions` are the columns
where they begin.

Masks depend only on the seed and the number of the batch. So every epoch has new masks,
and a run that resumes at step n gets the same batches as an uninterrupted one. All
shapes are static. This module does not require tensorflow-text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import storage
from bert_tf.text import Vocabulary

_NUM_MIXED_FILES = 16  # Files of which rows are read in turn.
_MASKED_TOGETHER = 32  # Rows of validation, whatever the batch size.

# Of the selected tokens, 80% become [MASK], 10% a random token, the others are kept.
_MASK_SHARE, _RANDOM_SHARE = 0.8, 0.1

# Each kind of random draw in a batch has its own random stream.
_SELECT, _REPLACE, _RANDOM_TOKEN = range(3)

# --- Dataset ---------------------------------------------------------------------


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
            in order, with the same masks each time. Empty rows fill the last batch.
            Metrics are the same for all batch sizes.
        shuffle_buffer: Number of rows in the shuffle buffer.
        first_step: Number of batches to skip when a run resumes.
        seed: Seed of shuffling and masking.
        **masking: Arguments of `Masker`, for example `whole_word_masking=True`.

    Raises:
        ValueError: The records are incomplete, `vocab.txt` is not their vocabulary,
            the rate is out of range, or there is no batch.
    """
    manifest, vocabulary = read_manifest(records)
    masker = Masker(vocabulary=vocabulary, **masking)
    rows = manifest.get(f"{split}_rows", 0)
    if not rows:
        raise ValueError(f"{records} has no {split} rows.")
    paths = storage.glob(f"{split}-*.tfrecord", records)

    def to_batch(step, serialized):
        length, pairs = manifest["max_sequence_length"], manifest["pairs_per_row"]
        batch = _parse(serialized, serialized.shape[0], length, pairs)
        return masker(batch, (seed, step))

    if split != "train":
        dataset = tf.data.TFRecordDataset(paths)
        return _validation_batches(dataset, rows, batch_size, to_batch)
    # Each file is a part of the text: mix several of them.
    files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths), seed=seed)
    dataset = files.interleave(tf.data.TFRecordDataset, _NUM_MIXED_FILES, 1)
    dataset = dataset.shuffle(shuffle_buffer, seed=seed)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(rows)).repeat()
    dataset = dataset.batch(batch_size, drop_remainder=True).skip(first_step)
    return map_ahead(dataset.enumerate(start=first_step), to_batch)


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


def read_token_ids(records: str | os.PathLike, count: int = 2**24) -> np.ndarray:
    """Returns training rows of records, from evenly spaced files.

    Args:
        records: Directory written by `python -m bert_tf.corpus`.
        count: How many tokens to read at most, padding included.

    Returns:
        Token ids [R, S] int32, 0 at padding.
    """
    manifest, _ = read_manifest(records)
    length, pairs = manifest["max_sequence_length"], manifest["pairs_per_row"]
    limit = max(1, count // length)  # In rows.
    paths = storage.glob("train-*.tfrecord", records)
    rows = tf.data.TFRecordDataset(paths[:: -(-manifest["train_rows"] // limit)])
    batches = rows.take(limit).batch(4096)
    parsed = (_parse(batch, len(batch), length, pairs) for batch in batches)
    return np.concatenate([batch["token_ids"].numpy() for batch in parsed])


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


def read_manifest(records: str | os.PathLike) -> tuple[dict[str, Any], Vocabulary]:
    """Returns the manifest and the vocabulary of a directory of records.

    Raises:
        ValueError: The directory has no manifest, so the records are incomplete; or
            `vocab.txt` is not the vocabulary of the records.
    """
    path = os.path.join(records, "manifest.json")
    if not storage.exists(path):
        _refuse_foreign(os.fspath(records))
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


def _refuse_foreign(records: str) -> None:
    """Refuses records of google-research/bert, in a file or in those of a directory.

    Raises:
        ValueError: There are some.
    """
    is_directory = storage.is_directory(records)
    for path in storage.glob(f"{records}/*" if is_directory else records):
        with contextlib.suppress(tf.errors.OpError):
            for record in tf.data.TFRecordDataset(path).take(1):
                if b"masked_lm_positions" in record.numpy():
                    raise ValueError(
                        f"{path} has records of google-research/bert's "
                        "create_pretraining_data.py, which are already masked. This "
                        "command masks each batch anew. Write records from the same "
                        "text: python -m bert_tf.corpus --input=TEXT "
                        "--vocabulary=vocab.txt --output=..."
                    )


def records_content(records: str | os.PathLike) -> str:
    """Returns a description of records that does not depend on their folder.

    Its fingerprint is that of the names and sizes of the files, and of the beginnings
    of some of them.
    """
    manifest, vocabulary = read_manifest(records)
    described = {**manifest.get("record_files", {}), "tokens": vocabulary.fingerprint}
    content = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    paths = storage.glob("*.tfrecord", records)
    for path in paths[:: math.ceil(len(paths) / _NUM_MIXED_FILES)]:
        with storage.open_file(path, "rb") as file:
            content.update(file.read(4096))
    rows, length = manifest["train_rows"], manifest["max_sequence_length"]
    return f"{rows:,} rows of {length} tokens, {content.hexdigest()[:12]}"


def check_records(directories: Iterable[str | os.PathLike]) -> None:
    """Reads all record files and verifies their checksums.

    Raises:
        ValueError: A file is damaged; the message names it.
    """
    for records in directories:
        for path in storage.glob("*.tfrecord", records):
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


# --- Masking ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Masker:
    """Masks batches for the masked language model (paper, section 3.1, task 1).

    As in google-research/bert, a row of n tokens gets round(n * rate) predictions, at
    least one and at most P = rate * S, rounded up. Special tokens are not selected and
    not drawn as random tokens.

    Args:
        vocabulary: The vocabulary of the records.
        mask_selection_rate: Share of the tokens to predict.
        whole_word_masking: Select all tokens of a word together.

    Raises:
        ValueError: The rate is out of range.
    """

    vocabulary: Vocabulary
    mask_selection_rate: float = 0.15
    whole_word_masking: bool = False

    def __post_init__(self):
        if not 0 < self.mask_selection_rate <= 1:
            raise ValueError(
                "`mask_selection_rate` must be above 0 and at most 1. Got "
                f"mask_selection_rate={self.mask_selection_rate}."
            )

    def __call__(self, batch: dict[str, tf.Tensor], seed: tuple[int, tf.Tensor]):
        """Masks a batch of rows.

        Args:
            batch: Inputs of the encoder, [B, S] and [B, Q] int32, and `is_random_next`
                [B, Q] int32, -1 in unused slots.
            seed: (seed of the run, number of the batch).

        Returns:
            `(x, y, sample_weight)`, as in the dataset.
        """
        token_ids = batch["token_ids"]
        positions, selected = self._select(batch, _stream(seed, _SELECT))
        labels = tf.gather(token_ids, positions, batch_dims=1)  # [B, P]
        shown = tf.where(selected, self._replace(labels, seed), labels)
        rows = tf.broadcast_to(
            tf.range(tf.shape(token_ids)[0])[:, tf.newaxis], tf.shape(positions)
        )
        token_ids = tf.tensor_scatter_nd_update(
            token_ids, tf.stack([rows, positions], -1), shown
        )
        x = batch | {"token_ids": token_ids, "mask_positions": positions}
        is_random_next = x.pop("is_random_next")
        # Weights sum to one over the global batch, so that replicas add their losses.
        mask_weights = tf.cast(selected, tf.float32)
        pair_weights = tf.cast(is_random_next >= 0, tf.float32)
        weights = {
            "mlm": tf.math.divide_no_nan(mask_weights, tf.reduce_sum(mask_weights)),
            "nsp": tf.math.divide_no_nan(pair_weights, tf.reduce_sum(pair_weights)),
        }
        return x, {"mlm": labels, "nsp": tf.maximum(is_random_next, 0)}, weights

    @functools.cached_property
    def _is_regular(self) -> np.ndarray:
        """Whether each token is not special, bool [V]."""
        return ~np.isin(range(self.vocabulary.size), self.vocabulary.special_ids)

    def _select(self, batch, seed):
        """Selects tokens to predict: the first ones in random order.

        Returns:
            Sorted positions [B, P] int32, and whether each is a prediction [B, P] bool.
            The positions of unused slots are 0.
        """
        token_ids, padding_mask = batch["token_ids"], batch["padding_mask"]
        batch_size, length = token_ids.shape  # [B, S]
        rate = self.mask_selection_rate
        limit = math.ceil(length * rate)
        selectable = tf.gather(self._is_regular, token_ids) & (padding_mask > 0)
        # float64, as in Python, so that 30 * 0.15 rounds like 4.5.
        tokens = tf.reduce_sum(tf.cast(padding_mask > 0, tf.float64), 1)
        wanted = tf.clip_by_value(tf.cast(tf.round(tokens * rate), tf.int32), 1, limit)
        available = tf.reduce_sum(tf.cast(selectable, tf.int32), 1)
        wanted = tf.minimum(wanted, available)[:, tf.newaxis]

        draws = tf.random.stateless_uniform((batch_size, length), seed)
        if self.whole_word_masking:
            order, selected = self._select_words(token_ids, selectable, draws, wanted)
        else:
            draws = tf.where(selectable, draws, 2.0)
            order = tf.math.top_k(-draws, limit).indices  # [B, P]
            selected = tf.range(limit)[tf.newaxis] < wanted
        # Ascending; unused slots are last and refer to [CLS].
        positions = tf.sort(tf.where(selected, order, length), 1)[:, :limit]
        return tf.where(positions < length, positions, 0), positions < length

    def _select_words(self, token_ids, selectable, draws, wanted):
        """Selects all tokens of words, in random order, that fit into `wanted` [B, 1].

        A word that does not fit is skipped, as in google-research/bert.

        Returns:
            All positions in random order, and whether each is selected, [B, S].
        """
        batch_size, length = token_ids.shape
        starts = ~tf.gather(self.vocabulary.is_continuation, token_ids)
        word = tf.cumsum(tf.cast(starts, tf.int32), axis=1)  # From 0 to S.
        # Number of tokens in each word, and of those that follow a token in its word.
        is_token = tf.cast(selectable, tf.int32)
        segments = word + tf.range(batch_size)[:, tf.newaxis] * (length + 1)
        sizes = tf.math.unsorted_segment_sum(
            tf.reshape(is_token, [-1]),
            tf.reshape(segments, [-1]),
            batch_size * (length + 1),
        )
        sizes = tf.reshape(sizes, [batch_size, length + 1])
        following = tf.gather(tf.cumsum(sizes, axis=1), word, batch_dims=1)
        following -= tf.cumsum(is_token, axis=1)
        # The tokens of a word have equal draws and stay in order: top_k is stable.
        draws = tf.gather(draws, word % length, batch_dims=1)
        order = tf.math.top_k(-tf.where(selectable, draws, 2.0), length).indices
        sizes, following, candidates = (
            tf.gather(values, order, batch_dims=1)
            for values in (tf.gather(sizes, word, batch_dims=1), following, selectable)
        )

        def skip(kept, _):
            """Drops the words that are longer than the room after the first ones."""
            ends = tf.cumsum(tf.cast(kept, tf.int32), axis=1) + following
            fits = kept & (ends <= wanted)
            taken = tf.reduce_max(tf.where(fits, ends, 0), 1, keepdims=True)
            fitting = fits | (kept & (sizes <= wanted - taken))
            return fitting, tf.reduce_any(fitting != kept)

        loop = (lambda _, is_changed: is_changed), skip, (candidates, True)
        return order, tf.while_loop(*loop)[0]

    def _replace(self, labels, seed):
        """Returns the tokens that replace `labels`, [B, P]."""
        shape = tf.shape(labels)
        draw = tf.random.stateless_uniform(shape, _stream(seed, _REPLACE))
        regular_ids = tf.constant(np.flatnonzero(self._is_regular), tf.int32)
        choice = tf.random.stateless_uniform(
            shape, _stream(seed, _RANDOM_TOKEN), maxval=len(regular_ids), dtype=tf.int32
        )
        random_ids = tf.gather(regular_ids, choice)
        replaced = tf.where(draw < _MASK_SHARE + _RANDOM_SHARE, random_ids, labels)
        return tf.where(draw < _MASK_SHARE, self.vocabulary.mask_id, replaced)


def _stream(seed: tuple[int, tf.Tensor], stream: int) -> tf.Tensor:
    """Returns the stateless seed [2] of one random stream of a batch."""
    base, step = seed
    pair = tf.stack([tf.constant(base, tf.int64), tf.cast(step, tf.int64)])
    return tf.random.fold_in(pair, stream) if stream else pair
