# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a directory of records: from text files to `manifest.json`."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf import storage
from bert_tf.data import lint
from bert_tf.data.corpus_config import CorpusConfig
from bert_tf.data.jobs import BeamWorkers, Workers, claim_directory
from bert_tf.data.records import Shard, write_shard
from bert_tf.data.token_store import build_token_store, describe_files
from bert_tf.text import Vocabulary

_TOKENS_PER_SHARD = 4_000_000
_MAX_SHARDS = 256
_FEW_DOCUMENTS = 20  # Only with fewer can validation have no documents.


def prepare_corpus(options: CorpusConfig) -> dict[str, Any]:
    """Tokenizes text, reports problems in it, and writes records; resumes.

    Returns:
        The manifest.

    Raises:
        ValueError: No file matches, a file is not UTF-8, the text has fewer than two
            documents, the vocabulary is invalid, or a directory holds other results.
        OSError: A file cannot be read or written, or a worker process was killed.
    """
    started = time.monotonic()
    files = storage.expand_globs(options.input)
    vocabulary = Vocabulary.from_file(options.vocabulary)
    output = options.output
    manifest_path = os.path.join(output, "manifest.json")
    settings = _settings(options, files, vocabulary)
    claim_directory(output, "output", settings, results=["*.tfrecord"])
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return storage.read_json(manifest_path)
    with _workers(options) as workers:
        summary = build_token_store(options, files, vocabulary, workers)
        split_sizes = _split_sizes(summary, options)
        report = lint.report(options.store, vocabulary)
        warnings = lint.warnings(report)
        print(lint.table(report))
        for warning in warnings:
            print(f"warning: {warning}")
        shards = _shards(options, vocabulary, summary, split_sizes)
        counts = workers.run(
            write_shard,
            shards,
            [split_sizes[shard.split] / shard.num_shards for shard in shards],
            description="Writing records",
            unit=" documents",
        )
    manifest = _manifest(options, vocabulary, summary, shards, counts)
    seconds = round(time.monotonic() - started, 1)
    manifest |= {"warnings": warnings, "most_repeated": report["most_repeated"]}
    manifest |= {"sources": report["sources"], "seconds": seconds}
    vocabulary.write(os.path.join(output, "vocab.txt"))
    storage.write_json(manifest_path, manifest)
    for pattern in ("*.tfrecord.json", f"{storage.TEMPORARY_PREFIX}*"):
        for path in storage.glob(os.path.join(output, pattern)):
            storage.remove(path)
    return manifest


def _workers(options: CorpusConfig) -> Workers:
    if options.runner == "local":
        return Workers(options.num_workers)
    return BeamWorkers(options.runner, options.beam_options)


def _settings(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, object]:
    """Returns everything that determines the records."""
    settings = options.to_dict()
    for name in ("output", "token_store", "num_workers", "runner", "beam_options"):
        del settings[name]
    settings["input"] = describe_files(files)
    settings["vocabulary"] = vocabulary.fingerprint
    return settings


def _split_sizes(summary: dict[str, Any], options: CorpusConfig) -> dict[str, int]:
    """Returns the number of documents for training and validation.

    Random second segments come from another document of the same split. So a split
    needs two documents, unless it is empty.

    Raises:
        ValueError: The text has too few documents.
    """
    total = summary["documents"]
    if total < 2:
        raise ValueError(
            "Next sentence prediction requires at least two documents. "
            f"Got {total} in {len(summary['sources'])} files (input={options.input!r}, "
            f"document_separator={options.document_separator!r}). Add text, or select "
            "another separator, for example --document_separator=blank_line."
        )
    held_out = min(round(options.held_out_share * total), total - 2)
    if held_out < 2 and options.held_out_share:
        held_out = 2 if total >= _FEW_DOCUMENTS else 0
        if not held_out:
            logging.warning(
                "No documents are held out for validation, because there are only %d.",
                total,
            )
    return {"train": total - held_out, "validation": held_out}


def _shards(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    summary: dict[str, Any],
    split_sizes: dict[str, int],
) -> list[Shard]:
    """Returns the jobs that write the records."""
    shards = []
    for split, size in split_sizes.items():
        tokens = summary["tokens"] * size // summary["documents"]
        num_shards = min(1 + tokens // _TOKENS_PER_SHARD, _MAX_SHARDS)
        if split == "train" and options.num_shards:
            num_shards = options.num_shards
        num_shards = min(num_shards, size)
        for i in range(num_shards):
            name = f"{split}-{i:05d}-of-{num_shards:05d}.tfrecord"
            shard = Shard(
                path=os.path.join(options.output, name),
                split=split,
                index=i,
                num_shards=num_shards,
                held_out=split_sizes["validation"],
                cls_id=vocabulary.cls_id,
                sep_id=vocabulary.sep_id,
                options=options,
            )
            shards.append(shard)
    return shards


def _manifest(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    summary: dict[str, Any],
    shards: Sequence[Shard],
    counts: Sequence[dict[str, int]],
) -> dict[str, Any]:
    """Returns the statistics of the records and the settings that readers need."""
    splits = {"train": collections.Counter(), "validation": collections.Counter()}
    for shard, count in zip(shards, counts, strict=True):
        splits[shard.split].update(count)
    both = splits["train"] + splits["validation"]
    length = options.max_sequence_length
    return {
        "documents": summary["documents"],
        "sentences": summary["sentences"],
        "tokens": summary["tokens"],
        "unknown_share": summary["unknown"] / summary["tokens"],
        **{
            f"{split}_{name}": count[name]
            for split, count in splits.items()
            for name in ("documents", "pairs", "rows")
        },
        # Sizes in bytes, to find damaged files.
        "record_files": {
            os.path.basename(shard.path): storage.stat(shard.path)[0]
            for shard in shards
        },
        "pairs_per_row": max(count["pairs_per_row"] for count in counts),
        "random_next_share": both["random_next"] / both["pairs"],
        "padding_share": 1 - both["tokens"] / (both["rows"] * length),
        "padding_share_unpacked": 1 - both["tokens"] / (both["pairs"] * length),
        "max_sequence_length": length,
        "lowercase": options.lowercase,
        "vocabulary_fingerprint": vocabulary.fingerprint,
    }
