# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files in, a `TokenStore` out: tokenised documents on disk, 2 bytes per token.

Text is tokenised once; records of any length are then drawn from the store. The text
is divided into parts of equal size, which `tokenise` handles independently, and the
parts are joined in the order of the text, so that a store depends on the text, the
vocabulary and the options only. Memory does not grow with the text.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from bert_tf import storage
from bert_tf.data import documents, jobs
from bert_tf.text.vocabulary import Vocabulary

_PART_BYTES = 1 << 23  # Of text, per job.
_BATCH_CHARACTERS = 1 << 20  # Of text, per call of the tokenizer.

_COPY_BYTES = 1 << 24  # At a time, from and to other machines.

_FORMAT = 2
_FILES = ("tokens", "sentences", "documents", "sentence_hashes", "document_hashes")

# What is counted for each file: "continuations" are tokens inside words, "garbled" are
# sentences with characters that only a wrong decoding makes.
COUNTS = (
    *("documents", "sentences", "tokens", "unknown", "continuations", "garbled"),
    "one_sentence_documents",
)

# What has no place in text (control characters, the replacement character), and UTF-8
# that was read as Latin-1 or Windows-1252 before: Ã© for é, â€™ for ’.
_GARBLED = re.compile("[\x80-\x84\x86-\x9f\ufffd]|[\xc2\xc3][\xa0-\xbf]|\xe2\u20ac")


class TokenStore(contextlib.AbstractContextManager):
    """Tokenised documents in flat files of one directory, read by position.

    * `tokens.bin`, uint16 or uint32 [tokens]
    * `sentences.bin`, int64 [sentences + 1]: first token of each sentence
    * `documents.bin`, int64 [documents + 1]: first sentence of each document
    * `sentence_hashes.bin`, `document_hashes.bin`, uint64 [sentences], [documents]:
      equal for equal tokens

    and `store.json`, which is written last. Only the document index is held in memory;
    the rest is read where it is needed, and not mapped, because touched pages of a map
    count as memory of the process. It is read in random order: of a remote store a copy
    is made in this machine's folder for temporary files, once for all processes.

    Attributes:
        summary: `COUNTS` in total and, under "sources", for each file.
        first_sentences: The document index.
    """

    def __init__(self, directory: str):
        summary = storage.read_text(os.path.join(directory, "store.json"))
        self.summary = json.loads(summary)
        if storage.is_remote(directory):
            directory = _local_copy(directory, summary)
        local = self._directory = pathlib.Path(directory)
        self.first_sentences = np.fromfile(local / "documents.bin", np.int64)
        self._dtype = np.dtype(self.summary["dtype"])
        self._tokens = (local / "tokens.bin").open("rb")
        self._sentences = (local / "sentences.bin").open("rb")

    def __exit__(self, *_: object) -> None:
        self._tokens.close()
        self._sentences.close()

    @property
    def num_documents(self) -> int:
        return len(self.first_sentences) - 1

    def sentence_starts(self, start: int, stop: int) -> np.ndarray:
        """Returns the first token of sentences start..stop, int64 [stop - start + 1].

        The last entry is the end of the last sentence.
        """
        return _read(self._sentences, np.dtype(np.int64), start, stop + 1)

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """Returns the token ids start..stop, uint16 or uint32 [stop - start]."""
        return _read(self._tokens, self._dtype, start, stop)

    def sentence_hashes(self, start: int, stop: int) -> np.ndarray:
        """Returns the hashes of sentences start..stop, uint64 [stop - start]."""
        path = self._directory / "sentence_hashes.bin"
        return np.fromfile(path, "<u8", stop - start, offset=8 * start)

    def document_hashes(self) -> np.ndarray:
        """Returns the hashes of all documents, uint64 [documents]."""
        return np.fromfile(self._directory / "document_hashes.bin", "<u8")


def _read(file: IO[bytes], dtype: np.dtype, start: int, stop: int) -> np.ndarray:
    count = (stop - start) * dtype.itemsize
    return np.frombuffer(os.pread(file.fileno(), count, start * dtype.itemsize), dtype)


