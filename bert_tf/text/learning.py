# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Learns a WordPiece vocabulary from text."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tqdm

from bert_tf import storage
from bert_tf.data import documents
from bert_tf.text import normalization
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, UNK, Vocabulary

# --- Learning --------------------------------------------------------------------

# Characters are taken into the vocabulary, the most frequent first, until they cover
# this share of the text. A word with any other is [UNK].
_CHARACTER_COVERAGE = 0.9999

# A pair of pieces that occurs once is no evidence for a piece.
_MIN_FREQUENCY = 2


def learn_vocabulary(
    paths: Sequence[str], size: int, lowercase: bool = True
) -> Vocabulary:
    """Learns a WordPiece vocabulary from text files.

    Reads the text twice: the characters are counted first. Memory grows with the
    number of different words, not with the text.

    Args:
        paths: Text files, see `bert_tf.documents`.
        size: The number of tokens wanted. There are fewer if the text is too small.
        lowercase: Learn an uncased vocabulary: lower-case, without accents.

    Raises:
        ValueError: The files hold no text, or are not UTF-8 (file and line are named).
    """
    import tokenizers

    table = normalization.word_table(lowercase)
    characters = _frequent_characters(
        _sentences(paths, lowercase, "Counting characters"), table, size // 2
    )
    if not characters:
        raise ValueError(f"There is no text in {', '.join(paths)}.")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_FREQUENCY,
        # Tokens that the trainer finds by itself come in an order that differs between
        # runs, and so do its choices between pairs of equal frequency. Given in
        # advance, all characters have their place, and the result is always the same.
        special_tokens=[*SPECIAL_TOKENS, *_character_tokens(characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=CONTINUATION_PREFIX,
        show_progress=False,
    )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    sentences = _sentences(paths, lowercase, "Counting words")
    words = (sentence.translate(table) for sentence in sentences)
    learner.train_from_iterator(words, trainer)
    ids = learner.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def _frequent_characters(
    sentences: Iterable[str], table: Mapping[int, str], max_tokens: int
) -> list[str]:
    """Returns the characters to begin with, in the order of their code points."""
    raw_counts: collections.Counter[str] = collections.Counter()
    for sentence in sentences:
        raw_counts.update(sentence)
    counts: collections.Counter[str] = collections.Counter()
    for raw, count in raw_counts.items():
        for char in raw.translate(table).replace(" ", ""):
            counts[char] += count

    characters: list[str] = []
    uncovered = counts.total()
    tolerated = uncovered * (1 - _CHARACTER_COVERAGE)
    # The code point decides between equal counts.
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        max_tokens -= len(_character_tokens([char]))
        if uncovered <= tolerated or max_tokens < 0:
            break
        characters.append(char)
        uncovered -= count
    return sorted(characters)


def _character_tokens(characters: Sequence[str]) -> list[str]:
    """The tokens that characters need: one, and if it can continue a word two."""
    return [
        *characters,
        *(
            CONTINUATION_PREFIX + c
            for c in characters
            if not normalization.is_single_character_word(c)
        ),
    ]


def _sentences(
    paths: Sequence[str], lowercase: bool, description: str
) -> Iterator[str]:
    """Yields all sentences, with a progress bar over the bytes of the files."""
    sizes = [storage.stat(path)[0] for path in paths]
    with tqdm.tqdm(
        total=sum(sizes), desc=description, unit="B", unit_scale=True
    ) as bar:
        for path, done in zip(paths, itertools.accumulate(sizes)):
            for document in documents.read_documents(path):
                # Whole sentences: whether a sigma is final depends on its neighbours.
                yield from map(str.lower, document) if lowercase else document
                # About a byte for every character; put right at the end of the file.
                bar.update(min(sum(map(len, document)), done - bar.n))
            bar.update(done - bar.n)
