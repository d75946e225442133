# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepares text for pre-training: writes records of sentence pairs.

    python -m bert_tf.corpus --input='text/*' --vocabulary=vocab.txt --output=records

Each job takes a part of the text, about 8 MB, and writes one file of records per split:
it tokenizes the documents, draws sentence pairs for next sentence prediction, and packs
them into rows of `--max_sequence_length` unless `--pack=false`. Held-out documents are
the validation split. See `bert_tf.data.documents` for the formats of text and
`bert_tf.data.records` for the records. At the end the command prints warnings about
problems in the text (`bert_tf.data.corpus`).

The records depend on the text, the vocabulary and the options, but not on the number of
workers. Memory does not grow with the text. Rerun the same command to resume after an
interruption.

Paths may be remote, see `bert_tf.storage`. `--runner` runs the same jobs on a cluster,
see `bert_tf.data.jobs`.
"""

from __future__ import annotations

from bert_tf import cli, data
from bert_tf.data import CorpusConfig

_SUMMARY = (
    "{output}: {train_pairs:,} training {unit} and {validation_pairs:,} validation "
    "{unit}. Rows of {max_sequence_length} tokens: {train_rows:,} and "
    "{validation_rows:,}, with {padding_share:.1%} padding "
    "({padding_share_unpacked:.1%} without packing). Text: {documents:,} documents "
    "with {sentences:,} sentences and {tokens:,} tokens, {unknown_share:.2%} [UNK]. "
    "Took {seconds:.0f} s."
)


def main(options: CorpusConfig) -> None:
    """Writes records and prints a summary."""
    manifest = data.prepare_corpus(options)
    unit = "pairs" if options.next_sentence_prediction else "segments"
    print(_SUMMARY.format(output=options.output, unit=unit, **manifest))


if __name__ == "__main__":
    cli.run(main, CorpusConfig)
