# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Records -> masked batches: the input of pre-training as a `tf.data.Dataset`.

In: the folder that `python -m bert_tf.corpus` wrote. Out, for `model.fit`, tuples
`(x, y, sample_weight)` of

    x   token_ids, segment_ids, padding_mask [B, S], mask_positions [B, P]   int32
    y   mlm [B, P], nsp [B]                                                  int32
    sample_weight   mlm [B, P], nsp [B]; each sums to one                    float32

Records with up to Q > 1 pairs in a row give packed rows, see `BertBackbone`:
`padding_mask` numbers the pairs of the row from 1, `first_positions` [B, Q] in x says
where each begins, and `nsp` is [B, Q].

Every batch draws its masks anew from (seed, number of the batch): no epoch repeats
another's, and a run that continues at step n sees what it would have seen. All
shapes are static and nothing here needs tensorflow-text.
"""

from __future__ import annotations

import collections
import math
import os
from typing import Any

import tensorflow as tf

from bert_tf import storage
from bert_tf.text.vocabulary import Vocabulary

# Purposes of the random draws of a batch; each has a stream of its own.
_SELECT, _REPLACE, _RANDOM_TOKEN = range(3)


def pretrain_dataset(
    records: str | os.PathLike,
    *,
    batch_size: int,
    split: str = "train",
    mask_selection_rate: float = 0.15,
    mask_selection_length: int | None = None,
    mask_token_rate: float = 0.8,
    random_token_rate: float = 0.1,
    whole_word_masking: bool = False,
    left_to_right: bool = False,
    shuffle_buffer: int = 100_000,
    first_step: int = 0,
    seed: int = 0,
) -> tf.data.Dataset:
    """Reads prepared records as batches for `BertPretrainer.fit`.

    Args:
        records: Folder written by `bert_tf.corpus`.
        batch_size: Rows in a (global) batch, B.
        split: `"train"`: shuffled, repeated for ever. `"validation"`: in order, once,
            with the same masks each time; a last partial batch is dropped.
        mask_selection_rate: Share of the tokens to predict (paper, section 3.1).
        mask_selection_length: Most predictions per row, P; the share of the maximum
            length, rounded up, when None.
        mask_token_rate: Share of the selected tokens that become [MASK].
        random_token_rate: Share that becomes a random token; the rest stays.
        whole_word_masking: Select all pieces of a word together.
        left_to_right: Show all tokens as they are, and ask for the selected ones at the
            position before them, for a `BertConfig` that is `left_to_right`.
        shuffle_buffer: Rows held for shuffling.
        first_step: Batches to leave out, those an interrupted run has seen.
        seed: Of shuffling and masking.

    Raises:
        ValueError: No complete set of records is in the folder, its vocabulary is not
            the one it was made with, or a rate is out of range.
    """
    manifest, vocabulary = read_manifest(records)
    length = manifest["max_sequence_length"]
    if not 0 < mask_selection_rate <= 1:
        raise ValueError(
            "`mask_selection_rate` must be above 0 and at most 1. Received: "
            f"mask_selection_rate={mask_selection_rate}"
        )
    if min(mask_token_rate, random_token_rate) < 0 or (
        mask_token_rate + random_token_rate > 1
    ):
        raise ValueError(
            "`mask_token_rate` and `random_token_rate` must not be negative nor sum to "
            f"more than 1. Received: mask_token_rate={mask_token_rate}, "
            f"random_token_rate={random_token_rate}"
        )
    if mask_selection_length is None:
        mask_selection_length = math.ceil(length * mask_selection_rate)
    masker = Masker(
        vocabulary,
        selection_rate=mask_selection_rate,
        selection_length=mask_selection_length,
        mask_token_rate=mask_token_rate,
        random_token_rate=random_token_rate,
        whole_words=whole_word_masking,
        left_to_right=left_to_right,
    )

    files = storage.glob(os.path.join(records, f"{split}-*.tfrecord"))
    if not files:
        raise ValueError(f"{records} has no {split}-*.tfrecord.")
    dataset = tf.data.TFRecordDataset(files)
    # Keras wants to know when an evaluation is over.
    dataset = dataset.apply(
        tf.data.experimental.assert_cardinality(manifest[f"{split}_rows"])
    )
    if split == "train":
        dataset = dataset.shuffle(shuffle_buffer, seed=seed).repeat()
    dataset = dataset.batch(batch_size, drop_remainder=True).skip(first_step)

    def to_batch(step, serialized):
        shape = (batch_size, length, manifest["pairs_per_row"])
        return masker(_parse(serialized, *shape), (seed, step))

    # Several workers draw the same batch, and each takes its part of it.
    options = tf.data.Options()
    sharding = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = sharding
    return (
        dataset.enumerate(start=first_step)
        .map(to_batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def read_manifest(records: str | os.PathLike) -> tuple[dict[str, Any], Vocabulary]:
    """Returns the manifest of a record folder and the vocabulary beside it.

    Raises:
        ValueError: The folder has no manifest (which is written last, so that the
            records are incomplete), or the vocabulary is not that of the records.
    """
    path = os.path.join(records, "manifest.json")
    if not storage.exists(path):
        raise ValueError(
            f"{records} has no manifest.json, so no complete set of records. Make one "
            "with `python -m bert_tf.corpus --output=...`."
        )
    manifest = storage.read_json(path)
    if "pairs_per_row" not in manifest:
        raise ValueError(f"{records} is of an older version: make the records again.")
    vocabulary = Vocabulary.from_file(os.path.join(records, "vocab.txt"))
    if vocabulary.fingerprint != manifest["vocabulary_fingerprint"]:
        raise ValueError(
            f"{records}/vocab.txt is not the vocabulary that the records were made "
            f"with. Received: fingerprint {vocabulary.fingerprint[:12]} instead of "
            f"{manifest['vocabulary_fingerprint'][:12]}; make the records again."
        )
    return manifest, vocabulary


def unigram_accuracy(dataset: tf.data.Dataset) -> float:
    """Accuracy of always predicting the most frequent of the masked tokens."""
    counts: collections.Counter[int] = collections.Counter()
    for _, labels, weights in dataset:
        counts.update(labels["mlm"].numpy()[weights["mlm"].numpy() > 0].tolist())
    return counts.most_common(1)[0][1] / counts.total()


def _parse(
    serialized: tf.Tensor, batch_size: int, length: int, pairs: int
) -> dict[str, tf.Tensor]:
    """Serialized rows [B] -> the inputs of the encoder, and is_random_next.

    The latter is [B], or [B, Q] with -1 where a row has fewer than Q pairs.
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
    number = tf.searchsorted(ends, position, side="right")  # Of the pair, from 0.
    is_real = position < ends[:, -1:]
    number = tf.where(is_real, number, 0)
    in_second = is_real & (position >= tf.gather(first_ends, number, batch_dims=1))
    inputs = {
        "token_ids": row["token_ids"].to_tensor(shape=(batch_size, length)),
        "segment_ids": tf.cast(in_second, tf.int32),
        "padding_mask": tf.where(is_real, number + 1, 0),
    }
    random_next = row["is_random_next"].to_tensor(-1, shape=starts.shape)
    if pairs == 1:
        return inputs | {"is_random_next": random_next[:, 0]}
    first_positions = tf.where(lengths > 0, starts, 0)
    return inputs | {"first_positions": first_positions, "is_random_next": random_next}


