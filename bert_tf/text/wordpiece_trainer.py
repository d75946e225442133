# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a WordPiece vocabulary with the `tokenizers` library.

Texts are normalized and split into words by BERT's rules. The trainer then merges
the most frequent pair of adjacent pieces until the vocabulary has the requested size.
"""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from bert_tf.lazy import lazy_import
from bert_tf.text import normalization
from bert_tf.text.normalization import is_single_character_word
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, UNK, Vocabulary

tokenizers = lazy_import("tokenizers")

# The most frequent characters that together cover this share of the text become
# tokens. Words with any other character are tokenized as [UNK].
_CHARACTER_COVERAGE = 0.9999

_WORDS_PER_TEXT = 1000  # Of the texts that the trainer reads.

# Pairs that occur less often are not merged.
_MIN_FREQUENCY = 2


class WordCounts(NamedTuple):
    """How often normalized words and characters occur."""

    words: collections.Counter[str]
    characters: collections.Counter[str]

    @classmethod
    def total(cls, counts: Iterable[Sequence[Mapping[str, int]]]) -> WordCounts:
        """Returns the sums of `(words, characters)` of several texts."""
        total = cls(collections.Counter(), collections.Counter())
        for words, characters in counts:
            total.words.update(words)
            total.characters.update(characters)
        return total


def count_words(texts: Iterable[str], lowercase: bool = True) -> WordCounts:
    """Counts the words of texts.

    Memory grows with the number of distinct words, not with the size of the text. Words
    that are so long that the tokenizer maps them to [UNK] are not counted.

    Args:
        texts: Whole sentences or paragraphs, because `str.lower` maps a capital sigma
            at the end of a word to ς.
        lowercase: Whether to lowercase and strip accents.
    """
    table = _spaced_forms(lowercase)
    # The time of the trainer is quadratic in the length of a word.
    limit = normalization.GOOGLE_RULES.max_characters_per_word
    words: collections.Counter[str] = collections.Counter()
    raw: collections.Counter[str] = collections.Counter()
    for text in map(str.lower, texts) if lowercase else texts:
        raw.update(text)
        words.update(text.translate(table).split())
    characters: collections.Counter[str] = collections.Counter()
    for char, count in raw.items():
        for form in char.translate(table).replace(" ", ""):
            characters[form] += count
    for word in [word for word in words if len(word) > limit]:
        del words[word]
    return WordCounts(words, characters)


@functools.cache
def _spaced_forms(lowercase: bool) -> dict[int, str]:
    """Returns the forms of characters, with spaces around those that are words."""
    words = {*itertools.chain(*normalization.single_character_words())}
    # Also characters that stay the same: `str.translate` is slower without them.
    forms = {char: char for char in (*normalization.assigned_characters(), *words)}
    forms |= normalization.google_forms(lowercase)
    spaced = {char: f" {char} " for char in words}
    return {
        ord(char): "".join(spaced.get(c, c) for c in form)
        for char, form in forms.items()
    }


def learn_vocabulary(counts: WordCounts, size: int) -> Vocabulary:
    """Learns a WordPiece vocabulary.

    The same counts always give the same vocabulary.

    Args:
        counts: The result of `count_words`.
        size: The number of tokens. The vocabulary is smaller if the text has too few
            frequent pairs of pieces.

    Raises:
        ValueError: There are no words.
    """
    frequent = _frequent_characters(counts.characters)
    if not frequent:
        raise ValueError("The text to learn a vocabulary from contains no words.")
    totals = itertools.accumulate(len(_character_tokens(c)) for c in frequent)
    count = sum(total <= size // 2 for total in totals)
    characters = sorted(frequent[:count])
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
    model.train_from_iterator(_repeated(counts.words), trainer)
    ids = model.get_vocab()
    tokens = sorted(ids, key=ids.__getitem__)
    # Chinese has few word pieces, but more characters than half of a small vocabulary.
    others = itertools.chain(*map(_character_tokens, frequent[count:]))
    return Vocabulary((*tokens, *others)[:size])


def split_words(words: Iterable[str], vocabulary: Vocabulary) -> list[list[int]]:
    """Returns the ids of the pieces of normalized words. Needs no TensorFlow."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    model = tokenizers.models.WordPiece(ids, unk_token=UNK)
    return [[piece.id for piece in model.tokenize(word)] for word in words]


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yields texts with each word as often as it occurs: the trainer counts them."""
    for word, count in words.items():
        for start in range(0, count, _WORDS_PER_TEXT):
            yield " ".join([word] * min(_WORDS_PER_TEXT, count - start))


def _frequent_characters(counts: collections.Counter[str]) -> list[str]:
    """Returns the characters that cover the text, by decreasing frequency."""
    # Ties are broken by code point.
    ordered = sorted(counts, key=lambda char: (-counts[char], char))
    covered = list(itertools.accumulate(counts[char] for char in ordered))
    last = bisect.bisect_left(covered, _CHARACTER_COVERAGE * counts.total())
    return ordered[: last + 1]


def _character_tokens(characters: Sequence[str]) -> list[str]:
    """Returns one token per character, and one with "##" if it can continue a word."""
    inside_words = (c for c in characters if not is_single_character_word(c))
    return [*characters, *(CONTINUATION_PREFIX + c for c in inside_words)]
