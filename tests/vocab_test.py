# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.vocab."""

import gzip
import hashlib
import os
import pathlib
import re

import pytest

from bert_tf import vocab
from bert_tf.text import learning, normalization
from bert_tf.text.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert_tf.vocab import VocabularyConfig

SPECIAL_LINES = "".join(f"{token}\n" for token in SPECIAL_TOKENS)


def write(path: pathlib.Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# --- A vocabulary -----------------------------------------------------------------


def test_ids_are_places():
    vocabulary = Vocabulary(("a", "##b", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]"))
    assert vocabulary.size == 7
    assert vocabulary.special_ids == (6, 5, 4, 3, 2)
    assert (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id) == (6, 5, 4)
    assert (vocabulary.sep_id, vocabulary.mask_id) == (3, 2)
    assert vocabulary.ids(["##b", "a", "b"]) == [1, 0, 5]
    assert vocabulary.is_continuation.tolist() == [False, True] + [False] * 5
    assert vocabulary.is_continuation.dtype == bool


def test_fingerprint_is_that_of_the_tokens_in_order():
    text = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\né"
    vocabulary = Vocabulary(tuple(text.split("\n")))
    assert vocabulary.fingerprint == hashlib.sha256(text.encode()).hexdigest()
    assert vocabulary.fingerprint in {
        Vocabulary((*SPECIAL_TOKENS, token)).fingerprint for token in ("é", "e")
    }
    assert vocabulary.fingerprint != Vocabulary((*SPECIAL_TOKENS, "e")).fingerprint


def test_written_and_read_again(tmp_path):
    # U+2028 separates lines for Python, not in this file; \u00a0 is not stripped.
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "\u2028", "\u00a0a", "##é", "𝕏"))
    write(tmp_path / "vocab.txt", "what was there before")
    vocabulary.write(tmp_path / "vocab.txt")
    assert Vocabulary.from_file(tmp_path / "vocab.txt") == vocabulary
    assert Vocabulary.from_file(str(tmp_path / "vocab.txt")) == vocabulary
    assert os.listdir(tmp_path) == ["vocab.txt"]


