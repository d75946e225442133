# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a directory of records: from text files to `manifest.json`.

The parts of the text are independent jobs, see `bert_tf.data.jobs`. So the same command
resumes after an interruption.
"""

from __future__ import annotations

import collections
import hashlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from bert_tf import storage
from bert_tf.data import documents
from bert_tf.data.jobs import run_jobs
from bert_tf.data.records import CorpusConfig, Part, text_warnings, write_part
from bert_tf.text import Vocabulary, guess_lowercase

_PART_BYTES = 1 << 23  # Text per job.
# Scripts of South and Southeast Asia, and kana: their vowel signs count as accents.
_MARKED = re.compile("[\u0900-\u109f\u1780-\u17ff\u3040-\u30ff]")


def prepare_corpus(options: CorpusConfig) -> dict[str, Any]:
    """Writes records of text files and reports problems in the text; resumes.

    Returns:
        The manifest.

    Raises:
        ValueError: No file matches, a file is not UTF-8, the text has fewer than two
            documents, the vocabulary is invalid or does not fit `lowercase`, or the
            directory holds other results or is in use by another process.
        OSError: A file cannot be read or written, or a worker process was killed.
    """
    files = storage.expand_globs(options.input)
    vocabulary = Vocabulary.from_file(options.vocabulary)
    _ = vocabulary.mask_id  # Raises ValueError if there is none.
    _check_casing(options, vocabulary)
    storage.make_directory(options.output)
    with storage.exclusive(options.output):
        return _prepare(options, files, vocabulary)


def _prepare(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Writes records in a directory that no other process writes to."""
    started = time.monotonic()
    output = options.output
    manifest_path = os.path.join(output, "manifest.json")
    settings = _settings(options, files, vocabulary)
    settings_path = os.path.join(output, "settings.json")
    if storage.exists(settings_path):
        storage.check_unchanged(output, storage.read_json(settings_path), settings)
    storage.write_json(settings_path, settings)
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return storage.read_json(manifest_path)
    vocabulary.write(os.path.join(output, "vocab.txt"))
    results = list(run_jobs(write_part, _parts(options, files), options))
    manifest = _manifest(options, vocabulary, files, results)
    manifest["seconds"] = round(time.monotonic() - started, 1)
    for warning in manifest["warnings"]:
        print(f"warning: {warning}")
    storage.write_json(manifest_path, manifest)
    for pattern in ("part-*.json", f"{storage.TEMPORARY_PREFIX}*"):
        for path in storage.glob(pattern, output):
            storage.remove(path)
    return manifest


def _check_casing(options: CorpusConfig, vocabulary: Vocabulary) -> None:
    """Prints how the text is normalized and why, and whether that loses letters.

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
    marked = len(_MARKED.findall("".join(vocabulary.tokens)))
    if options.lowercase and marked > vocabulary.size / 10:
        print("warning: --lowercase strips vowel signs, too. Pass --lowercase=false.")


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


def divide(files: Sequence[str], separator: str) -> list[list[tuple[str, int, int]]]:
    """Divides a text into parts of about `_PART_BYTES`, lists of (path, start, end)."""
    groups: list[list[tuple[str, int, int]]] = []
    size = _PART_BYTES
    for path in files:
        length, _ = storage.stat(path)
        for start, end in documents.byte_ranges(path, _PART_BYTES, separator):
            if size >= _PART_BYTES:
                groups.append([])
                size = 0
            groups[-1].append((path, start, end))
            size += min(end, length) - start
    return groups


def _parts(options: CorpusConfig, files: Sequence[str]) -> list[Part]:
    groups = divide(files, options.document_separator)
    prefix = os.path.join(options.output, "part-")
    return [
        Part(f"{prefix}{index:05d}", index, len(groups), ranges, options)
        for index, ranges in enumerate(groups)
    ]


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
    splits = {"train": collections.Counter(), "validation": collections.Counter()}
    record_files: dict[str, int] = {}
    for result in results:
        record_files |= result["files"]  # Sizes in bytes, to find damaged files.
        for split, counts in result["splits"].items():
            splits[split].update(counts)
    total = splits["train"] + splits["validation"]
    if total["documents"] < 2:
        raise ValueError(
            "Next sentence prediction requires at least two documents. "
            f"Got {total['documents']} in {len(files)} files (input={options.input!r}, "
            f"document_separator={options.document_separator!r}). Remove "
            f"{options.output}, and add text or pass --document_separator=blank_line."
        )
    warnings, length = text_warnings(total), options.max_sequence_length
    if options.held_out_share and not splits["validation"]["rows"]:
        reason = f"because there are only {total['documents']}"
        warnings.append(f"No documents are held out for validation, {reason}.")
    return {
        "documents": total["documents"],
        "tokens": total["tokens"],
        "unknown_share": total["unknown"] / total["tokens"],
        **{
            f"{split}_{name}": counts[name]
            for split, counts in splits.items()
            for name in ("documents", "pairs", "rows")
        },
        "record_files": record_files,
        "pairs_per_row": max(result["pairs_per_row"] for result in results),
        "padding_share": 1 - total["used"] / (total["rows"] * length),
        "padding_share_unpacked": 1 - total["used"] / (total["pairs"] * length),
        "max_sequence_length": length,
        "lowercase": options.lowercase,
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "warnings": warnings,
    }
