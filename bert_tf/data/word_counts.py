# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the words of text files, in parts, on this machine or a cluster."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence

from bert_tf import storage, text
from bert_tf.data.documents import Range, read_paragraphs
from bert_tf.data.jobs import JobOptions, run_jobs
from bert_tf.data.layout import Layout
from bert_tf.data.preparation import divide, split_files


@dataclasses.dataclass(frozen=True)
class _Part:
    path: str
    ranges: Sequence[Range]
    lowercase: bool


def _count_part(part: _Part) -> list[dict[str, int]]:
    paragraphs = itertools.chain.from_iterable(read_paragraphs(part.ranges))
    return list(text.count_words(paragraphs, part.lowercase))


def count_words(
    layouts: Mapping[str, Layout], lowercase: bool, output: str, options: JobOptions
) -> text.WordCounts:
    """Returns the counts of all words in text files.

    Args:
        layouts: The layouts of the files by path.
        lowercase: See `text.count_words`.
        output: The file that depends on the words. Hidden files beside it have the
            counts of the parts. A rerun uses those of finished parts again;
            `remove_counts` removes them.
        options: Where the jobs run.

    Raises:
        ValueError, OSError: A file is malformed or cannot be read; see `run_jobs`.
    """
    state = repr(([(x, *storage.stat(x[0])) for x in layouts.items()], lowercase))
    digest = hashlib.sha256(state.encode()).hexdigest()[:12]
    parts = [
        _Part(f"{_prefix(output)}{digest}-{index:05d}", ranges, lowercase)
        for index, ranges in enumerate(divide(split_files(layouts)))
    ]
    total = text.WordCounts(collections.Counter(), collections.Counter())
    for counts in run_jobs(_count_part, parts, options):
        total.update(counts)
    return total


def remove_counts(output: str) -> None:
    """Removes the files that `count_words` wrote."""
    for path in storage.glob(f"{_prefix(output)}*.json"):
        storage.remove(path)


def _prefix(output: str) -> str:
    folder, name = os.path.split(output)
    return os.path.join(folder, f".{name}.words-")
