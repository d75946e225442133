# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a directory of records: from text files to `manifest.json`."""

from __future__ import annotations

import collections
import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf import storage
from bert_tf.data import documents, jobs, lint
from bert_tf.data.corpus_config import CorpusConfig
from bert_tf.data.records import Part, write_part
from bert_tf.text import Vocabulary, guess_lowercase

_PART_BYTES = 1 << 23  # Text per job.


def prepare_corpus(options: CorpusConfig) -> dict[str, Any]:
    """Writes records of text files and reports problems in the text; resumes.

    Returns:
        The manifest.

    Raises:
        ValueError: No file matches, a file is not UTF-8, the text has fewer than two
            documents, the vocabulary is invalid or does not fit `lowercase`, or the
            directory holds other results.
        OSError: A file cannot be read or written, or a worker process was killed.
    """
    started = time.monotonic()
    files = storage.expand_globs(options.input)
    vocabulary = Vocabulary.from_file(options.vocabulary)
    _check_casing(options, vocabulary)
    output = options.output
    manifest_path = os.path.join(output, "manifest.json")
    _claim_directory(output, _settings(options, files, vocabulary))
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return storage.read_json(manifest_path)
    vocabulary.write(os.path.join(output, "vocab.txt"))
    parts, sizes = _parts(options, files)
    if options.runner == "local":
        results = jobs.run_jobs(write_part, parts, sizes, options.num_workers)
    else:
        beam = (options.runner, options.beam_options)
        results = jobs.run_jobs_with_beam(write_part, parts, *beam)
    manifest = _manifest(options, vocabulary, files, results)
    manifest["seconds"] = round(time.monotonic() - started, 1)
    for warning in manifest["warnings"]:
        print(f"warning: {warning}")
    storage.write_json(manifest_path, manifest)
    for pattern in ("part-*.json", f"{storage.TEMPORARY_PREFIX}*"):
        for path in storage.glob(os.path.join(output, pattern)):
            storage.remove(path)
    return manifest


def _check_casing(options: CorpusConfig, vocabulary: Vocabulary) -> None:
    """Prints how the text is normalized and why.

    Raises:
        ValueError: Lowercasing would lose tokens of the vocabulary.
    """
    is_uncased, reason = guess_lowercase(vocabulary)
    if options.lowercase and not is_uncased:
        raise ValueError(
            f"--lowercase does not fit --vocabulary={options.vocabulary}. {reason} "
            "Pass --lowercase=false to keep case and accents, or learn a vocabulary "
            "with the same --lowercase."
        )
    kept = "lowercased, without accents" if options.lowercase else "not lowercased"
    print(f"The text is {kept} (--lowercase={options.lowercase}). {reason}")


def _settings(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, object]:
    """Returns everything that determines the records."""
    settings = options.to_dict()
    for name in ("output", "num_workers", "runner", "beam_options"):
        del settings[name]
    stats = [(path, *storage.stat(path)) for path in files]
    digest = hashlib.sha256(repr(stats).encode()).hexdigest()
    total = sum(size for _, size, _ in stats)
    settings["input"] = f"{len(files)} files, {total:,} bytes, state {digest[:12]}"
    settings["vocabulary"] = vocabulary.fingerprint
    return settings


def _claim_directory(directory: str, settings: dict[str, Any]) -> None:
    """Creates a directory and its `settings.json`, or checks an existing one.

    Raises:
        ValueError: The directory holds records of different or unknown settings.
    """
    path = os.path.join(directory, "settings.json")
    found = storage.glob(os.path.join(directory, "*.tfrecord"))
    remedy = "Use another --output or remove the directory."
    if found and not storage.exists(path):
        raise ValueError(f"{found[0]} exists, but no settings.json. {remedy}")
    previous = storage.read_json(path) if found else settings
    for name, value in settings.items():
        if previous.get(name) != value:
            raise ValueError(
                f"{directory} holds results of other settings: {name} was "
                f"{previous.get(name)!r}, now {value!r}. {remedy}"
            )
    storage.make_directory(directory)
    storage.write_json(path, settings)


def _parts(options: CorpusConfig, files: Sequence[str]) -> tuple[list[Part], list[int]]:
    """Divides the text into parts of about `_PART_BYTES`; returns their sizes, too."""
    ranges, starts = [], [0]
    for path in files:
        size, _ = storage.stat(path)
        for start, end in documents.byte_ranges(
            path, _PART_BYTES, options.document_separator
        ):
            ranges.append((path, start, end))
            starts.append(starts[-1] + min(end, size) - start)
    total = starts[-1]
    num_parts = max(1, round(total / _PART_BYTES))
    groups: dict[int, list[int]] = {}
    for i, start in enumerate(starts[:-1]):
        groups.setdefault(start * num_parts // max(1, total), []).append(i)
    parts, sizes = [], []
    for index, group in enumerate(groups.values()):
        path = os.path.join(options.output, f"part-{index:05d}")
        chosen = [ranges[i] for i in group]
        parts.append(Part(path, index, len(groups), chosen, options))
        sizes.append(starts[group[-1] + 1] - starts[group[0]])
    return parts, sizes


def _manifest(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    files: Sequence[str],
    results: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Returns the statistics of the records and the settings that readers need.

    Raises:
        ValueError: The text has too few documents.
    """
    report = lint.merge(result["lint"] for result in results)
    total = lint.total(report)
    if total["documents"] < 2:
        raise ValueError(
            "Next sentence prediction requires at least two documents. "
            f"Got {total['documents']} in {len(files)} files (input={options.input!r}, "
            f"document_separator={options.document_separator!r}). Add text, or select "
            "another separator, for example --document_separator=blank_line."
        )
    splits = {"train": collections.Counter(), "validation": collections.Counter()}
    record_files: dict[str, int] = {}
    for result in results:
        record_files |= result["files"]  # Sizes in bytes, to find damaged files.
        for split, counts in result["splits"].items():
            splits[split].update(counts)
    if options.held_out_share and not splits["validation"]["rows"]:
        logging.warning(
            "No documents are held out for validation, because there are only %d.",
            total["documents"],
        )
    both = splits["train"] + splits["validation"]
    length = options.max_sequence_length
    return {
        "documents": total["documents"],
        "sentences": total["sentences"],
        "tokens": total["tokens"],
        "unknown_share": total["unknown"] / total["tokens"],
        **{
            f"{split}_{name}": counts[name]
            for split, counts in splits.items()
            for name in ("documents", "pairs", "rows")
        },
        "record_files": record_files,
        "pairs_per_row": max(result["pairs_per_row"] for result in results),
        "random_next_share": both["random_next"] / both["pairs"],
        "padding_share": 1 - both["tokens"] / (both["rows"] * length),
        "padding_share_unpacked": 1 - both["tokens"] / (both["pairs"] * length),
        "max_sequence_length": length,
        "lowercase": options.lowercase,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "warnings": lint.warnings(report, files),
        "sources": report["sources"],
    }
