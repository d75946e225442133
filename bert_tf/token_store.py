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
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np

from bert_tf import documents, jobs
from bert_tf.vocab import Vocabulary

_PART_BYTES = 1 << 23  # Of text, per job.
_BATCH_CHARACTERS = 1 << 20  # Of text, per call of the tokenizer.

# What is counted for each file.
COUNTS = ("documents", "sentences", "tokens", "unknown")


class TokenStore(contextlib.AbstractContextManager):
    """Tokenised documents in three flat files of one directory, read by position.

    * `tokens.bin`, uint16 or uint32 [tokens]
    * `sentences.bin`, int64 [sentences + 1]: first token of each sentence
    * `documents.bin`, int64 [documents + 1]: first sentence of each document

    and `store.json`, which is written last. Only the document index is held in memory;
    the rest is read where it is needed, and not mapped, because touched pages of a map
    count as memory of the process.

    Attributes:
        summary: `COUNTS` in total and, under "sources", for each file.
        first_sentences: The document index.
    """

    def __init__(self, directory: str | os.PathLike):
        directory = pathlib.Path(directory)
        self.summary = json.loads((directory / "store.json").read_text("utf-8"))
        self.first_sentences = np.fromfile(directory / "documents.bin", np.int64)
        self._dtype = np.dtype(self.summary["dtype"])
        self._tokens = (directory / "tokens.bin").open("rb")
        self._sentences = (directory / "sentences.bin").open("rb")

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


def _read(file: IO[bytes], dtype: np.dtype, start: int, stop: int) -> np.ndarray:
    count = (stop - start) * dtype.itemsize
    return np.frombuffer(os.pread(file.fileno(), count, start * dtype.itemsize), dtype)


# --- Building a store ------------------------------------------------------------


def build(
    directory: str | os.PathLike,
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
    directory = pathlib.Path(directory)
    settings = {
        "input": describe(files),
        "document_separator": separator,
        "vocabulary": vocabulary.fingerprint,
        "lowercase": lowercase,
    }
    jobs.claim(
        directory, "token_store", settings, results=["store.json", "parts/*.json"]
    )
    if not (directory / "store.json").exists():
        parts_directory = directory / "parts"
        parts_directory.mkdir(exist_ok=True)
        parts, sizes = [], []
        for spans, size in _divide(files, separator):
            path = str(parts_directory / f"{len(parts):05d}")
            parts.append(Part(path, spans, separator, vocabulary, lowercase))
            sizes.append(size)
        counts = workers.run(tokenise, parts, sizes, description="Tokenising", unit="B")
        _join(directory, parts, counts, _token_dtype(vocabulary))
        shutil.rmtree(parts_directory)
    return json.loads((directory / "store.json").read_text("utf-8"))


def describe(files: Sequence[str]) -> str:
    """Returns a text that changes when the files do."""
    stats = [(path, *documents.stat(path)) for path in files]
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
        length, _ = documents.stat(path)
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
    vocabulary: Vocabulary
    lowercase: bool


def tokenise(part: Part) -> dict[str, list[int]]:
    """Writes one part of a store.

    Returns:
        For each file its `COUNTS`.
    """
    tokenizer = _tokenizer(part.vocabulary, part.lowercase)
    dtype = _token_dtype(part.vocabulary)
    totals = {path: np.zeros(len(COUNTS), np.int64) for path, _, _ in part.spans}
    with (
        open(part.path + ".tokens", "wb") as tokens_file,
        open(part.path + ".sentences", "wb") as sentences_file,
        open(part.path + ".documents", "wb") as documents_file,
    ):
        for paths, batch in _batches(part):
            ids, lengths, counts = _tokenise_batch(tokenizer, batch)
            sizes = counts[:, COUNTS.index("sentences")]
            ids.astype(dtype).tofile(tokens_file)
            lengths.astype(np.uint32).tofile(sentences_file)
            sizes[sizes > 0].astype(np.uint32).tofile(documents_file)
            for path, row in zip(paths, counts, strict=True):
                totals[path] += row
    return {path: row.tolist() for path, row in totals.items()}


@functools.lru_cache(maxsize=1)  # One per process, not per job.
def _tokenizer(vocabulary: Vocabulary, lowercase: bool) -> Any:
    from bert_tf import text  # Imports TensorFlow.

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
    sentences = per_document(owner[lengths > 0])
    tokens = per_document(owner, weights=lengths)
    is_unknown = ids == tokenizer.vocabulary.unk_id
    unknown = per_document(np.repeat(owner, lengths)[is_unknown])
    counts = np.stack([sentences > 0, sentences, tokens, unknown], axis=1)
    return ids, lengths[lengths > 0], counts.astype(np.int64)


def _join(
    directory: pathlib.Path,
    parts: Sequence[Part],
    counts: Sequence[dict[str, list[int]]],
    dtype: np.dtype,
) -> None:
    """Writes the files of a `TokenStore` from its parts."""
    with (directory / "tokens.bin").open("wb") as joined:
        for part in parts:
            with open(part.path + ".tokens", "rb") as tokens:
                shutil.copyfileobj(tokens, joined)
    for name in ("sentences", "documents"):
        with (directory / f"{name}.bin").open("wb") as joined:
            total = np.zeros(1, np.int64)
            total.tofile(joined)
            for part in parts:
                sizes = np.fromfile(f"{part.path}.{name}", np.uint32)
                ends = total + np.cumsum(sizes, dtype=np.int64)
                ends.tofile(joined)
                total = ends[-1:] if len(ends) else total
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
    jobs.write_json(directory / "store.json", summary)