def _local_copy(directory: str, summary: str) -> str:
    """Copies the files of a remote store, unless another process did."""
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
                    storage.open_file(source, "rb") as remote,
                    open(target, "wb") as copy,
                ):
                    shutil.copyfileobj(remote, copy, _COPY_BYTES)
            os.rename(partial, local)
    return local


# --- Building a store ------------------------------------------------------------


def build(
    directory: str,
    files: Sequence[str],
    *,
    separator: str,
    vocabulary: Vocabulary,
    lowercase: bool,
    workers: jobs.Workers,
) -> dict[str, Any]:
    """Tokenises text files into a store, unless that was done before.

    Args:
        directory: Where the store is, or is to be.
        files: Text files, see `documents.read_documents`.
        separator: One of `documents.SEPARATORS`.
        vocabulary: The vocabulary.
        lowercase: Whether it is an uncased one.
        workers: Who does it.

    Returns:
        The `summary` of the `TokenStore`.

    Raises:
        ValueError: The directory holds a store of other text or with other settings,
            or a file is not readable as text.
    """
    settings = {
        "format": _FORMAT,
        "input": describe(files),
        "document_separator": separator,
        "vocabulary": vocabulary.fingerprint,
        "lowercase": lowercase,
    }
    jobs.claim(
        directory, "token_store", settings, results=["store.json", "parts/*.json"]
    )
    done = os.path.join(directory, "store.json")
    if not storage.exists(done):
        parts_directory = os.path.join(directory, "parts")
        storage.make_directory(parts_directory)
        vocabulary_path = os.path.join(directory, "vocab.txt")
        vocabulary.write(vocabulary_path)
        parts, sizes = [], []
        for spans, size in _divide(files, separator):
            path = os.path.join(parts_directory, f"{len(parts):05d}")
            parts.append(Part(path, spans, separator, vocabulary_path, lowercase))
            sizes.append(size)
        counts = workers.run(tokenise, parts, sizes, description="Tokenising", unit="B")
        _join(directory, parts, counts, _token_dtype(vocabulary))
        storage.remove_directory(parts_directory)
    return storage.read_json(done)


def describe(files: Sequence[str]) -> str:
    """Returns a text that changes when the files do."""
    stats = [(path, *storage.stat(path)) for path in files]
    digest = hashlib.sha256(repr(stats).encode()).hexdigest()
    total = sum(size for _, size, _ in stats)
    return f"{len(files)} files, {total:,} bytes, state {digest[:12]}"


def _token_dtype(vocabulary: Vocabulary) -> np.dtype:
    return np.min_scalar_type(vocabulary.size - 1).newbyteorder("<")


Span = tuple[str, int, int]  # File, start and end in bytes: see `documents.sections`.


def _divide(
    files: Sequence[str], separator: str
) -> Iterator[tuple[tuple[Span, ...], int]]:
    """Yields stretches of text of about `_PART_BYTES`, with their size in bytes."""
    spans: list[Span] = []
    total = 0
    for path in files:
        length, _ = storage.stat(path)
        for start, end in documents.sections(path, _PART_BYTES, separator):
            spans.append((path, start, end))
            total += min(end, length) - start
            if total >= _PART_BYTES:
                yield tuple(spans), total
                spans, total = [], 0
    if spans:
        yield tuple(spans), total


@dataclasses.dataclass(frozen=True)
class Part:
    """A job: stretches of text files to one part of a store."""

    path: str  # Of the part's files, without extension.
    spans: tuple[Span, ...]
    separator: str
    vocabulary: str  # Its path.
    lowercase: bool


def tokenise(part: Part) -> dict[str, list[int]]:
    """Writes one part of a store.

    Returns:
        For each file its `COUNTS`.
    """
    tokenizer = _tokenizer(part.vocabulary, part.lowercase)
    dtype = _token_dtype(tokenizer.vocabulary)
    totals = {path: np.zeros(len(COUNTS), np.int64) for path, _, _ in part.spans}
    with contextlib.ExitStack() as stack:
        files = {
            name: stack.enter_context(storage.atomic_write(f"{part.path}.{name}"))
            for name in _FILES
        }
        for paths, batch in _batches(part):
            ids, lengths, counts = _tokenise_batch(tokenizer, batch)
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