def test_windows_line_ends_and_byte_order_mark_are_no_part_of_a_token(tmp_path):
    text = "\ufeff" + (SPECIAL_LINES + "a\n").replace("\n", "\r\n")
    path = write(tmp_path / "vocab.txt", text)
    assert Vocabulary.from_file(path).tokens == (*SPECIAL_TOKENS, "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SPECIAL_LINES + "a\nb\na\n", "'a' in line 6 and line 8"),
        (SPECIAL_LINES + "a\n\nb\n", "an empty line 7"),
        (SPECIAL_LINES + "\n", "an empty line 6"),
        ("[PAD]\n[CLS]\n[SEP]\na\n", r"Missing: \[UNK\] \[MASK\]"),
        ("", r"Missing: \[PAD\]"),
        (SPECIAL_LINES.encode() + b"a\n\xe9\n", "line 7: not UTF-8"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    path = write(tmp_path / "vocab.txt", text)
    with pytest.raises(ValueError, match=f"^{re.escape(path)}.*{message}"):
        Vocabulary.from_file(path)


def test_a_missing_file_says_how_to_get_one(tmp_path):
    with pytest.raises(
        ValueError, match=r"nowhere: no such vocabulary.*bert_tf\.vocab"
    ):
        Vocabulary.from_file(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("base-uncased", 30522),
        ("base-cased", 28996),
        ("base-multilingual-cased", 119547),
        ("base-chinese", 21128),
    ],
)
def test_published_vocabularies(name, size):
    if "BERT_TF_DATA" not in os.environ:
        pytest.skip("BERT_TF_DATA, the folder of the real data sets, is not set.")
    path = f"{os.environ['BERT_TF_DATA']}/vocab/bert-{name}-vocab.txt"
    vocabulary = Vocabulary.from_file(path)
    assert vocabulary.size == size
    assert vocabulary.special_ids == (0, 100, 101, 102, 103)


# --- Learning ---------------------------------------------------------------------

SYLLABLES = ("ba", "ko", "ri", "tun", "mes", "lo", "dra", "pi", "gu", "fen")
TEXT = (
    "The cats sat on the mats. The cat's mat, the hat: that's that! "
    "Étude number 12 in Ä; ΟΔΟΣ is Greek — so is ΔΔ. 中文 is Chinese. "
    "Sitting cats were sitting and mats were sat on.\n"
    + " ".join(first + last for first in SYLLABLES for last in SYLLABLES)
    + ".\n"
) * 20


@pytest.fixture
def corpus(tmp_path) -> str:
    return write(tmp_path / "corpus.txt", TEXT)


def pieces(text: str, vocabulary: Vocabulary, lowercase: bool = True) -> list[str]:
    """Greedy WordPiece, written out."""
    table = normalization.word_table(lowercase)
    tokens = []
    for word in (text.lower() if lowercase else text).translate(table).split():
        start = 0
        while start < len(word):
            fitting = [
                "##" * (start > 0) + word[start:end]
                for end in range(len(word), start, -1)
            ]
            tokens.append(next((p for p in fitting if p in vocabulary.tokens), "[UNK]"))
            if tokens[-1] == "[UNK]":
                break
            start += len(tokens[-1]) - 2 * (start > 0)
    return tokens


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_learnt_vocabulary_covers_its_text(corpus, lowercase):
    vocabulary = learning.learn_vocabulary([corpus], 180, lowercase)
    assert vocabulary.size == 180
    assert vocabulary.tokens[:5] == SPECIAL_TOKENS
    assert "[UNK]" not in pieces(TEXT, vocabulary, lowercase)
    assert any(len(token) > 2 for token in vocabulary.tokens[5:])
    upper = {c for token in vocabulary.tokens[5:] for c in token if c.isupper()}
    assert upper == (set() if lowercase else set("TSCGÉÄΟΔΣ"))
    if lowercase:
        assert {"e", "a", "δ", "##ς"} <= set(vocabulary.tokens)
        assert not {"é", "ä", "Δ", "\u0301"} & set(vocabulary.tokens)


def test_punctuation_and_chinese_never_join_other_characters(corpus):
    vocabulary = learning.learn_vocabulary([corpus], 180)
    for token in vocabulary.tokens[5:]:
        text = token.removeprefix("##") if len(token) > 2 else token
        assert len(text) == 1 or not any(
            map(normalization.is_single_character_word, text)
        ), token
    assert {".", ",", "—", "中", "文"} <= set(vocabulary.tokens)
    assert not {"##.", "##—", "##中"} & set(vocabulary.tokens)


def test_frequent_words_become_tokens(corpus):
    vocabulary = learning.learn_vocabulary([corpus], 180)
    assert {"the", "cats", "sat"} <= set(vocabulary.tokens)
    assert pieces("The cats sat", vocabulary) == ["the", "cats", "sat"]


@pytest.mark.slow
def test_the_same_text_gives_the_same_vocabulary(corpus):
    learnt = {learning.learn_vocabulary([corpus], 180).tokens for _ in range(5)}
    assert len(learnt) == 1


def test_a_small_text_gives_fewer_tokens(corpus):
    vocabulary = learning.learn_vocabulary([corpus], 30_000)
    assert 180 < vocabulary.size < 300
    assert "chinese" in vocabulary.tokens


def test_a_small_vocabulary_has_room_for_pieces(corpus):
    vocabulary = learning.learn_vocabulary([corpus], 40)
    assert vocabulary.size == 40
    characters = [t for t in vocabulary.tokens[5:] if len(t.removeprefix("##")) == 1]
    assert 15 <= len(characters) <= 20
    assert {"t", "##t", "a", "##a"} <= set(characters)


def test_rare_characters_are_left_out(tmp_path):
    text = "common words again and again " * 2000 + "ж"
    vocabulary = learning.learn_vocabulary([write(tmp_path / "text", text)], 100)
    assert "ж" not in vocabulary.tokens
    assert "w" in vocabulary.tokens


def test_files_of_all_kinds_are_read(tmp_path):
    wiki = '<doc id="1" url="https://xyz" title="T">\nT\n\nabab abab.\n</doc>\n'
    paths = [
        write(tmp_path / "wiki", wiki),
        write(tmp_path / "text.gz", gzip.compress(b"cdcd cdcd\r\n")),
    ]
    tokens = learning.learn_vocabulary(paths, 100).tokens[5:]
    assert {"abab", "cdcd", "."} <= set(tokens)
    assert not set('<>=/"doc') - set("cd") & set(tokens)


def test_no_text_and_broken_text_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"no text in .*empty"):
        learning.learn_vocabulary([write(tmp_path / "empty", "\n \n")], 100)
    path = write(tmp_path / "latin", b"fine\n\nnot f\xefne\n")
    with pytest.raises(ValueError, match=r"latin, line 3: not UTF-8"):
        learning.learn_vocabulary([path], 100)


# --- Command ----------------------------------------------------------------------


def test_command(corpus, tmp_path, capsys):
    output = tmp_path / "new" / "vocab.txt"
    options = VocabularyConfig(
        input=f"{tmp_path}/corp*", output=str(output), vocabulary_size=180
    )
    vocab.main(options)
    last_line = capsys.readouterr().out.strip().split("\n")[-1]
    assert re.fullmatch(
        f"{output}: 180 tokens from 0.0 MB of text in \\d+ s.", last_line
    )
    assert Vocabulary.from_file(output) == learning.learn_vocabulary([corpus], 180)

    with pytest.raises(ValueError, match=r"--output=.*vocab\.txt exists"):
        vocab.main(options)


def test_command_says_when_the_text_is_too_small(corpus, tmp_path, capsys):
    vocab.main(VocabularyConfig(input=corpus, output=str(tmp_path / "vocab.txt")))
    assert "--vocabulary_size=30522 needs more text" in capsys.readouterr().out
