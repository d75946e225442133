# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenizes text files into a `TokenStore`: token ids on disk, 2 bytes per token.

Text is tokenized once; records of any length are then made from the store. Workers
tokenize parts of the text independently, and the parts are concatenated in order. So
the store depends only on the text, the vocabulary and the options. Building it takes
the same memory for any amount of text.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

from bert_tf import storage, text
from bert_tf.data import documents, jobs
from bert_tf.data.corpus_config import CorpusConfig

_PART_BYTES = 1 << 23  # Text per job.
_BATCH_CHARACTERS = 1 << 20  # Text per call of the tokenizer.

_COPY_BYTES = 1 << 24  # Buffer for copying files.

_FORMAT = 2
_FILES = ("tokens", "sentences", "documents", "sentence_hashes", "document_hashes")

# Statistics of each text file. "continuations" are tokens inside words. "garbled" are
# sentences with characters that result from decoding with a wrong encoding.
COUNTS = (
    *("documents", "sentences", "tokens", "unknown", "continuations", "garbled"),
    "one_sentence_documents",
)

# Control characters, the replacement character, and UTF-8 that was decoded as Latin-1
# or Windows-1252: Ã© for é, â€™ for ’.
_GARBLED = re.compile("[\x80-\x84\x86-\x9f\ufffd]|[\xc2\xc3][\xa0-\xbf]|\xe2\u20ac")


