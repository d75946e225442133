# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Documents in, sentence pairs for next sentence prediction out.

    python -m bert_tf.corpus --input='text/*' --vocabulary=vocab.txt --output=records

What `--input` may hold: see `bert_tf.documents`. The text is tokenised into a
`TokenStore` first. From that, `pairs.draw_pairs` makes the pairs of each document, and
the pairs of all documents, in random order, become `train-*.tfrecord` and, from
documents held out of training, `validation-*.tfrecord`. A record is a
`tf.train.Example` of one row, neither masked nor padded: a pair, or as many as fit
into `--max_sequence_length`, as `--pack` says. It has, int64, one value for each pair,

* `pair_length`: tokens in [CLS] first segment [SEP] second segment [SEP]
* `first_segment_length`: tokens in [CLS] first segment [SEP]
* `is_random_next`: 1 if the second segment is from another document, 0 if it
  continues the first

and `token_ids` of the pairs, one after the other.

Beside them are a copy of the vocabulary, `vocab.txt`, and, written last,
`manifest.json`, which says what the records hold. They depend on the text, the
vocabulary and the options only, not on the number of workers. Memory does not grow with
the text, but for some 40 bytes per document, and the longest document is held whole.
After an interruption the same command goes on where it stopped. Records of another
length come from the same text without tokenising it again: give both commands the same
`--token_store`. Where none is given it is `tokens/` in the output, and may be removed.

All paths may be remote, see `bert_tf.storage`. With `--runner` the same work is done on
the machines of an engine, see `bert_tf.beam`.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert_tf import cli, storage
from bert_tf.data import beam, documents, jobs, lint, token_store
from bert_tf.data.records import Shard, write_shard
from bert_tf.text.vocabulary import Vocabulary

_TOKENS_PER_SHARD = 4_000_000
_MAX_SHARDS = 256
_FEW_DOCUMENTS = 20  # With fewer, none is held out unless `held_out_share` says so.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(cli.Options):
    """Options of `python -m bert_tf.corpus`."""

    input: str = cli.option(
        help="Text files: comma-separated globs. UTF-8, gzip allowed."
    )
    vocabulary: str = cli.option(help="WordPiece vocabulary, one token per line.")
    output: str = cli.option(help="Directory for the records and manifest.json.")
    lowercase: bool = cli.option(
        True,
        help="Lower-case and strip accents, as an uncased vocabulary needs.",
        common=True,
    )
    document_separator: str = cli.option(
        "auto",
        help="What separates documents: WikiExtractor's <doc>, a blank line, or that "
        "each file is one; auto recognises it file by file.",
        choices=documents.SEPARATORS,
        common=True,
    )
    max_sequence_length: int = cli.option(
        128,
        help="Most tokens in a record, special ones included.",
        minimum=8,
        common=True,
    )
    short_sequence_probability: float = cli.option(
        0.1, help="Share of pairs that aim at a shorter length.", minimum=0, maximum=1
    )
    pack: bool = cli.option(
        True, help="Put short pairs together in a record; training keeps them apart."
    )
    held_out_share: float = cli.option(
        0.01,
        help="Share of documents kept for validation.",
        minimum=0,
        maximum=0.5,
        common=True,
    )
    seed: int = cli.option(0, help="Seed of every random choice.", minimum=0)
    num_shards: int = cli.option(
        0, help="Number of training files; 0 takes one per 4M tokens.", minimum=0
    )
    token_store: str = cli.option(
        "",
        help="Directory of the tokenised text, a third to a half of the text's size. "
        "Best local; a remote one is copied to each machine. Default: tokens/ in "
        "--output.",
    )
    num_workers: int = cli.option(
        0,
        help="Number of processes on this machine; 0 takes one per core. Each needs "
        "about 1 GB of memory, however much text there is.",
        minimum=0,
        common=True,
    )
    runner: str = cli.option(
        "local",
        help="Where to work: processes of this machine, or an engine of Apache Beam, "
        "whose machines must see all paths.",
        choices=("local", *beam.RUNNERS),
    )
    beam_options: str = cli.option(
        "", help="Flags for Apache Beam, for example '--flink_master=host:8081'."
    )


# --- The command -----------------------------------------------------------------


def main(options: CorpusConfig) -> None:
    """Makes records and their manifest.

    Raises:
        ValueError: The corpus is missing, empty, not UTF-8 or a single document; the
            vocabulary is not usable; or a directory holds other work.
        OSError: A file can't be read or written, or a process was killed.
    """
    started = time.monotonic()
    files = storage.expand_globs(options.input)
    vocabulary = Vocabulary.from_file(options.vocabulary)
    output = options.output
    store_directory = options.token_store or os.path.join(output, "tokens")
    settings = _settings(options, files, vocabulary)
    jobs.claim(output, "output", settings, results=["*.tfrecord"])
    if storage.exists(os.path.join(output, "manifest.json")):
        print(f"{output} is complete already: there is nothing to do.")
        return
    with _workers(options) as workers:
        summary = token_store.build(
            store_directory,
            files,
            separator=options.document_separator,
            vocabulary=vocabulary,
            lowercase=options.lowercase,
            workers=workers,
        )
        split_sizes = _split_sizes(summary, options)
        report = lint.report(store_directory, vocabulary, workers)
        found = lint.warnings(report)
        print(lint.table(report))
        for warning in found:
            print(f"warning: {warning}")
        shards = [
            Shard(
                path=os.path.join(
                    output, f"{split}-{i:05d}-of-{num_shards:05d}.tfrecord"
                ),
                split=split,
                index=i,
                num_shards=num_shards,
                held_out=split_sizes["validation"],
                store=store_directory,
                cls_id=vocabulary.cls_id,
                sep_id=vocabulary.sep_id,
                seed=options.seed,
                max_sequence_length=options.max_sequence_length,
                short_sequence_probability=options.short_sequence_probability,
                pack=options.pack,
            )
            for split, size in split_sizes.items()
            for num_shards in [_num_shards(split, size, summary, options)]
            for i in range(num_shards)
        ]
        counts = workers.run(
            write_shard,
            shards,
            [split_sizes[shard.split] / shard.num_shards for shard in shards],
            description="Drawing pairs",
            unit=" documents",
        )
    manifest = _manifest(options, vocabulary, summary, shards, counts)
    manifest["warnings"] = found
    manifest["most_repeated"] = report["most_repeated"]
    manifest["sources"] = report["sources"]
    manifest["seconds"] = round(time.monotonic() - started, 1)
    vocabulary.write(os.path.join(output, "vocab.txt"))
    storage.write_json(os.path.join(output, "manifest.json"), manifest)
    of_jobs = [shard.path + ".json" for shard in shards]
    of_killed_jobs = storage.glob(os.path.join(output, f"{storage.TEMPORARY_PREFIX}*"))
    for path in of_jobs + of_killed_jobs:
        storage.remove(path)
    print(_last_line(manifest, output, num_files=len(shards)))


