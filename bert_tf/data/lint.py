# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""A token store in, what is wrong with its text out: what would ruin a training.

Text that repeats itself, a vocabulary that does not fit, files read in a wrong
encoding, files that gave nothing, and documents too short for next sentence prediction
show in the loss after weeks, or never. `report` finds them for each source in minutes,
`warnings` says them in words, `table` shows the numbers. Sentences and documents are
the same where their tokens are.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import storage
from bert_tf.data import jobs
from bert_tf.data.token_store import COUNTS, TokenStore
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, Vocabulary

_SENTENCES_PER_BUCKET = 1_000_000
_SENTENCES_PER_STRETCH = 2_000_000
_SENTENCE = np.dtype([("hash", "<u8"), ("place", "<i8"), ("length", "<i4")])

_MOST_REPEATED = 10
_SOURCES_NAMED = 3  # In a warning.
_SOURCES_SHOWN = 10  # In the table.

# What is counted, in what, the share that is too much, and what is said then. English
# has 5 to 20 % of its tokens inside words with a vocabulary of its own, 35 to 42 % with
# a Chinese one.
_LIMITS = {
    ("unknown", "tokens"): (
        0.01,
        "of the tokens are [UNK]: the vocabulary does not fit",
    ),
    ("continuations", "tokens"): (
        1 / 3,
        "of the tokens continue a word: is the vocabulary for another language?",
    ),
    ("garbled", "sentences"): (
        0.01,
        "of the sentences have characters like Ã© or â€™: decoded wrongly once",
    ),
    ("repeated_tokens", "tokens"): (
        0.05,
        "of the tokens are in sentences that occurred before",
    ),
    ("duplicate_documents", "documents"): (
        0.01,
        "of the documents are copies of others",
    ),
    ("one_sentence_documents", "documents"): (
        1 / 3,
        "of the documents are one sentence; see --document_separator",
    ),
}
# A sentence in one of so many documents is boilerplate.
_BOILERPLATE_SHARE, _BOILERPLATE_COUNT = 0.01, 100

