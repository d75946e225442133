# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command bert_tf.vocab."""

import gzip
import pathlib
import re

import pytest

from bert_tf import vocab
from bert_tf.text import Vocabulary, learn_vocabulary

SENTENCES = ["the cats sat on the mats.", "the cat sat on a hat."] * 20


def write(path: pathlib.Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def learn(folder: pathlib.Path, pattern: str, size: int = 26) -> Vocabulary:
    output = str(folder / "new/vocab.txt")
    options = vocab.VocabularyConfig(
        input=f"{folder}/{pattern}", output=output, vocabulary_size=size
    )
    vocab.main(options)
    return Vocabulary.from_file(output)


def test_command_writes_the_learned_vocabulary(tmp_path, capsys):
    write(tmp_path / "corpus.txt", "\n".join(SENTENCES))

    vocabulary = learn(tmp_path, "corp*")

    last_line = capsys.readouterr().out.strip().split("\n")[-1]
    path = tmp_path / "new/vocab.txt"
    assert re.fullmatch(f"{path}: 26 tokens from 0.0 MB of text in \\d+ s.", last_line)
    assert vocabulary == learn_vocabulary(lambda: SENTENCES, 26)

    with pytest.raises(ValueError, match=r"--output=.*vocab\.txt exists"):
        learn(tmp_path, "corp*")


def test_command_reads_wikipedia_and_gzip(tmp_path, capsys):
    wiki = '<doc id="1" url="https://xyz" title="T">\nT\n\nabab abab.\n</doc>\n'
    write(tmp_path / "wiki", wiki)
    write(tmp_path / "text.gz", gzip.compress(b"cdcd cdcd\r\n"))
    tokens = learn(tmp_path, "*", size=100).tokens[5:]
    assert {"abab", "cdcd", "."} <= set(tokens)
    assert not set('<>=/"o') & set(tokens)
    assert "too small for --vocabulary_size=100" in capsys.readouterr().out
