# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import re

import pytest

from bert_tf.finetuning.conll import ColumnFile, to_iob2

CONLL_2003 = """\
-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

BRUSSELS NNP B-NP I-LOC
Belgium NNP B-NP B-LOC
"""

WNUT = (
    "@paulwalk\tO\r\nEmpire\tB-location\r\nState\tI-location\r\n\t\r\nESB\tB-location"
)


def read(tmp_path, content):
    path = tmp_path / "file.conll"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ColumnFile.read(path)


def test_read_conll_2003(tmp_path):
    file = read(tmp_path, CONLL_2003)
    assert (file.separator, file.num_columns) == (" ", 4)
    assert [sentence.words for sentence in file.sentences] == [
        ["EU", "rejects", "German"],
        ["Peter", "Blackburn"],
        ["BRUSSELS", "Belgium"],
    ]
    assert [sentence.line for sentence in file.sentences] == [3, 7, 12]
    assert file.pack([1, 1, 1], limit=9) == [0, 2]  # Two documents.
    assert file.tags() == [
        ["B-ORG", "O", "B-MISC"],
        ["B-PER", "I-PER"],
        ["B-LOC", "B-LOC"],
    ]


def test_read_wnut(tmp_path):
    file = read(tmp_path, "\ufeff" + WNUT)
    assert (file.separator, file.num_columns) == ("\t", 2)
    assert file.tags() == [["O", "B-location", "I-location"], ["B-location"]]
    # Without -DOCSTART-, each sentence is a document.
    assert file.pack([1, 1], limit=9) == [0, 1]


def test_repeated_spaces_and_a_no_break_space_as_word(tmp_path):
    file = read(tmp_path, "a  b   O\n\u00a0 c O\n\n\nd e O\n\n")
    assert [s.words for s in file.sentences] == [["a", "\u00a0"], ["d"]]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("I-A I-A O I-A", "B-A I-A O B-A"),
        ("I-A B-A I-A", "B-A B-A I-A"),
        ("I-A I-B I-B", "B-A B-B I-B"),
        ("B-A I-B", "B-A B-B"),
        ("B-A I-A O O B-B", "B-A I-A O O B-B"),
    ],
)
def test_to_iob2(tags, expected):
    assert to_iob2(tags.split()) == expected.split()
    assert to_iob2(expected.split()) == expected.split()


def test_write_appends_a_column(tmp_path):
    file = read(tmp_path, CONLL_2003)
    file.write(tmp_path / "out", [["B-X", "O", "O"], ["O", "O"], ["O", "B-Y"]])
    assert (tmp_path / "out").read_text() == (
        "-DOCSTART- -X- -X- O O\n\n"
        "EU NNP B-NP I-ORG B-X\nrejects VBZ B-VP O O\nGerman JJ B-NP I-MISC O\n\n"
        "Peter NNP B-NP I-PER O\nBlackburn NNP I-NP I-PER O\n\n"
        "-DOCSTART- -X- -X- O O\n\n"
        "BRUSSELS NNP B-NP I-LOC O\nBelgium NNP B-NP B-LOC B-Y\n\n"
    )
    again = ColumnFile.read(tmp_path / "out")
    assert again.tags()[2] == ["O", "B-Y"]
    assert [bool(sentence.document) for sentence in again.sentences] == [1, 0, 1]


def test_pack_groups_sentences_up_to_the_limit(tmp_path):
    file = read(tmp_path, "-DOCSTART- O\n\n" + "a O\n\n" * 5 + "-DOCSTART- O\n\nb O\n")
    assert file.pack([3, 2, 6, 1, 4, 1], limit=5) == [0, 2, 3, 5]
    assert file.pack([3, 2, 6, 1, 4, 1], limit=4) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "a X O\nb O\n",
            "line 2: every word must have 3 columns, as the first one. Got 2 in 'b O'.",
        ),
        (
            "a\tO\nb\n",
            "line 2: every word must have 2 columns, as the first one. Got 1 in 'b'.",
        ),
        (
            "a\tO\n\tO\n",
            "line 2: every word must have 2 columns, as the first one. "
            "Got 1 in '\\tO'.",
        ),
        ("a\tO\tO\nb\tO\n", "every word must have 3 columns, as the first one. Got 2"),
        ("a O\nb O O\n", "every word must have 2 columns, as the first one. Got 3"),
        (b"a O\n\nb\xe9 O\n", "line 3: not UTF-8"),
        ("\n-DOCSTART- O\n\n", "contains no words"),
        ("", "contains no words"),
    ],
)
def test_bad_files(tmp_path, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a O\nb S-PER\n", "line 2: the last column must be a tag: O, B-type or "
         "I-type. Got 'S-PER'."),
        ("a O\n\nb B-\n", "line 3: the last column"),
        ("O\nO\n", "line 1: the last column"),
    ],
)  # fmt: skip
def test_bad_tags(tmp_path, content, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path, content).tags()


def test_unknown_entity_types(tmp_path):
    file = read(tmp_path, "a O\nb I-X\n")
    assert file.tags(["X"]) == [["O", "B-X"]]
    message = "line 2: entity type 'X' does not occur .* Types in .*: L, P."
    with pytest.raises(ValueError, match=message):
        file.tags(["L", "P"])


@pytest.mark.parametrize(
    ("name", "sentences", "entities"),
    [
        ("wnut17train.conll", 3_394, 1_975),
        ("emerging.dev.conll", 1_009, 836),
        ("emerging.test.annotated", 1_287, 1_079),
    ],
)
def test_real_wnut(name, sentences, entities):
    if "BERT_TF_DATA" not in os.environ:
        pytest.skip("BERT_TF_DATA, the folder of the real data sets, is not set.")
    file = ColumnFile.read(pathlib.Path(os.environ["BERT_TF_DATA"], "wnut17", name))
    assert len(file.sentences) == sentences
    tags = [tag for sentence in file.tags() for tag in sentence]
    assert sum(tag.startswith("B") for tag in tags) == entities