Counts = dict[str, int]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A job: sentences start..stop of a store, to be dealt into buckets."""

    path: str
    store: str
    start: int
    stop: int
    num_buckets: int


@dataclasses.dataclass(frozen=True)
class Bucket:
    """A job: a random part of the different sentences.

    `parts` is where they lie: files that `deal` wrote, and start and stop in each.
    """

    path: str
    store: str
    parts: Sequence[tuple[str, int, int]]


def deal(stretch: Stretch) -> list[int]:
    """Writes hash, place and length of each sentence, bucket by bucket.

    So each bucket reads its own sentences only: what is read and written grows with the
    text, not with its square.

    Returns:
        Where each bucket ends in the file.
    """
    with TokenStore(stretch.store) as store:
        hashes = store.sentence_hashes(stretch.start, stretch.stop)
        starts = store.sentence_starts(stretch.start, stretch.stop)
    sentences = np.empty(len(hashes), _SENTENCE)
    sentences["hash"] = hashes
    sentences["place"] = np.arange(stretch.start, stretch.stop)
    sentences["length"] = np.diff(starts)
    buckets = (hashes % stretch.num_buckets).astype(np.intp)
    order = np.argsort(buckets, kind="stable")
    with storage.atomic_write(stretch.path) as file:
        file.write(sentences[order].tobytes())
    return np.bincount(buckets, minlength=stretch.num_buckets).cumsum().tolist()


def find_repeats(bucket: Bucket) -> dict[str, list]:
    """Finds sentences that occur several times.

    Returns:
        "sources": for each [sentences, tokens] that stood somewhere before, and
        "most": [count, one of its places] of the most frequent sentences.
    """
    with TokenStore(bucket.store) as store:
        ends = _source_ends(store.summary, "sentences")
    sentences = np.concatenate([_read(*part) for part in bucket.parts])
    places, lengths = sentences["place"], sentences["length"]
    _, first, counts = np.unique(
        sentences["hash"], return_index=True, return_counts=True
    )
    is_repeated = np.ones(len(sentences), bool)
    is_repeated[first] = False
    sources = ends.searchsorted(places[is_repeated], side="right")
    sentences = np.bincount(sources, minlength=len(ends))
    tokens = np.bincount(sources, lengths[is_repeated], len(ends)).astype(np.int64)
    most = np.lexsort([places[first], -counts])[:_MOST_REPEATED]
    return {
        "sources": np.stack([sentences, tokens], axis=1).tolist(),
        "most": np.stack([counts, places[first]], axis=1)[most].tolist(),
    }


def _read(path: str, start: int, stop: int) -> np.ndarray:
    with storage.open_file(path, "rb") as file:
        file.seek(start * _SENTENCE.itemsize)
        data = file.read((stop - start) * _SENTENCE.itemsize)
    return np.frombuffer(data, _SENTENCE)


def report(
    directory: str, vocabulary: Vocabulary, workers: jobs.Workers
) -> dict[str, Any]:
    """Examines a token store, unless that was done before.

    Memory: 8 bytes per document, and 150 MB for each worker. Disk, while it works: 20
    bytes per sentence.

    Returns:
        "sources": for each its `token_store.COUNTS`, and "repeated_sentences",
        "repeated_tokens", "duplicate_documents": how many stood somewhere before.
        "total": the same of all sources. "most_repeated": [count, sentence].
    """
    done = os.path.join(directory, "lint.json")
    if not storage.exists(done):
        temporary = os.path.join(directory, "repeats")
        storage.make_directory(temporary)
        with TokenStore(directory) as store:
            found = _report(store, directory, temporary, vocabulary, workers)
            storage.write_json(done, found)
        storage.remove_directory(temporary)
    return storage.read_json(done)


def _report(
    store: TokenStore,
    directory: str,
    temporary: str,
    vocabulary: Vocabulary,
    workers: jobs.Workers,
) -> dict[str, Any]:
    num_sentences = store.summary["sentences"]
    num_buckets = -(-num_sentences // _SENTENCES_PER_BUCKET)
    starts = range(0, num_sentences, _SENTENCES_PER_STRETCH)
    stops = [min(start + _SENTENCES_PER_STRETCH, num_sentences) for start in starts]
    stretches = [
        Stretch(f"{temporary}/stretch-{i:05d}", directory, start, stop, num_buckets)
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True))
    ]
    ends = workers.run(
        deal,
        stretches,
        [stretch.stop - stretch.start for stretch in stretches],
        description="Dealing sentences",
        unit=" sentences",
    )
    bounds = np.pad(ends, [(0, 0), (1, 0)]).T.tolist()  # A row for each bucket.
    paths = [stretch.path for stretch in stretches]
    buckets = [
        Bucket(f"{temporary}/{i:05d}", directory, [*zip(paths, *rows, strict=True)])
        for i, rows in enumerate(itertools.pairwise(bounds))
    ]
    parts = workers.run(
        find_repeats,
        buckets,
        [num_sentences / num_buckets] * num_buckets,
        description="Looking for repeats",
        unit=" sentences",
    )
    repeated = sum(np.array(part["sources"]) for part in parts)
    most = [entry for part in parts for entry in part["most"]]
    most.sort(key=lambda entry: (-entry[0], entry[1]))

    hashes = store.document_hashes()
    _, first = np.unique(hashes, return_index=True)
    copies = np.delete(np.arange(len(hashes)), first)
    ends = _source_ends(store.summary, "documents")
    copies = np.bincount(ends.searchsorted(copies, side="right"), minlength=len(ends))

    sources = {
        path: counts
        | {
            "repeated_sentences": int(repeated[i, 0]),
            "repeated_tokens": int(repeated[i, 1]),
            "duplicate_documents": int(copies[i]),
        }
        for i, (path, counts) in enumerate(store.summary["sources"].items())
    }
    names = [*COUNTS, "repeated_sentences", "repeated_tokens", "duplicate_documents"]
    return {
        "total": {n: sum(source[n] for source in sources.values()) for n in names},
        "most_repeated": [
            [count, _sentence(store, place, vocabulary)]
            for count, place in most[:_MOST_REPEATED]
            if count > 1
        ],
        "sources": sources,
    }


def _source_ends(summary: dict[str, Any], name: str) -> np.ndarray:
    """Returns the number of sentences or documents up to the end of each source."""
    return np.cumsum([counts[name] for counts in summary["sources"].values()])


def _sentence(store: TokenStore, place: int, vocabulary: Vocabulary) -> str:
    ids = store.tokens(*store.sentence_starts(place, place + 1).tolist())
    text = " ".join(vocabulary.tokens[i] for i in ids[:50])
    return text.replace(f" {CONTINUATION_PREFIX}", "")


# --- In words --------------------------------------------------------------------


def warnings(report: dict[str, Any]) -> list[str]:
    """Returns what is wrong, a line for each kind of trouble; best an empty list."""
    sources: dict[str, Counts] = report["sources"]
    found = []
    empty = [path for path, counts in sources.items() if not counts["documents"]]
    if empty:
        found.append(f"{_of(empty, sources)} gave no document: {_names(empty)}")
    for (name, whole), (limit, words) in _LIMITS.items():
        shares = {
            path: counts[name] / counts[whole]
            for path, counts in sources.items()
            if counts[whole] and counts[name] > limit * counts[whole]
        }
        if shares:
            worst = sorted(shares, key=lambda path: -shares[path])
            named = _names([f"{path} ({_percent(shares[path])})" for path in worst])
            number = _of(worst, sources)
            found.append(f"More than {_percent(limit)} {words}. In {number}: {named}")
    documents = report["total"]["documents"]
    boilerplate = [
        f"{count:,} times {sentence!r}"
        for count, sentence in report["most_repeated"]
        if count >= max(_BOILERPLATE_COUNT, _BOILERPLATE_SHARE * documents)
    ]
    if boilerplate:
        found.append(f"Boilerplate, to be removed: {'; '.join(boilerplate)}")
    return found


def _of(paths: list[str], sources: dict[str, Counts]) -> str:
    return f"{len(paths):,} of {len(sources):,} files"


def _names(names: list[str]) -> str:
    more = len(names) - _SOURCES_NAMED
    return ", ".join(names[:_SOURCES_NAMED]) + (f" and {more:,} more" * (more > 0))


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.0995 else f"{share:.0%}"


def table(report: dict[str, Any]) -> str:
    """Returns the numbers of all text, and of its largest sources, as a table."""
    sources: dict[str, Counts] = report["sources"]
    largest = sorted(sources, key=lambda path: -sources[path]["tokens"])
    rows = {f"all {len(sources):,} files": report["total"]}
    rows |= {path: sources[path] for path in largest[:_SOURCES_SHOWN]}
    lines = [
        "  documents     sentences          tokens   [UNK]     ##  repeated  copies"
    ]
    for name, counts in rows.items():
        columns = [f"{counts['documents']:11,}", f"{counts['sentences']:14,}"]
        columns += [f"{counts['tokens']:16,}"]
        for part, whole, width in (
            ("unknown", "tokens", 8),
            ("continuations", "tokens", 7),
            ("repeated_tokens", "tokens", 10),
            ("duplicate_documents", "documents", 8),
        ):
            share = _percent(counts[part] / max(counts[whole], 1))
            columns.append(f"{share:>{width}}")
        lines.append(f"{''.join(columns)}  {name}")
    return "\n".join(lines)