class TokenStore(contextlib.AbstractContextManager):
    """Tokenized documents in the files of one directory.

    * `tokens.bin`: token ids, uint16 or uint32 [tokens]
    * `sentences.bin`: first token of each sentence, int64 [sentences + 1]
    * `documents.bin`: first sentence of each document, int64 [documents + 1]
    * `sentence_hashes.bin`, `document_hashes.bin`: 64-bit hashes of the token ids,
      uint64 [sentences] and [documents]
    * `store.json`: the summary, written last

    Only the document index is kept in memory. The other files are read with `pread`
    and not mapped, because touched pages of a mapping count as memory of the process.
    A remote store is first copied to this machine's directory for temporary files,
    once for all processes, because it is read in random order.

    Attributes:
        summary: `COUNTS` in total and, under "sources", by text file.
        first_sentences: First sentence of each document, int64 [documents + 1].
    """

    def __init__(self, directory: str):
        self.summary = storage.read_json(os.path.join(directory, "store.json"))
        if storage.is_remote(directory):
            directory = _local_copy(directory, self.summary)
        local = self._directory = pathlib.Path(directory)
        self.first_sentences = np.fromfile(local / "documents.bin", np.int64)
        self._dtype = np.dtype(self.summary["dtype"])
        self._tokens = (local / "tokens.bin").open("rb")
        self._sentences = (local / "sentences.bin").open("rb")

    def __exit__(self, *_: object) -> None:
        self._tokens.close()
        self._sentences.close()

    def sentence_starts(self, start: int, stop: int) -> np.ndarray:
        """Returns the first token of sentences start..stop, int64 [stop - start + 1].

        The last value is the end of the last sentence.
        """
        return _read(self._sentences, np.dtype(np.int64), start, stop + 1)

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """Returns the token ids start..stop, uint16 or uint32 [stop - start]."""
        return _read(self._tokens, self._dtype, start, stop)

    def items(self, kind: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the hashes and sizes of items start..stop, [stop - start].

        The hashes are uint64. The size of a "sentence" is its number of tokens, the
        size of a "document" its number of sentences, int64.
        """
        name, size, offset = self._directory / kind, stop - start, 8 * start
        hashes = np.fromfile(f"{name}_hashes.bin", "<u8", size, offset=offset)
        starts = np.fromfile(f"{name}s.bin", np.int64, size + 1, offset=offset)
        return hashes, np.diff(starts)


def _read(file: IO[bytes], dtype: np.dtype, start: int, stop: int) -> np.ndarray:
    count = (stop - start) * dtype.itemsize
    return np.frombuffer(os.pread(file.fileno(), count, start * dtype.itemsize), dtype)


def _local_copy(directory: str, summary: dict[str, Any]) -> str:
    """Copies a remote store to this machine, unless another process already has."""
    key = hashlib.sha256(f"{directory} {summary}".encode()).hexdigest()[:16]
    local = os.path.join(tempfile.gettempdir(), f"bert_tf_tokens_{key}")
    with open(f"{local}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(local):
            partial = f"{local}.partial"
            os.makedirs(partial, exist_ok=True)
            for name in _FILES:
                source = os.path.join(directory, f"{name}.bin")
                target = os.path.join(partial, f"{name}.bin")
                with (
                    storage.open_file(source, "rb") as file,
                    open(target, "wb") as copy,
                ):
                    shutil.copyfileobj(file, copy, _COPY_BYTES)
            os.rename(partial, local)
    return local


# --- Building a store ------------------------------------------------------------


def build_token_store(
    options: CorpusConfig,
    files: Sequence[str],
    vocabulary: text.Vocabulary,
    workers: jobs.Workers,
) -> dict[str, Any]:
    """Tokenizes text files into a store, or returns the summary of an existing one.

    Args:
        options: Options of the command.
        files: The files that `options.input` matches.
        vocabulary: The vocabulary.
        workers: Run the jobs.

    Returns:
        The `summary` of the `TokenStore`.

    Raises:
        ValueError: The directory holds a store with other text or settings, or a file
            is not UTF-8 text.
    """
    directory = options.store
    settings = {
        "format": _FORMAT,
        "input": describe_files(files),
        "document_separator": options.document_separator,
        "vocabulary": vocabulary.fingerprint,
        "lowercase": options.lowercase,
    }
    results = ["store.json", "parts/*.json"]
    jobs.claim_directory(directory, "token_store", settings, results)
    summary_path = os.path.join(directory, "store.json")
    if not storage.exists(summary_path):
        vocabulary.write(os.path.join(directory, "vocab.txt"))
        parts_directory = os.path.join(directory, "parts")
        storage.make_directory(parts_directory)
        parts, sizes = [], []
        for ranges, size in _partition(files, options.document_separator):
            path = os.path.join(parts_directory, f"{len(parts):05d}")
            parts.append(StorePart(path, ranges, options))
            sizes.append(size)
        counts = workers.run(
            tokenize_part, parts, sizes, description="Tokenizing", unit="B"
        )
        _join_parts(directory, parts)
        storage.write_json(summary_path, _summary(vocabulary, counts))
        storage.remove_directory(parts_directory)
    return storage.read_json(summary_path)


def describe_files(files: Sequence[str]) -> str:
    """Returns a summary of files that changes when a path, size or time changes."""
    stats = [(path, *storage.stat(path)) for path in files]
    digest = hashlib.sha256(repr(stats).encode()).hexdigest()
    total = sum(size for _, size, _ in stats)
    return f"{len(files)} files, {total:,} bytes, state {digest[:12]}"


def _token_dtype(vocabulary: text.Vocabulary) -> np.dtype:
    return np.min_scalar_type(vocabulary.size - 1).newbyteorder("<")


Range = tuple[str, int, int]  # File, start and end in bytes, see `byte_ranges`.


def _partition(
    files: Sequence[str], separator: str
) -> Iterator[tuple[tuple[Range, ...], int]]:
    """Yields ranges that are together about `_PART_BYTES` long, and their size."""
    ranges: list[Range] = []
    total = 0
    for path in files:
        length, _ = storage.stat(path)
        for start, end in documents.byte_ranges(path, _PART_BYTES, separator):
            ranges.append((path, start, end))
            total += min(end, length) - start
            if total >= _PART_BYTES:
                yield tuple(ranges), total
                ranges, total = [], 0
    if ranges:
        yield tuple(ranges), total


@dataclasses.dataclass(frozen=True)
class StorePart:
    """A job of `tokenize_part`."""

    path: str  # Prefix of the output files.
    ranges: tuple[Range, ...]
    options: CorpusConfig


def tokenize_part(part: StorePart) -> dict[str, list[int]]:
    """Tokenizes ranges of text files into one part of a store.

    Returns:
        The `COUNTS` of each text file.
    """
    vocabulary = os.path.join(part.options.store, "vocab.txt")
    tokenizer = _tokenizer(vocabulary, part.options.lowercase)
    dtype = _token_dtype(tokenizer.vocabulary)
    totals = {path: np.zeros(len(COUNTS), np.int64) for path, _, _ in part.ranges}
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(storage.atomic_write(f"{part.path}.{name}"))
            for name in _FILES
        }
        for paths, batch in _batches(part):
            ids, lengths, counts = _tokenize_batch(tokenizer, batch)
            ids = ids.astype(dtype)
            sizes = counts[:, COUNTS.index("sentences")]
            sizes = sizes[sizes > 0]
            sentence_ends = np.cumsum(lengths)
            document_ends = sentence_ends[np.cumsum(sizes) - 1]
            files["tokens"].write(ids.tobytes())
            files["sentences"].write(lengths.astype(np.uint32).tobytes())
            files["documents"].write(sizes.astype(np.uint32).tobytes())
            files["sentence_hashes"].write(_hashes(ids, sentence_ends))
            files["document_hashes"].write(_hashes(ids, document_ends))
            for path, row in zip(paths, counts, strict=True):
                totals[path] += row
    return {path: row.tolist() for path, row in totals.items()}


@functools.lru_cache(maxsize=1)  # Each process builds its tokenizer once.
def _tokenizer(vocabulary: str, lowercase: bool) -> text.Tokenizer:
    return text.Tokenizer(vocabulary, lowercase)


def _batches(part: StorePart) -> Iterator[Iterable[Any]]:
    """Yields batches of documents: their text files, and the sentences of each."""
    batch: list[tuple[str, list[str]]] = []
    size = 0
    separator = part.options.document_separator
    for path, start, end in part.ranges:
        for document in documents.read_documents(path, separator, start, end):
            batch.append((path, document))
            size += sum(map(len, document))
            if size >= _BATCH_CHARACTERS:
                yield zip(*batch)
                batch, size = [], 0
    if batch:
        yield zip(*batch)


def _tokenize_batch(
    tokenizer: text.Tokenizer, batch: Sequence[list[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokenizes documents given as lists of sentences.

    Sentences and documents without tokens are dropped.

    Returns:
        Token ids [tokens], tokens per sentence [sentences], and the `COUNTS` of each
        document [len(batch), len(COUNTS)].
    """
    chunks = [tokenizer.tokenize(chunk) for chunk in _chunks(itertools.chain(*batch))]
    ids = np.concatenate([chunk.flat_values for chunk in chunks])
    lengths = np.concatenate([chunk.row_lengths() for chunk in chunks])
    # The index of the document of each sentence and of each token.
    of_sentence = np.repeat(np.arange(len(batch)), [len(d) for d in batch])
    of_token = np.repeat(of_sentence, lengths)
    per_document = functools.partial(np.bincount, minlength=len(batch))
    sentences = per_document(of_sentence[lengths > 0])
    vocabulary = tokenizer.vocabulary
    columns = {
        "documents": sentences > 0,
        "sentences": sentences,
        "tokens": per_document(of_token),
        "unknown": per_document(of_token[ids == vocabulary.unk_id]),
        "continuations": per_document(of_token[vocabulary.is_continuation[ids]]),
        "garbled": [sum(map(_is_garbled, document)) for document in batch],
        "one_sentence_documents": sentences == 1,
    }
    counts = np.stack([columns[name] for name in COUNTS], axis=1)
    return ids, lengths[lengths > 0], counts.astype(np.int64)


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


def _is_garbled(sentence: str) -> bool:
    return not sentence.isascii() and bool(_GARBLED.search(sentence))


def _hashes(ids: np.ndarray, ends: np.ndarray) -> bytes:
    """Returns the 8-byte hashes of consecutive slices of `ids` that end at `ends`."""
    data = memoryview(ids).cast("B")
    bounds = [0, *(ends * ids.itemsize).tolist()]
    return b"".join(
        hashlib.blake2b(data[start:end], digest_size=8).digest()
        for start, end in itertools.pairwise(bounds)
    )


def _join_parts(directory: str, parts: Sequence[StorePart]) -> None:
    """Concatenates the parts into the files of a `TokenStore`."""
    for name in _FILES:
        is_index = name in ("sentences", "documents")
        with storage.atomic_write(os.path.join(directory, f"{name}.bin")) as joined:
            end = 0
            if is_index:
                joined.write(np.int64(end).tobytes())
            for part in parts:
                with storage.open_file(f"{part.path}.{name}", "rb") as values:
                    if is_index:
                        sizes = np.frombuffer(values.read(), np.uint32)
                        ends = end + np.cumsum(sizes, dtype=np.int64)
                        joined.write(ends.tobytes())
                        end += int(sizes.sum())
                    else:
                        shutil.copyfileobj(values, joined, _COPY_BYTES)


def _summary(
    vocabulary: text.Vocabulary, counts: Sequence[dict[str, list[int]]]
) -> dict[str, Any]:
    """Returns the `summary` of a `TokenStore` from the counts of its parts."""
    total: collections.Counter[str] = collections.Counter()
    sources: dict[str, collections.Counter[str]] = {}
    for part in counts:
        for path, row in part.items():
            by_name = dict(zip(COUNTS, row, strict=True))
            sources.setdefault(path, collections.Counter()).update(by_name)
            total.update(by_name)
    return {"dtype": _token_dtype(vocabulary).str, **total, "sources": sources}