@functools.lru_cache(maxsize=1)  # One per process, not per job.
def _tokenizer(vocabulary: str, lowercase: bool) -> Any:
    from bert_tf.text import tokenizer as text

    return text.Tokenizer(vocabulary, lowercase)


def _batches(part: Part) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yields batches of documents, as lists of their files and of their sentences."""
    paths: list[str] = []
    batch: list[list[str]] = []
    size = 0
    for path, start, end in part.spans:
        for document in documents.read_documents(path, part.separator, start, end):
            paths.append(path)
            batch.append(document)
            size += sum(map(len, document))
            if size >= _BATCH_CHARACTERS:
                yield paths, batch
                paths, batch, size = [], [], 0
    if batch:
        yield paths, batch


def _tokenise_batch(
    tokenizer: Any, batch: list[list[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns token ids, tokens per sentence, and the `COUNTS` of each document.

    Sentences without tokens are left out, and so may be whole documents.
    """
    ragged = tokenizer.tokenize([text for document in batch for text in document])
    ids, lengths = ragged.flat_values.numpy(), ragged.row_lengths().numpy()
    owner = np.repeat(np.arange(len(batch)), [len(document) for document in batch])
    per_document = functools.partial(np.bincount, minlength=len(batch))
    token_owner = np.repeat(owner, lengths)
    sentences = per_document(owner[lengths > 0])
    vocabulary = tokenizer.vocabulary
    columns = {
        "documents": sentences > 0,
        "sentences": sentences,
        "tokens": per_document(token_owner),
        "unknown": per_document(token_owner[ids == vocabulary.unk_id]),
        "continuations": per_document(token_owner[vocabulary.is_continuation[ids]]),
        "garbled": [sum(map(_is_garbled, document)) for document in batch],
        "one_sentence_documents": sentences == 1,
    }
    counts = np.stack([columns[name] for name in COUNTS], axis=1)
    return ids, lengths[lengths > 0], counts.astype(np.int64)


def _is_garbled(sentence: str) -> bool:
    return not sentence.isascii() and bool(_GARBLED.search(sentence))


def _hashes(ids: np.ndarray, ends: np.ndarray) -> bytes:
    """Returns 8 bytes for each stretch of `ids`, which end where `ends` says."""
    data = memoryview(ids).cast("B")
    bounds = [0, *(ends * ids.itemsize).tolist()]
    return b"".join(
        hashlib.blake2b(data[start:end], digest_size=8).digest()
        for start, end in itertools.pairwise(bounds)
    )


def _join(
    directory: str,
    parts: Sequence[Part],
    counts: Sequence[dict[str, list[int]]],
    dtype: np.dtype,
) -> None:
    """Writes the files of a `TokenStore` from its parts."""
    for name in _FILES:
        is_index = name in ("sentences", "documents")
        with storage.open_file(os.path.join(directory, f"{name}.bin"), "wb") as joined:
            end = np.zeros(1, np.int64)
            if is_index:
                joined.write(end.tobytes())
            for part in parts:
                with storage.open_file(f"{part.path}.{name}", "rb") as values:
                    if is_index:
                        sizes = np.frombuffer(values.read(), np.uint32)
                        ends = end + np.cumsum(sizes, dtype=np.int64)
                        joined.write(ends.tobytes())
                        end = ends[-1:] if len(ends) else end
                    else:
                        shutil.copyfileobj(values, joined, _COPY_BYTES)
    sources: dict[str, np.ndarray] = {}
    for part_counts in counts:
        for path, row in part_counts.items():
            sources[path] = sources.get(path, 0) + np.array(row)
    totals = dict(zip(COUNTS, np.sum(list(sources.values()), 0).tolist(), strict=True))
    by_source = {
        path: dict(zip(COUNTS, row.tolist(), strict=True))
        for path, row in sources.items()
    }
    summary = {"dtype": dtype.str, **totals, "sources": by_source}
    storage.write_json(os.path.join(directory, "store.json"), summary)
