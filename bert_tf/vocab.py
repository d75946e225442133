# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learns a WordPiece vocabulary from text files.

    python -m bert_tf.vocab --input='text/*' --output=vocab.txt

Input: UTF-8 text files, see `bert_tf.data.documents`. Output: `vocab.txt` with one
token per line: [PAD] [UNK] [CLS] [SEP] [MASK]; the most frequent characters, in at most
half of the lines; word pieces by decreasing frequency; and if there is room, further
characters. The prefix "##" marks pieces that continue a word. A token's zero-based line
number is its id. The same text always gives the same vocabulary.

The words of each part of the text, about 8 MB, are counted by a job: on all cores, or
with `--runner` on a cluster, see `bert_tf.data.jobs`. Memory grows with the number of
distinct words only. Rerun the same command to resume after an interruption.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import time

from bert_tf import cli, data, storage, text


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig(data.TextConfig, data.JobOptions):
    """Flags of `python -m bert_tf.vocab`."""

    output: str = cli.option(help="File to write, for example vocab.txt.")
    vocabulary_size: int = cli.option(
        30522,
        help="Number of tokens. The original uncased BERT has 30522.",
        minimum=10,
        common=True,
    )


def main(options: VocabularyConfig) -> None:
    """Learns a vocabulary and writes it.

    Raises:
        ValueError: `input` matches no file or contains no words, a file is not UTF-8,
            or `output` exists.
    """
    output = options.output
    if storage.exists(output):
        raise ValueError(
            f"--output={output} exists. Models trained with a vocabulary depend on its "
            "exact contents: delete the file or choose another path."
        )
    texts = data.list_texts(options)
    print(data.preview(texts))
    folder, name = os.path.split(output)
    if not name:
        raise ValueError(f"--output must be a file, not a folder. Received: {output}")
    storage.make_directory(folder or ".")
    start = time.monotonic()
    prefix = os.path.join(folder, f".{name}.words-")
    state = hashlib.sha256(repr((texts, options.lowercase)).encode()).hexdigest()[:12]
    count = functools.partial(data.count_part, options.lowercase)
    jobs = data.group_parts(texts)
    parts = data.run_jobs(count, jobs, f"{prefix}{state}-", options)
    counts = text.WordCounts.total(parts)
    vocabulary = text.learn_vocabulary(counts, options.vocabulary_size)
    vocabulary.write(output)
    data.remove_results(prefix)
    megabytes = sum(file.size for file in texts) / 1e6
    print(
        f"{output}: {vocabulary.size:,} tokens from {megabytes:.1f} MB of text in "
        f"{time.monotonic() - start:.0f} s."
    )
    if vocabulary.size < options.vocabulary_size:
        print(
            f"The text is too small for --vocabulary_size={options.vocabulary_size}: "
            "no other word piece occurs twice."
        )


if __name__ == "__main__":
    cli.run(main, VocabularyConfig)
