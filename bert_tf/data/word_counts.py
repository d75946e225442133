# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts the words of text files, in parts, on this machine or a cluster."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Sequence

from bert_tf import text
from bert_tf.data.documents import TextRange, group_parts, read_paragraphs
from bert_tf.data.jobs import JobOptions, run_jobs


def count_words(
    texts: Sequence[TextRange], lowercase: bool, prefix: str, options: JobOptions
) -> text.WordCounts:
    """Returns the counts of all words in text files.

    Args:
        texts: The files.
        lowercase: See `text.count_words`.
        prefix: Beginning of the paths of files with the counts of the parts. A rerun
            uses those of finished parts again; `remove_results` removes them.
        options: Where the jobs run.

    Raises:
        ValueError, OSError: A file is malformed or cannot be read; see `run_jobs`.
    """
    digest = hashlib.sha256(repr((texts, lowercase)).encode()).hexdigest()[:12]
    count = functools.partial(_count_part, lowercase)
    total = text.count_words(())
    for counts in run_jobs(count, group_parts(texts), f"{prefix}{digest}-", options):
        total.update(counts)
    return total


def _count_part(lowercase: bool, part: Sequence[TextRange]) -> list[dict[str, int]]:
    paragraphs = itertools.chain.from_iterable(read_paragraphs(part))
    return list(text.count_words(paragraphs, lowercase))
