# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.token_store."""

import itertools
import json
import pathlib

import numpy as np
import pytest

from bert_tf.data import CorpusConfig, jobs, token_store
from bert_tf.text import Tokenizer, Vocabulary

TEXT = """The cat sat.
On the mats, the cats sat!

\u0301
The sat on cat.
?

\u0301

a b c
"""


def build(directory, files, vocabulary, separator="blank_line", lowercase=True):
    options = CorpusConfig(
        input="",
        vocabulary="",
        output="",
        token_store=str(directory),
        document_separator=separator,
        lowercase=lowercase,
    )
    files = [str(file) for file in files]
    with jobs.Workers(1) as workers:
        summary = token_store.build_token_store(options, files, vocabulary, workers)
    store = token_store.TokenStore(str(directory))
    assert store.summary == summary
    return store


def read(store: token_store.TokenStore) -> list[list[list[int]]]:
    """Reads all documents as lists of sentences of token ids."""
    documents = []
    for i in range(store.summary["documents"]):
        first, last = store.first_sentences[i : i + 2].tolist()
        starts = store.sentence_starts(first, last).tolist()
        documents.append(
            [
                store.tokens(start, stop).tolist()
                for start, stop in itertools.pairwise(starts)
            ]
        )
    return documents


def tokens(vocabulary: Vocabulary, line: str) -> list[int]:
    return [vocabulary.tokens.index(token) for token in line.split()]


def test_store_contains_tokens_of_all_sentences(tmp_path, vocabulary):
    (tmp_path / "text.txt").write_text(TEXT)
    store = build(tmp_path / "store", [tmp_path / "text.txt"], vocabulary)
    assert read(store) == [
        [
            tokens(vocabulary, "the cat sat ."),
            tokens(vocabulary, "on the mat ##s , the cat ##s sat [UNK]"),
        ],
        # A sentence or document of only an accent has no tokens and is dropped.
        [tokens(vocabulary, "the sat on cat ."), tokens(vocabulary, "[UNK]")],
        [tokens(vocabulary, "a b c")],
    ]
    assert store.tokens(0, 4).dtype == np.min_scalar_type(vocabulary.size - 1)
    assert {name: store.summary[name] for name in token_store.COUNTS} == {
        "documents": 3,
        "sentences": 5,
        "tokens": 4 + 10 + 5 + 1 + 3,
        "unknown": 2,
        "continuations": 2,
        "garbled": 0,
        "one_sentence_documents": 1,
    }


def test_large_vocabulary_uses_uint32(tmp_path, vocabulary):
    filler = [f"word{i}" for i in range(70_000)]
    large = Vocabulary((*vocabulary.tokens, *filler, "last"))
    (tmp_path / "text.txt").write_text("The last cat.\n")
    store = build(tmp_path / "store", [tmp_path / "text.txt"], large)
    assert read(store) == [[tokens(large, "the last cat .")]]
    assert store.tokens(0, 1).dtype == np.uint32


def test_lowercase_false_keeps_case(tmp_path, vocabulary):
    (tmp_path / "text.txt").write_text("The cat\nthe cat\n")
    file = tmp_path / "text.txt"
    store = build(tmp_path / "store", [file], vocabulary, lowercase=False)
    assert read(store) == [
        [tokens(vocabulary, "[UNK] cat"), tokens(vocabulary, "the cat")]
    ]


@pytest.fixture
def files(tmp_path) -> list[pathlib.Path]:
    """Files of different sizes, one of them without documents."""
    paths = []
    for i, num_documents in enumerate([30, 1, 0, 7]):
        documents = [
            "The cat sat.\n" * (1 + (i + j) % 4) + f"{'abcdefg'[j % 7]} on mat\n"
            for j in range(num_documents)
        ]
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_text("\n".join(documents))
    return paths


