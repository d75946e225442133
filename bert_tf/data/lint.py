# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Warns about problems in text that commonly ruin pre-training.

These are repeated text, a vocabulary for another language, files decoded with a wrong
encoding, and documents too short for next sentence prediction. The training loss shows
them late or never. Repeats are found within a block of documents, see
`documents.read_blocks`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.data.documents import Document
from bert_tf.text import Vocabulary

# Warn if the ratio of two counts exceeds a limit.
_LIMITS = (
    # count, of which, limit, problem
    ("unknown", "tokens", 0.01, "are [UNK]: the vocabulary does not fit"),
    ("garbled", "sentences", 0.01, "contain text like Ã© or â€™: wrong encoding?"),
    ("repeated", "tokens", 0.05, "are in sentences that occurred before"),
    ("one_sentence", "documents", 1 / 3, "have 1 sentence: wrong separator?"),
)

# Control characters, the replacement character, and UTF-8 that was decoded as Latin-1
# or Windows-1252: Ã© for é, â€™ for ’.
_GARBLED = re.compile("[\x80-\x84\x86-\x9f\ufffd]|[\xc2\xc3][\xa0-\xbf]|\xe2\u20ac")


def count(
    documents: Sequence[Document],
    ids: np.ndarray,
    lengths: np.ndarray,
    vocabulary: Vocabulary,
) -> dict[str, int]:
    """Counts documents, sentences and tokens, and those with problems.

    Args:
        documents: The documents.
        ids: Token ids of all sentences, [tokens].
        lengths: Number of tokens of each sentence, [sentences]. A sentence without
            tokens, or a document of such sentences, does not count.
        vocabulary: The vocabulary.
    """
    sentences = list(itertools.chain.from_iterable(documents))
    seen: set[str] = set()
    repeated = 0
    for sentence, size in zip(sentences, lengths.tolist(), strict=True):
        if sentence in seen:
            repeated += size
        seen.add(sentence)
    ends = np.cumsum([len(document) for document in documents])
    sizes = np.diff(np.cumsum(lengths > 0)[ends - 1], prepend=0)  # Of documents.
    return {
        "documents": int(np.count_nonzero(sizes)),
        "sentences": int(sizes.sum()),
        "tokens": len(ids),
        "unknown": int(np.count_nonzero(ids == vocabulary.unk_id)),
        "garbled": sum(map(_is_garbled, sentences)),
        "repeated": repeated,
        "one_sentence": int(np.count_nonzero(sizes == 1)),
    }


def _is_garbled(sentence: str) -> bool:
    return not sentence.isascii() and bool(_GARBLED.search(sentence))


def warnings(counts: Mapping[str, int]) -> list[str]:
    """Returns a message for each kind of problem."""
    return [
        f"{counts[name] / counts[whole]:.1%} of the {whole} {problem}"
        for name, whole, limit, problem in _LIMITS
        if counts[name] > limit * counts[whole]
    ]
