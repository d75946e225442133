# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes one part of a text as records: rows of sentence pairs.

A record is a `tf.train.Example` of one row, not masked and not padded. It holds
`token_ids` of all pairs, and with one value for each pair

* `pair_length`: number of tokens in [CLS] first segment [SEP] second segment [SEP]
* `first_segment_length`: number of tokens in [CLS] first segment [SEP]
* `is_random_next`: 1 if the second segment is from another document, 0 if it continues
  the first

Parts are independent of each other. A part is processed in blocks of documents, which
bounds the memory. Random segments come from the same block and split, as those of
google-research/bert come from the input files of one process.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf import storage, text
from bert_tf.data import lint
from bert_tf.data.corpus_config import CorpusConfig
from bert_tf.data.documents import read_documents
from bert_tf.data.lint import Document
from bert_tf.data.pairs import Pair, draw_pairs, pack
from bert_tf.lazy import lazy_import

tf = lazy_import("tensorflow")

_BLOCK_CHARACTERS = 1 << 24  # Text in memory. Most parts are one block.
_BATCH_CHARACTERS = 1 << 20  # Text per call of the tokenizer.
_MAX_PAIRS_PER_ROW = 8  # Shapes are static: more would enlarge the inputs of all rows.
_MIN_DOCUMENTS = 10  # If the first block has fewer, none of its documents is held out.


@dataclasses.dataclass(frozen=True)
class Part:
    """A job of `write_part`.

    Attributes:
        path: Path of the result, without ".json".
        index: Number of the part, from 0.
        num_parts: Number of parts of the text.
        ranges: Files with start and end in bytes, see `documents.byte_ranges`.
        options: Options of the command. Its output directory has `vocab.txt`.
    """

    path: str
    index: int
    num_parts: int
    ranges: Sequence[tuple[str, int, int]]
    options: CorpusConfig


def write_part(part: Part) -> dict[str, Any]:
    """Writes the records of a part in random order, one file for each split.

    The bytes of the files depend on `part` and the text only.

    Returns:
        "splits": counts of each split. "pairs_per_row": the maximum. "files": name and
        size in bytes of each file. "lint": a report of `bert_tf.data.lint`.
    """
    options = part.options
    tokenizer = _tokenizer(os.path.join(options.output, "vocab.txt"), options.lowercase)
    serialize = _serializer(tokenizer.vocabulary)
    counts, paths, reports = {}, {}, []
    with contextlib.ExitStack() as stack:
        writers, pairs_per_row = {}, 1
        for split in ("train", "validation")[: 1 + bool(options.held_out_share)]:
            name = f"{split}-{part.index:05d}-of-{part.num_parts:05d}.tfrecord"
            paths[split] = os.path.join(options.output, name)
            writers[split] = stack.enter_context(_open_records(paths[split]))
            counts[split] = collections.Counter()
        for number, block in enumerate(_blocks(part)):
            rng = random.Random(f"{options.seed} {part.index} {number}")
            is_first = part.index == number == 0
            for split, documents in _split(block, options, is_first, rng).items():
                ids, lengths = _tokenize(tokenizer, documents)
                report = lint.count(documents, ids, lengths, tokenizer.vocabulary)
                reports.append(report)
                pairs = _draw_pairs(documents, ids, lengths, rng, options)
                max_pairs = _MAX_PAIRS_PER_ROW if options.pack else 1
                rows = list(pack(pairs, options.max_sequence_length, max_pairs))
                rng.shuffle(rows)
                for row in rows:
                    writers[split].write(serialize(row))
                counts[split].update(_count(rows), documents=len(documents))
                pairs_per_row = max(pairs_per_row, *map(len, rows))
    sizes = {os.path.basename(path): storage.stat(path)[0] for path in paths.values()}
    return {
        "splits": counts,
        "pairs_per_row": pairs_per_row,
        "files": sizes,
        "lint": lint.merge(reports),
    }


@contextlib.contextmanager
def _open_records(path: str) -> Iterator[Any]:
    """Opens a `tf.io.TFRecordWriter` of a file that appears when it is complete."""
    with storage.atomic_path(path) as temporary:
        try:
            with tf.io.TFRecordWriter(temporary) as writer:
                yield writer
        except tf.errors.OpError as error:
            raise OSError(f"{path}: {error.message}") from error


@functools.lru_cache(maxsize=1)  # Each process builds its tokenizer once.
def _tokenizer(vocabulary: str, lowercase: bool) -> text.Tokenizer:
    return text.Tokenizer(vocabulary, lowercase)


def _blocks(part: Part) -> Iterator[list[Document]]:
    """Yields lists of documents; all but the last have at least two."""
    block: list[Document] = []
    size = 0
    for path, start, end in part.ranges:
        separator = part.options.document_separator
        for sentences in read_documents(path, separator, start, end):
            if size >= _BLOCK_CHARACTERS and len(block) > 1:
                yield block
                block, size = [], 0
            block.append((path, sentences))
            size += sum(map(len, sentences))
    if block:
        yield block