@pytest.mark.parametrize(
    ("part_bytes", "batch_characters"), [(30, 1 << 20), (333, 1), (777, 100)]
)
def test_store_does_not_depend_on_parts_and_batches(
    tmp_path, files, vocabulary, monkeypatch, part_bytes, batch_characters
):
    whole = build(tmp_path / "whole", files, vocabulary)
    monkeypatch.setattr(token_store, "_PART_BYTES", part_bytes)
    monkeypatch.setattr(token_store, "_BATCH_CHARACTERS", batch_characters)
    parts = build(tmp_path / "parts", files, vocabulary)
    assert parts.summary == whole.summary
    files = ("tokens", "sentences", "documents", "sentence_hashes", "document_hashes")
    for name in files:
        found = (tmp_path / "parts" / f"{name}.bin").read_bytes()
        assert found == (tmp_path / "whole" / f"{name}.bin").read_bytes()
    assert not (tmp_path / "parts" / "parts").exists()


def test_counts_of_files_sum_to_total(tmp_path, files, vocabulary):
    store = build(tmp_path / "store", files, vocabulary)
    sources = store.summary["sources"]
    documents = [sources[str(file)]["documents"] for file in files]
    assert documents == [30, 1, 0, 7]
    for name in token_store.COUNTS:
        assert sum(counts[name] for counts in sources.values()) == store.summary[name]


def test_interrupted_build_resumes(tmp_path, files, vocabulary, monkeypatch):
    whole = build(tmp_path / "whole", files, vocabulary)
    monkeypatch.setattr(token_store, "_PART_BYTES", 100)
    tokenized = []
    tokenize_part = token_store.tokenize_part

    def interrupted(part):
        if len(tokenized) == 3:
            raise KeyboardInterrupt
        tokenized.append(part.path)
        return tokenize_part(part)

    monkeypatch.setattr(token_store, "tokenize_part", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "store", files, vocabulary)
    with pytest.raises(FileNotFoundError):
        token_store.TokenStore(tmp_path / "store")

    monkeypatch.setattr(
        token_store,
        "tokenize_part",
        lambda part: tokenized.append(part.path) or tokenize_part(part),
    )
    store = build(tmp_path / "store", files, vocabulary)
    assert len(tokenized) == len(set(tokenized)) > 6
    assert read(store) == read(whole)


def test_complete_store_is_not_built_again(tmp_path, files, vocabulary, monkeypatch):
    build(tmp_path / "store", files, vocabulary)
    monkeypatch.setattr(token_store, "tokenize_part", None)
    store = build(tmp_path / "store", files, vocabulary)
    assert len(read(store)) == 38


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"separator": "file"}, "document_separator was 'blank_line'"),
        ({"lowercase": False}, "lowercase was True, now False"),
        ({"vocabulary": Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))},
         "vocabulary was"),
        ({"files": []}, "input was '4 files"),
    ],
)  # fmt: skip
def test_store_of_other_settings_raises(tmp_path, files, vocabulary, change, named):
    arguments = {"files": files, "vocabulary": vocabulary}
    build(tmp_path / "store", **arguments)
    with pytest.raises(ValueError, match=f"{named}.*Use another --token_store"):
        build(tmp_path / "store", **{**arguments, **change})


def test_changed_file_raises(tmp_path, files, vocabulary):
    build(tmp_path / "store", files, vocabulary)
    files[1].write_text("More text than before.\n")
    with pytest.raises(ValueError, match="input was '4 files"):
        build(tmp_path / "store", files, vocabulary)


def test_tokens_equal_those_of_tokenizer(tmp_path, vocabulary):
    (tmp_path / "text.txt").write_text(TEXT)
    store = build(tmp_path / "store", [tmp_path / "text.txt"], vocabulary, "file")
    lines = [line for line in TEXT.splitlines() if line and line != "\u0301"]
    expected = Tokenizer(vocabulary).tokenize(lines).to_list()
    assert read(store) == [expected]
    assert json.loads((tmp_path / "store" / "store.json").read_text())["tokens"] == 23
