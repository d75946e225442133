# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes records: rows of sentence pairs that `bert_tf.data.input_pipeline` reads.

A record is a `tf.train.Example` of one row, not masked and not padded. It holds
`token_ids` of all pairs, and with one value for each pair

* `pair_length`: number of tokens in [CLS] first segment [SEP] second segment [SEP]
* `first_segment_length`: number of tokens in [CLS] first segment [SEP]
* `is_random_next`: 1 if the second segment is from another document, 0 if it continues
  the first

A directory of records holds `train-*.tfrecord`, `validation-*.tfrecord`, `vocab.txt`,
and `manifest.json`, which is written last.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf import storage
from bert_tf.data.corpus_config import CorpusConfig
from bert_tf.data.pairs import Pair, draw_pairs, pack
from bert_tf.data.token_store import TokenStore
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

_SHUFFLE_RECORDS = 16_384  # Records in memory while a shard is written.
_MAX_PAIRS_PER_ROW = 8  # Shapes are static: more would enlarge the inputs of all rows.


class Split:
    """The documents of one split; draws their pairs.

    Args:
        store: All documents.
        name: "train" or "validation".
        held_out: Number of documents for validation.
        seed: Seed of the random permutation of all documents; the first `held_out` of
            it are for validation.
    """

    def __init__(self, store: TokenStore, name: str, held_out: int, seed: int):
        order = np.random.default_rng(seed).permutation(store.summary["documents"])
        self.documents = order[:held_out] if name == "validation" else order[held_out:]
        self._store = store
        sizes = np.diff(store.first_sentences)[self.documents]
        # Bounds of the documents in the sequence of all sentences of the split.
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])

    def pairs(self, position: int, shard: Shard) -> Iterator[Pair]:
        """Yields the pairs of the document at a position in `documents`."""
        document = self.documents[position]
        first, last = self._store.first_sentences[document : document + 2].tolist()
        starts = self._store.sentence_starts(first, last)
        return draw_pairs(
            self._store.tokens(int(starts[0]), int(starts[-1])),
            (starts - starts[0]).tolist(),
            functools.partial(self._random_segment, position),
            f"{shard.options.seed} {document}",
            max_sequence_length=shard.options.max_sequence_length,
            short_sequence_probability=shard.options.short_sequence_probability,
        )

    def _random_segment(self, position: int, where: float, length: int) -> np.ndarray:
        """Returns consecutive sentences of another document, beginning at a random one.

        All sentences of the split except those of the document at `position` are
        equally likely: "a random sentence from the corpus" (1810.04805, section 3.1).

        Args:
            position: Position of the document to exclude.
            where: Selects the first sentence, in [0, 1).
            length: Minimum number of tokens, unless the document ends before.
        """
        bounds = self._bounds
        own_start, own_end = bounds[position : position + 2].tolist()
        sentence = int(where * (int(bounds[-1]) - (own_end - own_start)))
        if sentence >= own_start:
            sentence += own_end - own_start
        other = int(bounds.searchsorted(sentence, side="right")) - 1
        document = self.documents[other]
        first, last = self._store.first_sentences[document : document + 2].tolist()
        start = first + sentence - int(bounds[other])
        # A sentence has at least one token, so `length` sentences are enough.
        starts = self._store.sentence_starts(start, min(last, start + length))
        end = min(int(starts.searchsorted(starts[0] + length)), len(starts) - 1)
        return self._store.tokens(int(starts[0]), int(starts[end]))


@dataclasses.dataclass(frozen=True)
class Shard:
    """A job of `write_shard`: every `num_shards`-th document of a split."""

    path: str
    split: str
    index: int
    num_shards: int
    held_out: int
    cls_id: int
    sep_id: int
    options: CorpusConfig


def write_shard(shard: Shard) -> dict[str, int]:
    """Writes one file of records in random order and returns its counts.

    The bytes of the file depend on `shard` and the store only.
    """
    counts: collections.Counter[str] = collections.Counter()
    # Reusing one message is three times faster than creating one for each record.
    example = tf.train.Example()
    features = example.features.feature
    token_ids = features["token_ids"].int64_list.value
    pair_length = features["pair_length"].int64_list.value
    first_segment_length = features["first_segment_length"].int64_list.value
    is_random_next = features["is_random_next"].int64_list.value

    def records(split: Split) -> Iterator[bytes]:
        indices = range(shard.index, len(split.documents), shard.num_shards)
        pairs = itertools.chain.from_iterable(split.pairs(i, shard) for i in indices)
        max_pairs = _MAX_PAIRS_PER_ROW if shard.options.pack else 1
        counts["documents"] = len(indices)
        for row in pack(pairs, shard.options.max_sequence_length, max_pairs):
            tokens = []
            for pair in row:
                tokens += [shard.cls_id, *pair.first.tolist(), shard.sep_id]
                tokens += [*pair.second.tolist(), shard.sep_id]
            token_ids[:] = tokens
            pair_length[:] = [pair.length for pair in row]
            first_segment_length[:] = [len(pair.first) + 2 for pair in row]
            is_random_next[:] = [int(pair.is_random_next) for pair in row]
            counts["rows"] += 1
            counts["pairs"] += len(row)
            counts["random_next"] += sum(is_random_next)
            counts["tokens"] += len(tokens)
            counts["pairs_per_row"] = max(counts["pairs_per_row"], len(row))
            yield example.SerializeToString(deterministic=True)

    rng = random.Random(f"{shard.options.seed} {shard.split} {shard.index}")
    with (
        TokenStore(shard.options.store) as store,
        storage.atomic_path(shard.path) as path,
    ):
        split = Split(store, shard.split, shard.held_out, shard.options.seed)
        try:
            with tf.io.TFRecordWriter(path) as writer:
                for record in _shuffle(records(split), rng):
                    writer.write(record)
        except tf.errors.OpError as error:
            raise OSError(f"{shard.path}: {error.message}") from error
    return counts


def _shuffle(records: Iterable[bytes], rng: random.Random) -> Iterator[bytes]:
    """Yields all records, each a random one of `_SHUFFLE_RECORDS` in memory."""
    buffer: list[bytes] = []
    for record in records:
        if len(buffer) < _SHUFFLE_RECORDS:
            buffer.append(record)
        else:
            i = int(rng.random() * _SHUFFLE_RECORDS)
            yield buffer[i]
            buffer[i] = record
    rng.shuffle(buffer)
    yield from buffer
