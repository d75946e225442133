# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Warns about problems in text that commonly ruin pre-training.

These are repeated text, a vocabulary for another language, files decoded with a wrong
encoding, files without documents, and documents too short for next sentence prediction.
The training loss shows them late or never. Repeats are found within a block of
documents, see `documents.read_blocks`.

A report has "sources", the counts of each text file, and "repeated", how often the most
frequent repeated sentences occur.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_tf.data.documents import Document
from bert_tf.text import Vocabulary

_NUM_REPEATED = 100  # Sentences in a report.
_NUM_QUOTED, _QUOTED_CHARACTERS = 10, 200
_MAX_FILES_IN_WARNING = 3

# Warn if the ratio of two counts exceeds a limit. In English text 5 to 20% of the
# tokens are inside words with an English vocabulary, and 35 to 42% with a Chinese one.
_LIMITS = [
    # count, of which, limit, problem
    ("unknown", "tokens", 0.01, "are [UNK]: the vocabulary does not fit"),
    ("continuations", "tokens", 1 / 3, "continue a word: wrong vocabulary?"),
    ("garbled", "sentences", 0.01, "contain text like Ã© or â€™: wrong encoding?"),
    ("repeated_tokens", "tokens", 0.05, "are in sentences that occurred before"),
    ("duplicate_documents", "documents", 0.01, "are duplicates"),
    ("one_sentence_documents", "documents", 1 / 3, "have 1 sentence: wrong separator?"),
]
# A sentence is boilerplate if it occurs in this share of documents and this often.
_BOILERPLATE_SHARE, _BOILERPLATE_COUNT = 0.01, 100

# Control characters, the replacement character, and UTF-8 that was decoded as Latin-1
# or Windows-1252: Ã© for é, â€™ for ’.
_GARBLED = re.compile("[\x80-\x84\x86-\x9f\ufffd]|[\xc2\xc3][\xa0-\xbf]|\xe2\u20ac")


def count(
    documents: Sequence[Document],
    ids: np.ndarray,
    lengths: np.ndarray,
    vocabulary: Vocabulary,
) -> dict[str, Any]:
    """Returns the report of some documents.

    Args:
        documents: The documents.
        ids: Token ids of all sentences, [tokens].
        lengths: Number of tokens of each sentence, [sentences].
        vocabulary: The vocabulary.
    """
    sources: dict[str, collections.Counter[str]] = {}
    seen: collections.Counter[str] = collections.Counter()
    seen_documents: set[tuple[str, ...]] = set()
    is_unknown, is_inside = ids == vocabulary.unk_id, vocabulary.is_continuation[ids]
    first = first_id = 0
    for path, sentences in documents:
        sizes = lengths[first : first + len(sentences)].tolist()
        own_ids = slice(first_id, first_id + sum(sizes))
        first, first_id = first + len(sentences), own_ids.stop
        repeated = []  # Numbers of tokens.
        for sentence, size in zip(sentences, sizes, strict=True):
            times = seen.get(sentence, 0)  # Faster than counting misses.
            seen[sentence] = times + 1
            if times:
                repeated.append(size)
        num_sentences = len(sizes) - sizes.count(0)
        sources.setdefault(path, collections.Counter()).update(
            documents=int(num_sentences > 0),
            sentences=num_sentences,
            tokens=sum(sizes),
            unknown=int(is_unknown[own_ids].sum()),
            continuations=int(is_inside[own_ids].sum()),
            garbled=sum(map(_is_garbled, sentences)),
            one_sentence_documents=int(num_sentences == 1),
            repeated_sentences=len(repeated),
            repeated_tokens=sum(repeated),
            duplicate_documents=int(tuple(sentences) in seen_documents),
        )
        seen_documents.add(tuple(sentences))
    most = dict(seen.most_common(_NUM_REPEATED))
    return {"sources": sources, "repeated": {s: n for s, n in most.items() if n > 1}}


def _is_garbled(sentence: str) -> bool:
    return not sentence.isascii() and bool(_GARBLED.search(sentence))


def merge(reports: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Returns the report of the documents of all reports."""
    sources: dict[str, collections.Counter[str]] = {}
    repeated: collections.Counter[str] = collections.Counter()
    for report in reports:
        for path, counts in report["sources"].items():
            sources.setdefault(path, collections.Counter()).update(counts)
        repeated.update(report["repeated"])
    return {"sources": sources, "repeated": dict(repeated.most_common(_NUM_REPEATED))}


def total(report: dict[str, Any]) -> collections.Counter[str]:
    """Returns the sums of the counts of all files."""
    return sum(report["sources"].values(), collections.Counter())


def warnings(report: dict[str, Any], files: Sequence[str]) -> list[str]:
    """Returns a message for each kind of problem in a report of files."""
    sources = report["sources"]
    messages = []
    empty = [path for path in files if not sources.get(path, {}).get("documents")]
    if empty:
        messages.append(
            f"{len(empty):,} of {len(files):,} files contain no document: "
            f"{_shorten(empty)}"
        )
    for name, whole, limit, problem in _LIMITS:
        shares = {
            path: counts[name] / counts[whole]
            for path, counts in sources.items()
            if counts[name] > limit * counts[whole]
        }
        if shares:
            worst = sorted(shares, key=shares.get, reverse=True)
            named = _shorten([f"{path} ({_percent(shares[path])})" for path in worst])
            messages.append(
                f"More than {_percent(limit)} of the {whole} {problem}. "
                f"In {len(worst):,} of {len(files):,} files: {named}"
            )
    share = _BOILERPLATE_SHARE * total(report)["documents"]
    boilerplate = [
        f"{sentence[:_QUOTED_CHARACTERS]!r} ({number:,} times)"
        for sentence, number in report["repeated"].items()
        if number >= max(_BOILERPLATE_COUNT, share)
    ]
    if boilerplate:
        quoted = "; ".join(boilerplate[:_NUM_QUOTED])
        messages.append(f"Remove boilerplate: {quoted}")
    return messages


def _shorten(names: list[str]) -> str:
    more = len(names) - _MAX_FILES_IN_WARNING
    shown = ", ".join(names[:_MAX_FILES_IN_WARNING])
    return shown + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.0995 else f"{share:.0%}"
