# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The WordPiece vocabulary: read, check, write, and learn from text.

    python -m bert_tf.vocab --input='text/*' --output=vocab.txt

In: text files, as `bert_tf.documents` reads them. Out: `vocab.txt`, one token a line,
a token's id is its place: first [PAD] [UNK] [CLS] [SEP] [MASK], then single characters,
then pieces of words by frequency. "##" begins what continues a word. The same text
gives the same vocabulary.

The pieces are learnt by the trainer of the `tokenizers` library (byte pair encoding:
the most frequent pair of neighbours becomes a piece, again and again), on words that
are normalised and split by BERT's rules, those of `bert_tf.normalization`.
"""

from __future__ import annotations

import dataclasses
import os
import time

from bert_tf import cli, storage
from bert_tf.text.learning import _MIN_FREQUENCY, learn_vocabulary

# --- Command ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig(cli.Options):
    """Flags of `python -m bert_tf.vocab`."""

    input: str = cli.option(
        help="Text files to learn from: glob patterns, separated by commas. UTF-8, "
        "gzip or not; WikiExtractor's tags are not part of the text."
    )
    output: str = cli.option(help="File to write, for example vocab.txt.")
    vocabulary_size: int = cli.option(
        30522, help="Number of tokens. The original uncased BERT has 30522.", minimum=10
    )
    lowercase: bool = cli.option(
        True, help="Lower-case and strip accents: an uncased vocabulary."
    )


def main(options: VocabularyConfig) -> None:
    """Learns a vocabulary and writes it.

    Raises:
        ValueError: `input` matches no file or holds no text, a file is not UTF-8, or
            `output` exists.
    """
    output = options.output
    if storage.exists(output):
        raise ValueError(
            f"--output={output} exists, and what was made with it needs it. Delete it "
            "or name another file."
        )
    paths = storage.expand_globs(options.input)
    storage.make_directory(os.path.dirname(output) or ".")
    start = time.monotonic()
    vocabulary = learn_vocabulary(paths, options.vocabulary_size, options.lowercase)
    vocabulary.write(output)
    megabytes = sum(storage.stat(path)[0] for path in paths) / 1e6
    summary = (
        f"{output}: {vocabulary.size:,} tokens from {megabytes:.1f} MB of text in "
        f"{time.monotonic() - start:.0f} s."
    )
    if vocabulary.size < options.vocabulary_size:
        summary += (
            f" The text has no more pieces that occur {_MIN_FREQUENCY} times; "
            f"--vocabulary_size={options.vocabulary_size} needs more text."
        )
    print(summary)


if __name__ == "__main__":
    cli.run(main, VocabularyConfig)
