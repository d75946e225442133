# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a WordPiece vocabulary with the `tokenizers` library.

Sentences are normalized and split into words by BERT's rules. The trainer then merges
the most frequent pair of adjacent pieces until the vocabulary has the requested size.
"""

from __future__ import annotations

import bisect
import collections
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from bert_tf.lazy import lazy_import
from bert_tf.text import normalization
from bert_tf.text.normalization import is_single_character_word
from bert_tf.text.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, UNK, Vocabulary

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

    frequent = _frequent_characters(read(), table)
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
    # The time of the trainer is quadratic in the length of a word.
    limit = normalization.GOOGLE_RULES.max_characters_per_word
    too_long = re.compile(rf"\S{{{limit + 1},}}")
    texts = (sentence.translate(table) for sentence in read())
    texts = (too_long.sub(" ", x) if len(x) > limit else x for x in texts)
    model.train_from_iterator(texts, trainer)
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


def _frequent_characters(
    sentences: Iterable[str], table: Mapping[int, str]
) -> list[str]:
    """Returns the characters that cover the text, by decreasing frequency."""
    raw_counts = collections.Counter(itertools.chain.from_iterable(sentences))
    counts: collections.Counter[str] = collections.Counter()
    for raw, count in raw_counts.items():
        for char in raw.translate(table).replace(" ", ""):
            counts[char] += count

    # Ties are broken by code point.
    ordered = sorted(counts, key=lambda char: (-counts[char], char))
    covered = list(itertools.accumulate(counts[char] for char in ordered))
    last = bisect.bisect_left(covered, _CHARACTER_COVERAGE * counts.total())
    return ordered[: last + 1]


def _character_tokens(characters: Sequence[str]) -> list[str]:
    """Returns one token per character, and one with "##" if it can continue a word."""
    inside_words = (c for c in characters if not is_single_character_word(c))
    return [*characters, *(CONTINUATION_PREFIX + c for c in inside_words)]
