# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepares text for pre-training: writes records of sentence pairs.

    python -m bert_tf.corpus --input='text/*' --vocabulary=vocab.txt --output=records

1. Tokenizes the text files into a token store (`bert_tf.data.token_store`). See
   `bert_tf.data.documents` for the formats of text.
2. Prints statistics of the text, and warnings about problems (`bert_tf.data.lint`).
3. Draws sentence pairs for next sentence prediction, packs them into rows of
   `--max_sequence_length` unless `--pack=false`, and writes them in random order
   (`bert_tf.data.records`). Held-out documents are the validation split.

The records depend on the text, the vocabulary and the options, but not on the number of
workers. Peak memory is about 40 bytes per document plus the longest document of each
worker. Rerun the same command to resume after an interruption.

To write records of another length without tokenizing again, pass the same
`--token_store` to both commands. By default it is `tokens/` in the output directory and
can be removed afterwards.

Paths may be remote, see `bert_tf.storage`. `--runner` runs the same jobs on a cluster,
see `bert_tf.data.jobs`.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf import cli, data, storage
from bert_tf.text import Vocabulary

_TOKENS_PER_SHARD = 4_000_000
_MAX_SHARDS = 256
_FEW_DOCUMENTS = 20  # Only with fewer can validation have no documents.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(cli.Options):
    """Options of `python -m bert_tf.corpus`."""

    input: str = cli.option(
        help="Text files: comma-separated globs. UTF-8, optionally gzip."
    )
    vocabulary: str = cli.option(help="WordPiece vocabulary, one token per line.")
    output: str = cli.option(help="Directory for the records and manifest.json.")
    lowercase: bool = cli.option(
        True, help="Lowercase and strip accents (an uncased vocabulary).", common=True
    )
    document_separator: str = cli.option(
        "auto",
        help="What separates documents: WikiExtractor's <doc> tags (doc_tag), blank "
        "lines, or files. auto detects it for each file.",
        choices=data.DOCUMENT_SEPARATORS,
        common=True,
    )
    max_sequence_length: int = cli.option(
        128, help="Tokens per row, including special tokens.", minimum=8, common=True
    )
    short_sequence_probability: float = cli.option(
        0.1, help="Probability of a random shorter pair.", minimum=0, maximum=1
    )
    pack: bool = cli.option(
        True, help="Pack several pairs into a row; attention does not cross pairs."
    )
    held_out_share: float = cli.option(
        0.01, help="Share of validation documents.", minimum=0, maximum=0.5, common=True
    )
    seed: int = cli.option(0, help="Seed of all random choices.", minimum=0)
    num_shards: int = cli.option(
        0, help="Number of training files; 0 for one per 4M tokens.", minimum=0
    )
    token_store: str = cli.option(
        "",
        help="Directory of the tokenized text; 1/3 to 1/2 of the size of the text. "
        "A remote directory is copied to each machine. Default: tokens/ in --output.",
    )
    num_workers: int = cli.option(
        0, help="Processes of 1 GB each; 0 for one per core.", minimum=0, common=True
    )
    runner: str = cli.option(
        "local",
        help="local runs processes on this machine; the others are runners of Apache "
        "Beam, whose machines must see all paths.",
        choices=("local", *data.BEAM_RUNNERS),
    )
    beam_options: str = cli.option(
        "", help="Flags of Apache Beam, for example '--flink_master=host:8081'."
    )


# --- The command -----------------------------------------------------------------


def main(options: CorpusConfig) -> None:
    """Writes records and their manifest.

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
    store = options.token_store or os.path.join(output, "tokens")
    settings = _settings(options, files, vocabulary)
    data.claim_directory(output, "output", settings, results=["*.tfrecord"])
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return
    with _workers(options) as workers:
        summary = data.build_token_store(
            store,
            files,
            separator=options.document_separator,
            vocabulary=vocabulary,
            lowercase=options.lowercase,
            workers=workers,
        )
        split_sizes = _split_sizes(summary, options)
        report = data.lint.report(store, vocabulary)
        warnings = data.lint.warnings(report)
        print(data.lint.table(report))
        for warning in warnings:
            print(f"warning: {warning}")
        shards = _shards(options, store, vocabulary, summary, split_sizes)
        counts = workers.run(
            data.write_shard,
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
    print(_last_line(manifest, output, num_files=len(shards)))


def _workers(options: CorpusConfig) -> data.Workers | data.BeamWorkers:
    if options.runner == "local":
        return data.Workers(options.num_workers)
    return data.BeamWorkers(options.runner, options.beam_options)


def _settings(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, object]:
    """Returns everything that determines the records."""
    settings = options.to_dict()
    for name in ("output", "token_store", "num_workers", "runner", "beam_options"):
        del settings[name]
    settings["input"] = data.describe_files(files)
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
    store: str,
    vocabulary: Vocabulary,
    summary: dict[str, Any],
    split_sizes: dict[str, int],
) -> list[data.Shard]:
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
            shard = data.Shard(
                path=os.path.join(options.output, name),
                split=split,
                index=i,
                num_shards=num_shards,
                held_out=split_sizes["validation"],
                store=store,
                cls_id=vocabulary.cls_id,
                sep_id=vocabulary.sep_id,
                seed=options.seed,
                max_sequence_length=options.max_sequence_length,
                short_sequence_probability=options.short_sequence_probability,
                pack=options.pack,
            )
            shards.append(shard)
    return shards


def _manifest(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    summary: dict[str, Any],
    shards: Sequence[data.Shard],
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
        "pairs_per_row": max(count["pairs_per_row"] for count in counts),
        "random_next_share": both["random_next"] / both["pairs"],
        "padding_share": 1 - both["tokens"] / (both["rows"] * length),
        "padding_share_unpacked": 1 - both["tokens"] / (both["pairs"] * length),
        "max_sequence_length": length,
        "lowercase": options.lowercase,
        "vocabulary_fingerprint": vocabulary.fingerprint,
    }


def _last_line(manifest: dict[str, Any], output: str, num_files: int) -> str:
    return (
        "{output}: {num_files} files with {train_pairs:,} training pairs and "
        "{validation_pairs:,} validation pairs, {random_next_share:.1%} of them "
        "random. Rows of {max_sequence_length} tokens: {train_rows:,} and "
        "{validation_rows:,}, with {padding_share:.1%} padding "
        "({padding_share_unpacked:.1%} without packing). Text: {documents:,} documents "
        "with {tokens:,} tokens, {unknown_share:.2%} [UNK]. Took {seconds:.0f} s."
    ).format(output=output, num_files=num_files, **manifest)


if __name__ == "__main__":
    cli.run(main, CorpusConfig)
