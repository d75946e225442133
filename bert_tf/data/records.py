# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A token store in, a file of records out: a job that knows nothing of other files.

What a record is: see `bert_tf.corpus`. The same job gives the same bytes, wherever it
is done.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterable, Iterator

import numpy as np

from bert_tf import storage
from bert_tf.data import packing
from bert_tf.data.pairs import Pair, draw_pairs
from bert_tf.data.token_store import TokenStore

_SHUFFLE_PAIRS = 16_384  # Records that wait in memory while a shard is written.
_PAIRS_PER_ROW = 8  # At most, with `pack`: shapes are static.


class Split:
    """The documents for training, or those held out; draws pairs from them.

    Args:
        store: All documents.
        name: "train" or "validation".
        held_out: Number of documents held out.
        seed: Seed of the order of the documents, from which the first are held out.
    """

    def __init__(self, store: TokenStore, name: str, held_out: int, seed: int):
        order = np.random.default_rng(seed).permutation(store.num_documents)
        self.documents = order[:held_out] if name == "validation" else order[held_out:]
        self._store = store
        sizes = np.diff(store.first_sentences)[self.documents]
        self._sentence_ends = np.cumsum(sizes)

    def pairs(self, position: int, shard: Shard) -> Iterator[Pair]:
        """Yields the pairs of the document at a position in `documents`."""
        document = self.documents[position]
        first, last = self._store.first_sentences[document : document + 2].tolist()
        starts = self._store.sentence_starts(first, last)
        return draw_pairs(
            self._store.tokens(int(starts[0]), int(starts[-1])),
            (starts - starts[0]).tolist(),
            functools.partial(self._random_segment, position),
            f"{shard.seed} {document}",
            max_sequence_length=shard.max_sequence_length,
            short_sequence_probability=shard.short_sequence_probability,
        )

    def _random_segment(self, position: int, where: float, length: int) -> np.ndarray:
        """Returns sentences of another document, from a random one on.

        All sentences of the split but those of the document at `position` have the
        same chance: "a random sentence from the corpus" (1810.04805, section 3.1).

        Args:
            position: The document to avoid.
            where: Chooses the sentence; in [0, 1).
            length: Number of tokens to reach, where the document has so many.
        """
        ends = self._sentence_ends
        own_end = int(ends[position])
        own_start = int(ends[position - 1]) if position else 0
        sentence = int(where * (int(ends[-1]) - (own_end - own_start)))
        if sentence >= own_start:
            sentence += own_end - own_start
        other = int(ends.searchsorted(sentence, side="right"))
        last = int(self._store.first_sentences[self.documents[other] + 1])
        start = last - (int(ends[other]) - sentence)
        # A sentence has a token at least, so `length` of them are enough.
        starts = self._store.sentence_starts(start, min(last, start + length))
        end = min(int(starts.searchsorted(starts[0] + length)), len(starts) - 1)
        return self._store.tokens(int(starts[0]), int(starts[end]))


@dataclasses.dataclass(frozen=True)
class Shard:
    """A job: every `num_shards`th document of a split to one file of records."""

    path: str
    split: str
    index: int
    num_shards: int
    held_out: int
    store: str
    cls_id: int
    sep_id: int
    seed: int
    max_sequence_length: int
    short_sequence_probability: float
    pack: bool


def write_shard(shard: Shard) -> dict[str, int]:
    """Writes one file of records, in random order; returns what it counted."""
    import tensorflow as tf

    counts = dict.fromkeys(("documents", "pairs", "random_next", "tokens", "rows"), 0)
    counts["pairs_per_row"] = 0

    def pairs(split: Split) -> Iterator[tuple[int, Pair]]:
        """Yields each pair behind its length."""
        for i in range(shard.index, len(split.documents), shard.num_shards):
            counts["documents"] += 1
            for pair in split.pairs(i, shard):
                counts["pairs"] += 1
                counts["random_next"] += pair.is_random_next
                yield pair.length, pair

    # One message for all records: three times faster than a new one for each.
    example = tf.train.Example()
    features = example.features.feature
    token_ids = features["token_ids"].int64_list.value
    pair_length = features["pair_length"].int64_list.value
    first_segment_length = features["first_segment_length"].int64_list.value
    is_random_next = features["is_random_next"].int64_list.value

    def records(split: Split) -> Iterator[bytes]:
        limit = shard.max_sequence_length
        rows = packing.pack(pairs(split), limit, _PAIRS_PER_ROW if shard.pack else 1)
        for row in rows:
            tokens = []
            for pair in row:
                tokens += [shard.cls_id, *pair.first.tolist(), shard.sep_id]
                tokens += [*pair.second.tolist(), shard.sep_id]
            token_ids[:] = tokens
            pair_length[:] = [pair.length for pair in row]
            first_segment_length[:] = [len(pair.first) + 2 for pair in row]
            is_random_next[:] = [int(pair.is_random_next) for pair in row]
            counts["rows"] += 1
            counts["tokens"] += len(tokens)
            counts["pairs_per_row"] = max(counts["pairs_per_row"], len(row))
            yield example.SerializeToString(deterministic=True)

    rng = random.Random(f"{shard.seed} {shard.split} {shard.index}")
    with (
        TokenStore(shard.store) as store,
        storage.atomic_path(shard.path) as unfinished,
    ):
        split = Split(store, shard.split, shard.held_out, shard.seed)
        try:
            with tf.io.TFRecordWriter(unfinished) as writer:
                for record in _shuffled(records(split), rng):
                    writer.write(record)
        except tf.errors.OpError as error:
            raise OSError(f"{shard.path}: {error.message}") from error
    return counts


def _shuffled(records: Iterable[bytes], rng: random.Random) -> Iterator[bytes]:
    """Yields all records, each a random one of the `_SHUFFLE_PAIRS` in memory."""
    waiting: list[bytes] = []
    for record in records:
        if len(waiting) < _SHUFFLE_PAIRS:
            waiting.append(record)
        else:
            i = int(rng.random() * _SHUFFLE_PAIRS)
            yield waiting[i]
            waiting[i] = record
    rng.shuffle(waiting)
    yield from waiting
