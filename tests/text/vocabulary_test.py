# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text.vocabulary."""

import os
import re

import pytest

from bert_tf.text import SPECIAL_TOKENS, Vocabulary, guess_lowercase
from tests.toy.tables import write_file as write

SPECIAL_LINES = "".join(f"{token}\n" for token in SPECIAL_TOKENS)


def test_ids_are_token_indices():
    vocabulary = Vocabulary(("a", "##b", "[MASK]", "[SEP]", "[CLS]", "[UNK]", "[PAD]"))
    assert vocabulary.size == 7
    assert vocabulary.special_ids == (6, 5, 4, 3, 2)
    ids = (vocabulary.pad_id, vocabulary.unk_id, vocabulary.cls_id, vocabulary.sep_id)
    assert (*ids, vocabulary.mask_id) == vocabulary.special_ids
    assert vocabulary.ids(["##b", "a", "b"]) == [1, 0, 5]
    assert vocabulary.is_continuation.tolist() == [False, True] + [False] * 5
    assert repr(vocabulary) == f"Vocabulary(7 tokens, {vocabulary.fingerprint[:12]})"


def test_extended_vocabulary_keeps_ids():
    old = Vocabulary((*SPECIAL_TOKENS, "[unused0]", "a"))
    for tokens in (("[unused0]", "a"), ("[unused0]", "a", "b"), ("b", "a")):
        assert Vocabulary((*SPECIAL_TOKENS, *tokens)).extends(old)
    for tokens in (("[unused0]",), ("[unused0]", "b"), ("a", "[unused0]")):
        assert not Vocabulary((*SPECIAL_TOKENS, *tokens)).extends(old)


def test_write_and_read_round_trip(tmp_path):
    # U+2028 does not separate lines in this file.
    vocabulary = Vocabulary((*SPECIAL_TOKENS, "a\u2028b", "", "##é", "", "𝕏"))
    write(tmp_path / "vocab.txt", "to be replaced")
    vocabulary.write(tmp_path / "vocab.txt")
    assert Vocabulary.from_file(tmp_path / "vocab.txt") == vocabulary
    assert Vocabulary.from_file(str(tmp_path / "vocab.txt")) == vocabulary
    assert os.listdir(tmp_path) == ["vocab.txt"]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (SPECIAL_LINES + "a\n\n \n\r\n", ("a",)),
        (SPECIAL_LINES + "a\n\n\nb", ("a", "", "", "b")),
        (SPECIAL_LINES + "a \nb\t\n c\u00a0\n", ("a", "b", "c")),
        (SPECIAL_LINES.replace("\n", " \n") + "a b\n", ("a b",)),
        ("\ufeff" + (SPECIAL_LINES + "a\n").replace("\n", "\r\n"), ("a",)),
        (SPECIAL_LINES + "a\nb\na\na \n", ("", "b", "", "a")),
    ],
)
def test_lines_as_load_vocab_of_google_reads_them(tmp_path, text, tokens):
    vocabulary = Vocabulary.from_file(write(tmp_path / "vocab.txt", text))
    assert vocabulary.tokens == (*SPECIAL_TOKENS, *tokens)


def test_only_masked_models_need_a_mask():
    vocabulary = Vocabulary((*SPECIAL_TOKENS[:4], "a"))
    assert vocabulary.special_ids == (0, 1, 2, 3)
    with pytest.raises(ValueError, match=r"has no \[MASK\]"):
        vocabulary.mask_id  # noqa: B018


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[PAD]\n[CLS]\n[MASK]\na\n", r"The vocabulary has no \[UNK\]"),
        (SPECIAL_LINES, "The vocabulary has only special tokens"),
        (SPECIAL_LINES.encode() + b"a\n\xe9\n", "line 7: not UTF-8"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    with pytest.raises(OSError, match="nowhere does not exist"):
        Vocabulary.from_file(tmp_path / "nowhere")
    path = write(tmp_path / "vocab.txt", text)
    with pytest.raises(ValueError, match=f"^{re.escape(path)}.*{message}"):
        Vocabulary.from_file(path)


@pytest.mark.parametrize(
    ("tokens", "lowercase"),
    [
        (("the", "cat", "##s", "[E1]", "<S>"), True),
        (("Cat",), False),
        (("대", "##한", "민국"), False),
        (("việt", "nam"), False),
        (("東", "京", "##人"), True),
        (("कमल", "ไทย"), True),
    ],
)
def test_guess_is_uncased_if_tokens_survive_lowercasing(tokens, lowercase):
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *tokens))
    guess, note = guess_lowercase(vocabulary)
    assert guess == lowercase
    assert note.startswith(f"Assumed to be {'un' * lowercase}cased: ")
