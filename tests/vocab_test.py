# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command bert_tf.vocab."""

import gzip
import os
import pathlib
import re

import pytest

from bert_tf import vocab
from bert_tf.text import Vocabulary, count_words, learn_vocabulary
from tests.toy.tables import write_file as write

SENTENCES = ["the cats sat on the mats.", "the cat sat on a hat."] * 20


def learn(folder: pathlib.Path, pattern: str, size: int = 26, **changes) -> Vocabulary:
    output = changes.setdefault("output", str(folder / "new/vocab.txt"))
    options = vocab.VocabularyConfig(
        input=f"{folder}/{pattern}",
        vocabulary_size=size,
        num_workers=1,
        **changes,
    )
    vocab.main(options)
    return Vocabulary.from_file(output)


def test_command_writes_the_learned_vocabulary(tmp_path, capsys):
    write(tmp_path / "corpus.txt", "\n".join(SENTENCES))

    vocabulary = learn(tmp_path, "corp*")

    last_line = capsys.readouterr().out.strip().split("\n")[-1]
    path = tmp_path / "new/vocab.txt"
    assert re.fullmatch(f"{path}: 26 tokens from 0.0 MB of text in \\d+ s.", last_line)
    assert vocabulary == learn_vocabulary(count_words(SENTENCES), 26)

    with pytest.raises(ValueError, match=r"--output=.*vocab\.txt exists"):
        learn(tmp_path, "corp*")
    with pytest.raises(ValueError, match="--output must be a file, not a folder"):
        learn(tmp_path, "corp*", output=f"{tmp_path}/other/")


def test_command_reads_wikipedia_and_gzip(tmp_path, capsys):
    wiki = '<doc id="1" url="https://xyz" title="T">\nT\n\nabab abab.\n</doc>\n'
    write(tmp_path / "wiki", wiki)
    write(tmp_path / "text.gz", gzip.compress(b"cdcd cdcd\r\n"))
    tokens = learn(tmp_path, "*", size=100).tokens[5:]
    assert {"abab", "cdcd", "."} <= set(tokens)
    assert not set('<>=/"o') & set(tokens)
    printed = capsys.readouterr().out
    assert "a blank line ends a document" in printed
    assert "too small for --vocabulary_size=100" in printed


def test_words_are_counted_in_parts(tmp_path, monkeypatch):
    lines = [f"{line}\n\n" for line in SENTENCES]
    write(tmp_path / "corpus.txt", "".join(lines))
    monkeypatch.setattr("bert_tf.data.documents._PART_BYTES", 300)
    vocabulary = learn(tmp_path, "corp*")
    assert vocabulary == learn_vocabulary(count_words(SENTENCES), 26)
    assert os.listdir(tmp_path / "new") == ["vocab.txt"]


def test_a_rerun_counts_only_the_parts_that_are_not_finished(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "the cat sat on the mat. " * 20 + "\n\nA dog.")
    write(tmp_path / "b.txt", b"\xff\xff\xff")
    monkeypatch.setattr("bert_tf.data.documents._PART_BYTES", 100)
    monkeypatch.setattr("bert_tf.data.documents._PREVIEW_CHARACTERS", 1)
    with pytest.raises(ValueError, match=r"b\.txt"):
        learn(tmp_path, "*.txt")
    kept = os.listdir(tmp_path / "new")
    assert kept
    assert all(name.startswith(".vocab.txt.words-") for name in kept)
