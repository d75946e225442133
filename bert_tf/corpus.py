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

from bert_tf import cli, data
from bert_tf.data import CorpusConfig

_SUMMARY = (
    "{output}: {train_pairs:,} training pairs and {validation_pairs:,} validation "
    "pairs, {random_next_share:.1%} of them random. Rows of {max_sequence_length} "
    "tokens: {train_rows:,} and {validation_rows:,}, with {padding_share:.1%} padding "
    "({padding_share_unpacked:.1%} without packing). Text: {documents:,} documents "
    "with {tokens:,} tokens, {unknown_share:.2%} [UNK]. Took {seconds:.0f} s."
)


def main(options: CorpusConfig) -> None:
    """Writes records and prints a summary."""
    manifest = data.prepare_corpus(options)
    print(_SUMMARY.format(output=options.output, **manifest))


if __name__ == "__main__":
    cli.run(main, CorpusConfig)
