# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a WordPiece vocabulary with the `tokenizers` library.

Sentences are normalized and split into words by BERT's rules. The trainer then merges
the most frequent pair of adjacent pieces until the vocabulary has the requested size.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bert_tf.lazy import lazy_import
from bert_tf.text import normalization
from bert_tf.text.normalization import is_single_character_word
from bert_tf.text.vocabulary import (
    CONTINUATION_PREFIX,
    SPECIAL_TOKENS,
    UNK,
    Vocabulary,
)

tokenizers = lazy_import("tokenizers")

# The most frequent characters that together cover this share of the text become
# tokens. Words with any other character are tokenized as [UNK].
_CHARACTER_COVERAGE = 0.9999

# Pairs that occur less often are not merged.
_MIN_FREQUENCY = 2


def learn_vocabulary(
    sentences: Callable[[], Iterable[str]], size: int, lowercase: bool = True
) -> Vocabulary:
    """Learns a WordPiece vocabulary.

    The same sentences always give the same vocabulary. Memory grows with the number of
    distinct words, not with the size of the text. Words that are so long that the
    tokenizer maps them to [UNK] are ignored.

    Args:
        sentences: Returns a new iterator over all sentences. It is called twice: to
            count characters, then to count words.
        size: The number of tokens. The vocabulary is smaller if the text has too few
            frequent pairs of pieces.
        lowercase: Whether to lowercase and strip accents.

    Raises:
        ValueError: The sentences contain no words.
    """
    table = {
        ord(char): "".join(f" {c} " if is_single_character_word(c) else c for c in form)
        for char, form in normalization.google_forms(lowercase).items()
    }

    def read() -> Iterable[str]:
        # Whole sentences, because `lower` maps a final capital sigma to ς.
        return map(str.lower, sentences()) if lowercase else sentences()

    characters = _frequent_characters(read(), table, size // 2)
    if not characters:
        raise ValueError("The text to learn a vocabulary from contains no words.")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_FREQUENCY,
        # The trainer orders the characters that it finds differently in each run, and
        # breaks ties between pairs by that order. Passing all characters as special
        # tokens fixes the order and makes the result reproducible.
        special_tokens=[*SPECIAL_TOKENS, *_character_tokens(characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=CONTINUATION_PREFIX,
        show_progress=False,
    )
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    # The time of the trainer is quadratic in the length of a word.
    limit = normalization.GOOGLE_RULES.max_characters_per_word
    too_long = re.compile(rf"\S{{{limit + 1},}}")
    texts = (sentence.translate(table) for sentence in read())
    texts = (too_long.sub(" ", x) if len(x) > limit else x for x in texts)
    model.train_from_iterator(texts, trainer)
    ids = model.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def split_words(words: Iterable[str], vocabulary: Vocabulary) -> list[list[int]]:
    """Returns the ids of the pieces of normalized words. Needs no TensorFlow."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    model = tokenizers.models.WordPiece(ids, unk_token=UNK)
    return [[piece.id for piece in model.tokenize(word)] for word in words]


def _frequent_characters(
    sentences: Iterable[str], table: Mapping[int, str], max_tokens: int
) -> list[str]:
    """Returns the characters that become tokens, sorted by code point."""
    raw_counts = collections.Counter(itertools.chain.from_iterable(sentences))
    counts: collections.Counter[str] = collections.Counter()
    for raw, count in raw_counts.items():
        for char in raw.translate(table).replace(" ", ""):
            counts[char] += count

    characters: list[str] = []
    uncovered = counts.total()
    max_uncovered = uncovered * (1 - _CHARACTER_COVERAGE)
    # Ties are broken by code point.
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        max_tokens -= len(_character_tokens([char]))
        if uncovered <= max_uncovered or max_tokens < 0:
            break
        characters.append(char)
        uncovered -= count
    return sorted(characters)


def _character_tokens(characters: Sequence[str]) -> list[str]:
    """Returns one token per character, and one with "##" if it can continue a word."""
    inside_words = (c for c in characters if not is_single_character_word(c))
    return [*characters, *(CONTINUATION_PREFIX + c for c in inside_words)]