def _workers(options: CorpusConfig) -> jobs.Workers | beam.Workers:
    if options.runner == "local":
        return jobs.Workers(options.num_workers)
    return beam.Workers(options.runner, options.beam_options)


def _settings(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, object]:
    """Returns what the records depend on."""
    settings = options.to_dict()
    for name in ("output", "token_store", "num_workers", "runner", "beam_options"):
        del settings[name]
    settings["input"] = token_store.describe(files)
    settings["vocabulary"] = vocabulary.fingerprint
    return settings


def _split_sizes(summary: dict[str, Any], options: CorpusConfig) -> dict[str, int]:
    """Returns the number of documents for training and for validation.

    A second segment comes from another document, so a split has two, or none.

    Raises:
        ValueError: The corpus has too few documents.
    """
    total = summary["documents"]
    if total < 2:
        message = (
            f"Next sentence prediction needs at least two documents. Received: {total} "
            f"in {len(summary['sources'])} files (input={options.input!r})."
        )
        if options.document_separator == "auto":
            message += " Do blank lines separate them? --document_separator=blank_line"
        raise ValueError(message)
    held_out = round(options.held_out_share * total)
    if held_out < 2 and options.held_out_share:
        held_out = 2 if total >= _FEW_DOCUMENTS else 0
        if not held_out:
            logging.warning(
                "All %d documents are for training: too few to hold any out.", total
            )
    if total - held_out < 2:
        raise ValueError(
            "At least two documents must be left for training. Received: "
            f"held_out_share={options.held_out_share} of {total} documents"
        )
    return {"train": total - held_out, "validation": held_out}


def _num_shards(
    split: str, size: int, summary: dict[str, Any], options: CorpusConfig
) -> int:
    tokens = summary["tokens"] * size // summary["documents"]
    by_size = min(1 + tokens // _TOKENS_PER_SHARD, _MAX_SHARDS)
    wanted = options.num_shards if split == "train" else 0
    return min(wanted or by_size, size)


def _manifest(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    summary: dict[str, Any],
    shards: Sequence[Shard],
    counts: Sequence[dict[str, int]],
) -> dict[str, Any]:
    """Returns what the records hold, and where it comes from."""

    def total(name: str, *splits: str) -> int:
        return sum(
            count[name]
            for shard, count in zip(shards, counts, strict=True)
            if shard.split in splits
        )

    both = ("train", "validation")
    pairs, tokens = total("pairs", *both), total("tokens", *both)
    length = options.max_sequence_length
    return {
        "documents": summary["documents"],
        "sentences": summary["sentences"],
        "tokens": summary["tokens"],
        "unknown_share": summary["unknown"] / summary["tokens"],
        "train_documents": total("documents", "train"),
        "train_pairs": total("pairs", "train"),
        "train_rows": total("rows", "train"),
        "validation_documents": total("documents", "validation"),
        "validation_pairs": total("pairs", "validation"),
        "validation_rows": total("rows", "validation"),
        "pairs_per_row": max(count["pairs_per_row"] for count in counts),
        "random_next_share": total("random_next", *both) / pairs,
        "padding_share": 1 - tokens / (total("rows", *both) * length),
        "padding_share_unpacked": 1 - tokens / (pairs * length),
        "max_sequence_length": options.max_sequence_length,
        "short_sequence_probability": options.short_sequence_probability,
        "seed": options.seed,
        "lowercase": options.lowercase,
        "vocabulary_size": vocabulary.size,
        "vocabulary_fingerprint": vocabulary.fingerprint,
    }


def _last_line(manifest: dict[str, Any], output: str, num_files: int) -> str:
    return (
        "{output}: {train_pairs:,} pairs for training and {validation_pairs:,} for "
        "validation in {num_files} files, from {documents:,} documents with {tokens:,} "
        "tokens ({unknown_share:.2%} [UNK]); {random_next_share:.1%} random next; "
        "packed into {train_rows:,} and {validation_rows:,} rows of "
        "{max_sequence_length} with {padding_share:.1%} padding instead of "
        "{padding_share_unpacked:.1%}; {seconds:.0f} s."
    ).format(output=output, num_files=num_files, **manifest)


if __name__ == "__main__":
    cli.run(main, CorpusConfig)