def _split(
    block: list[Document], options: CorpusConfig, is_first: bool, rng: random.Random
) -> dict[str, list[Document]]:
    """Returns the documents of each split that has any.

    A split needs two documents for its random segments. So a block whose share is below
    two documents holds out two with a probability, or none. The first block of a text
    holds out two, unless it is tiny.
    """
    share = options.held_out_share * len(block)
    few = 1 if share >= 2 else 2
    held_out = few * int(share / few + rng.random())
    if is_first and share and len(block) >= _MIN_DOCUMENTS:
        held_out = max(held_out, 2)
    chosen = {*rng.sample(range(len(block)), min(held_out, len(block)))}
    if len(block) - len(chosen) < 2:
        chosen.clear()
    splits = {"train": [d for i, d in enumerate(block) if i not in chosen]}
    if chosen:
        splits["validation"] = [block[i] for i in sorted(chosen)]
    return splits


def _tokenize(
    tokenizer: text.Tokenizer, documents: Iterable[Document]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids [tokens] and their number in each sentence [sentences]."""
    ids, lengths = [], []
    sentences = itertools.chain.from_iterable(sentences for _, sentences in documents)
    for chunk in _chunks(sentences):
        pieces = tokenizer.tokenize(chunk)
        ids.append(pieces.flat_values.numpy())
        lengths.append(pieces.row_lengths().numpy())
    return np.concatenate(ids), np.concatenate(lengths)


def _chunks(sentences: Iterable[str]) -> Iterator[list[str]]:
    """Divides sentences, of which a document may have any number, for the tokenizer."""
    chunk: list[str] = []
    size = 0
    for sentence in sentences:
        chunk.append(sentence)
        size += len(sentence)
        if size >= _BATCH_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _draw_pairs(
    documents: Sequence[Document],
    ids: np.ndarray,
    lengths: np.ndarray,
    rng: random.Random,
    options: CorpusConfig,
) -> Iterator[Pair]:
    """Yields the pairs of all documents; sentences without tokens are dropped."""
    has_tokens = lengths > 0
    starts = [0, *np.cumsum(lengths[has_tokens]).tolist()]  # Of sentences, in `ids`.
    ends = np.cumsum([len(sentences) for _, sentences in documents])
    bounds = np.unique([0, *np.cumsum(has_tokens)[ends - 1]]).tolist()  # Of documents.

    def random_segment(first: int, last: int, where: float, length: int) -> np.ndarray:
        """Returns sentences of a document other than that of sentences first..last.

        All sentences of other documents are equally likely to be the first: "a random
        sentence from the corpus" (arXiv 1810.04805, section 3.1). As in google's code,
        a document that is alone is its own other document.
        """
        num_others = len(starts) - 1 - (last - first)
        sentence = int(where * (num_others or last))
        if sentence >= first and num_others:
            sentence += last - first
        end = bounds[bisect.bisect_right(bounds, sentence)]
        end = bisect.bisect_left(starts, starts[sentence] + length, sentence, end)
        return ids[starts[sentence] : starts[end]]

    for first, last in itertools.pairwise(bounds):
        yield from draw_pairs(
            ids,
            starts[first : last + 1],
            functools.partial(random_segment, first, last),
            rng,
            max_sequence_length=options.max_sequence_length,
            short_sequence_probability=options.short_sequence_probability,
        )


def _serializer(vocabulary: text.Vocabulary) -> Callable[[Sequence[Pair]], bytes]:
    """Returns a function that serializes a row."""
    # Reusing one message is three times faster than creating one for each record.
    example = tf.train.Example()
    features = example.features.feature
    token_ids = features["token_ids"].int64_list.value
    pair_length = features["pair_length"].int64_list.value
    first_segment_length = features["first_segment_length"].int64_list.value
    is_random_next = features["is_random_next"].int64_list.value
    cls, sep = vocabulary.cls_id, vocabulary.sep_id

    def serialize(row: Sequence[Pair]) -> bytes:
        tokens = []
        for pair in row:
            tokens += [cls, *pair.first.tolist(), sep, *pair.second.tolist(), sep]
        token_ids[:] = tokens
        pair_length[:] = [pair.length for pair in row]
        first_segment_length[:] = [len(pair.first) + 2 for pair in row]
        is_random_next[:] = [int(pair.is_random_next) for pair in row]
        return example.SerializeToString(deterministic=True)

    return serialize


def _count(rows: Sequence[Sequence[Pair]]) -> dict[str, int]:
    pairs = list(itertools.chain.from_iterable(rows))
    return {
        "rows": len(rows),
        "pairs": len(pairs),
        "random_next": sum(pair.is_random_next for pair in pairs),
        "tokens": sum(pair.length for pair in pairs),
    }