class Masker:
    """Selects and replaces tokens for the masked LM (paper, section 3.1, task 1).

    As in google-research/bert a row of n tokens gets round(n * rate) predictions, at
    least one and at most `selection_length`. A special token is neither selected nor
    drawn as a random one. What is selected for a left-to-right LM is not replaced, and
    its position is that of the token before it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        selection_rate: float,
        selection_length: int,
        mask_token_rate: float,
        random_token_rate: float,
        whole_words: bool,
        left_to_right: bool = False,
    ):
        special = set(vocabulary.special_ids)
        self._mask_id = vocabulary.mask_id
        self._selectable = tf.constant(
            [i not in special for i in range(vocabulary.size)]
        )
        self._random_ids = tf.constant(
            [i for i in range(vocabulary.size) if i not in special], tf.int32
        )
        self._continues_word = tf.constant(vocabulary.is_continuation)
        self._rate = selection_rate
        self._length = selection_length
        self._mask_token_rate = mask_token_rate
        self._random_token_rate = random_token_rate
        self._whole_words = whole_words
        self._left_to_right = left_to_right

    def __call__(self, batch: dict[str, tf.Tensor], seed: tuple[int, tf.Tensor]):
        """One batch of rows -> `(x, y, sample_weight)`; see the top of the file."""
        token_ids = batch["token_ids"]
        positions, selected = self._select(batch, _stream(seed, _SELECT))
        labels = tf.gather(token_ids, positions, batch_dims=1)  # [B, P]
        if self._left_to_right:
            # [CLS], which begins each sequence, is never selected.
            x = batch | {"mask_positions": tf.maximum(positions - 1, 0)}
        else:
            shown = tf.where(selected, self._replace(labels, seed), labels)
            rows = tf.broadcast_to(
                tf.range(tf.shape(token_ids)[0])[:, tf.newaxis], tf.shape(positions)
            )
            token_ids = tf.tensor_scatter_nd_update(
                token_ids, tf.stack([rows, positions], -1), shown
            )
            x = batch | {"token_ids": token_ids, "mask_positions": positions}
        is_random_next = x.pop("is_random_next")
        # The mean over the whole batch, wherever its rows are computed.
        mask_weights = tf.cast(selected, tf.float32)
        pair_weights = tf.cast(is_random_next >= 0, tf.float32)
        weights = {
            "mlm": tf.math.divide_no_nan(mask_weights, tf.reduce_sum(mask_weights)),
            "nsp": pair_weights / tf.reduce_sum(pair_weights),
        }
        return x, {"mlm": labels, "nsp": tf.maximum(is_random_next, 0)}, weights

    def _select(self, batch, seed):
        """Returns positions [B, P] int32 and whether each holds a prediction [B, P].

        Words are put in random order, and their pieces are taken until the number of
        predictions is reached; a word that would exceed it ends the selection. Without
        whole words every piece is a word.
        """
        token_ids, padding_mask = batch["token_ids"], batch["padding_mask"]
        batch_size, length = token_ids.shape
        selectable = tf.gather(self._selectable, token_ids) & (padding_mask > 0)
        draws = tf.random.stateless_uniform((batch_size, length), seed)
        if self._whole_words:
            starts = ~tf.gather(self._continues_word, token_ids)
            word = tf.cumsum(tf.cast(starts, tf.int32), axis=1)
            draws = tf.gather(draws, word % length, batch_dims=1)
        else:
            word = tf.broadcast_to(tf.range(length)[tf.newaxis], token_ids.shape)
        # Ties, the pieces of a word, keep their order: top_k prefers the lower index.
        draws = tf.where(selectable, draws, 2.0)
        ranked = min(self._length + 1, length)
        order = tf.math.top_k(-draws, ranked).indices  # [B, ranked]

        # In double precision, as Python would: 30 * 0.15 must round as 4.5 does.
        tokens = tf.reduce_sum(tf.cast(padding_mask > 0, tf.float64), 1)
        wanted = tokens * self._rate
        wanted = tf.clip_by_value(tf.cast(tf.round(wanted), tf.int32), 1, self._length)
        available = tf.reduce_sum(tf.cast(selectable, tf.int32), 1)
        wanted = tf.minimum(wanted, available)[:, tf.newaxis]
        # Taking n pieces is allowed where piece n + 1 begins another word.
        ordered_word = tf.gather(word, order, batch_dims=1)
        last_of_word = ordered_word[:, :-1] != ordered_word[:, 1:]
        last_of_word = tf.pad(last_of_word, [[0, 0], [0, 1]], constant_values=True)
        taken = tf.range(1, ranked + 1)[tf.newaxis]
        allowed = last_of_word & (taken <= wanted)
        count = tf.reduce_max(tf.where(allowed, taken, 0), 1, keepdims=True)

        order = tf.pad(order, [[0, 0], [0, max(0, self._length - ranked)]])
        selected = tf.range(self._length)[tf.newaxis] < count
        # In reading order; empty slots stand last and point at [CLS].
        positions = tf.sort(tf.where(selected, order[:, : self._length], length), 1)
        return tf.where(selected, positions, 0), selected

    def _replace(self, labels, seed):
        """What the encoder sees in place of `labels` [B, P]: 80/10/10."""
        shape = tf.shape(labels)
        draw = tf.random.stateless_uniform(shape, _stream(seed, _REPLACE))
        choice = tf.random.stateless_uniform(
            shape,
            _stream(seed, _RANDOM_TOKEN),
            maxval=tf.size(self._random_ids),
            dtype=tf.int32,
        )
        random_ids = tf.gather(self._random_ids, choice)
        replaced = tf.where(
            draw < self._mask_token_rate + self._random_token_rate, random_ids, labels
        )
        return tf.where(draw < self._mask_token_rate, self._mask_id, replaced)


def _stream(seed: tuple[int, tf.Tensor], purpose: int) -> tf.Tensor:
    """A stateless seed [2] for one purpose within one batch."""
    base, step = seed
    pair = tf.stack([tf.constant(base, tf.int64), tf.cast(step, tf.int64)])
    return tf.random.fold_in(pair, purpose) if purpose else pair
