# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.wordpiece_trainer."""

import string

import pytest

from bert_tf.text.normalization import is_single_character_word
from bert_tf.text.tokenizer import Tokenizer
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert_tf.text.wordpiece_trainer import count_words, learn_vocabulary

SYLLABLES = ("ba", "ko", "ri", "tun", "mes", "lo", "dra", "pi", "gu", "fen")
TEXT = (
    "The cats sat on the mats. The cat's mat, the hat: that's that! "
    "Étude number 12 in Ä; ΟΔΟΣ is Greek — so is ΔΔ. 中文 is Chinese. "
    "Sitting cats were sitting and mats were sat on.\n"
    + " ".join(first + last for first in SYLLABLES for last in SYLLABLES)
    + ".\n"
) * 20
LINES = TEXT.splitlines()


def pieces(text: str, vocabulary: Vocabulary, lowercase: bool = True) -> list[str]:
    (ids,) = Tokenizer(vocabulary, lowercase).tokenize([text]).to_list()
    return [vocabulary.tokens[i] for i in ids]


@pytest.mark.parametrize("lowercase", [True, False])
def test_learned_vocabulary_covers_its_text(lowercase):
    vocabulary = learn_vocabulary(count_words(LINES, lowercase), 180)
    assert vocabulary.size == 180
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert "[UNK]" not in pieces(TEXT, vocabulary, lowercase)
    assert any(len(token) > 2 for token in vocabulary.tokens[5:])
    upper = {c for token in vocabulary.tokens[5:] for c in token if c.isupper()}
    assert upper == (set() if lowercase else set("TSCGÉÄΟΔΣ"))
    for token in vocabulary.tokens[5:]:
        text = token.removeprefix("##") if len(token) > 2 else token
        assert len(text) == 1 or not any(map(is_single_character_word, text)), token
    assert {".", ",", "—", "中", "文"} <= set(vocabulary.tokens)
    assert not {"##.", "##—", "##中"} & set(vocabulary.tokens)
    if lowercase:
        assert learn_vocabulary(count_words(LINES), 180) == vocabulary
        assert pieces("The cats sat", vocabulary) == ["the", "cats", "sat"]
        assert {"e", "a", "δ", "##ς"} <= set(vocabulary.tokens)
        assert not {"é", "ä", "Δ", "\u0301"} & set(vocabulary.tokens)


def test_small_vocabulary_has_room_for_merged_pieces():
    vocabulary = learn_vocabulary(count_words(LINES), 40)
    assert vocabulary.size == 40
    # Half of the tokens, two for each character; equally frequent ones by code point.
    characters = [t for t in vocabulary.tokens[5:] if len(t.removeprefix("##")) == 1]
    assert characters == [*"aeimnorstu", *(f"##{c}" for c in "aeimnorstu")]
    vocabulary = learn_vocabulary(count_words([string.ascii_lowercase[::-1]]), 40)
    # Without frequent pairs, further characters have the other half.
    assert "".join(vocabulary.tokens[25:]) == "k##kl##lm##mn##no##op##pq##qr"


def test_rare_characters_are_excluded():
    text = "common words again and again " * 2000 + "ж"
    vocabulary = learn_vocabulary(count_words([text]), 30_000)
    assert "ж" not in vocabulary.tokens
    assert {"w", "common"} < set(vocabulary.tokens)
    assert vocabulary.size < 100


def test_words_that_the_tokenizer_does_not_split_are_ignored():
    """They would fill it slowly with their pieces (huggingface/tokenizers#86)."""
    vocabulary = learn_vocabulary(count_words(["cat hat", "cat hat", "abcd" * 51]), 100)
    assert {t for t in vocabulary.tokens if len(t) > 3} == {*SPECIAL_TOKENS, "##at"}


def test_sentences_without_words_are_rejected():
    with pytest.raises(ValueError, match="to learn a vocabulary from contains no word"):
        learn_vocabulary(count_words(["", " \u200b "]), 100)
