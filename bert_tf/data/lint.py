# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Warns about problems in the text of a token store that commonly ruin pre-training.

These are repeated text, a vocabulary for another language, files decoded with a wrong
encoding, files without documents, and documents too short for next sentence prediction.
The training loss shows them late or never.

Sentences and documents are compared by their tokens. In large corpora repeats are
estimated, see `bert_tf.data.repeats`.
"""

from __future__ import annotations

import collections
import functools
import os
from typing import Any

import numpy as np

from bert_tf import storage, text
from bert_tf.data.repeats import Repeats, count_repeats, sampling_step
from bert_tf.data.token_store import TokenStore

_NUM_MOST_REPEATED = 10
_MAX_FILES_IN_WARNING = 3
_MAX_FILES_IN_TABLE = 10

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


def report(directory: str, vocabulary: text.Vocabulary) -> dict[str, Any]:
    """Returns statistics of a token store; reads `lint.json` in it if that exists.

    Returns:
        "sources": for each text file its `COUNTS` and the number of
        "repeated_sentences", "repeated_tokens" and "duplicate_documents", each without
        the first occurrence. "total": the sums over all files. "most_repeated": a list
        of [count, sentence].
    """
    path = os.path.join(directory, "lint.json")
    if not storage.exists(path):
        with TokenStore(directory) as store:
            storage.write_json(path, _report(store, vocabulary))
    return storage.read_json(path)


def _report(store: TokenStore, vocabulary: text.Vocabulary) -> dict[str, Any]:
    counts_of = store.summary["sources"]

    def count(kind: str) -> Repeats:
        ends = np.cumsum([counts[f"{kind}s"] for counts in counts_of.values()])
        return count_repeats(functools.partial(store.items, kind), ends)

    sentences, documents = count("sentence"), count("document")
    repeats = {
        "repeated_sentences": sentences.counts.tolist(),
        "repeated_tokens": sentences.sizes.tolist(),
        "duplicate_documents": documents.counts.tolist(),
    }
    sources, total = {}, collections.Counter()
    for (path, counts), *values in zip(counts_of.items(), *repeats.values()):
        sources[path] = counts | dict(zip(repeats, values))
        total.update(sources[path])
    most_repeated = [
        [count, _sentence(store, position, vocabulary)]
        for count, position in sentences.most[:_NUM_MOST_REPEATED]
    ]
    return {"total": total, "most_repeated": most_repeated, "sources": sources}


def _sentence(store: TokenStore, index: int, vocabulary: text.Vocabulary) -> str:
    ids = store.tokens(*store.sentence_starts(index, index + 1).tolist())
    tokens = " ".join(vocabulary.tokens[i] for i in ids[:50])
    return tokens.replace(f" {text.CONTINUATION_PREFIX}", "")


def warnings(report: dict[str, Any]) -> list[str]:
    """Returns a message for each kind of problem in a report."""
    sources = report["sources"]
    messages = []
    empty = [path for path, counts in sources.items() if not counts["documents"]]
    if empty:
        messages.append(
            f"{len(empty):,} of {len(sources):,} files contain no document: "
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
            files = _shorten([f"{path} ({_percent(shares[path])})" for path in worst])
            messages.append(
                f"More than {_percent(limit)} of the {whole} {problem}. "
                f"In {len(worst):,} of {len(sources):,} files: {files}"
            )
    minimum = max(_BOILERPLATE_COUNT, _BOILERPLATE_SHARE * report["total"]["documents"])
    boilerplate = [
        f"{sentence!r} ({count:,} times)"
        for count, sentence in report["most_repeated"]
        if count >= minimum
    ]
    if boilerplate:
        messages.append(f"Remove boilerplate: {'; '.join(boilerplate)}")
    return messages


def _shorten(names: list[str]) -> str:
    more = len(names) - _MAX_FILES_IN_WARNING
    shown = ", ".join(names[:_MAX_FILES_IN_WARNING])
    return shown + (f" and {more:,} more" if more > 0 else "")


def _percent(share: float) -> str:
    return f"{share:.2%}" if share < 0.0995 else f"{share:.0%}"


def table(report: dict[str, Any]) -> str:
    """Returns a table of the statistics of all text and of the largest files."""
    sources = report["sources"]
    largest = sorted(sources, key=lambda path: -sources[path]["tokens"])
    rows = {f"all {len(sources):,} files": report["total"]}
    rows |= {path: sources[path] for path in largest[:_MAX_FILES_IN_TABLE]}
    lines = [
        "  documents     sentences          tokens   [UNK]     ##  repeated  duplicates"
    ]
    for name, counts in rows.items():
        tokens, documents = max(counts["tokens"], 1), max(counts["documents"], 1)
        unknown = _percent(counts["unknown"] / tokens)
        continuations = _percent(counts["continuations"] / tokens)
        repeated = _percent(counts["repeated_tokens"] / tokens)
        duplicates = _percent(counts["duplicate_documents"] / documents)
        lines.append(
            "{documents:11,}{sentences:14,}{tokens:16,}".format(**counts)
            + f"{unknown:>8}{continuations:>7}{repeated:>10}{duplicates:>12}  {name}"
        )
    total = report["total"]
    step = sampling_step(total["sentences"])
    if step > 1:
        error = (step / max(1, total["repeated_sentences"])) ** 0.5
        lines.append(
            f"repeated: estimated from 1 in {step} different sentences; the standard "
            f"error is about {error:.1%} of the value"
        )
    return "\n".join(lines)
