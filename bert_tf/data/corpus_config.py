# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of `python -m bert_tf.corpus`."""

from __future__ import annotations

import dataclasses

from bert_tf import cli
from bert_tf.data.documents import DOCUMENT_SEPARATORS
from bert_tf.data.jobs import BEAM_RUNNERS


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(cli.Options):
    """Options of `python -m bert_tf.corpus` and `prepare_corpus`."""

    input: str = cli.option(
        help="Text files or JSON lines: comma-separated globs. UTF-8, also compressed."
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
        choices=DOCUMENT_SEPARATORS,
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
    num_workers: int = cli.option(
        0, help="Processes of 1 GB each; 0 for one per core.", minimum=0, common=True
    )
    runner: str = cli.option(
        "local",
        help="local runs processes on this machine; the others are runners of Apache "
        "Beam, whose machines must see all paths.",
        choices=("local", *BEAM_RUNNERS),
    )
    beam_options: str = cli.option(
        "", help="Flags of Apache Beam, for example '--flink_master=host:8081'."
    )
