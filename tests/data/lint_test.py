# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.lint: text files with known problems."""

import itertools
import re

import pytest

from bert_tf import text
from bert_tf.data import documents, lint, records

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def unique_text(num_documents: int, start: int = 0) -> str:
    """Documents of three sentences; no sentence occurs twice."""
    sentences = itertools.islice(
        itertools.product(LETTERS, repeat=5), start * 3, (start + num_documents) * 3
    )
    lines = [f"The cat sat on {' '.join(letters)}." for letters in sentences]
    return "\n\n".join(
        "\n".join(lines[i : i + 3]) for i in range(0, 3 * num_documents, 3)
    )


@pytest.fixture(scope="module")
def tokenizer(vocabulary):
    return text.Tokenizer(vocabulary)


@pytest.fixture
def examine(tmp_path, tokenizer):
    def examine(texts: dict[str, str]) -> dict:
        """Returns the report and the warnings of files, each a block of its own."""
        found = []
        for name, content in texts.items():
            (tmp_path / name).write_text(content, encoding="utf-8")
            read = documents.read_documents(str(tmp_path / name), "blank_line")
            block = [(name, sentences) for sentences in read]
            if not block:
                continue
            ids, lengths = records._tokenize(tokenizer, block)
            found.append(lint.count(block, ids, lengths, tokenizer.vocabulary))
        report = lint.merge(found)
        total = lint.total(report)
        return report | {"total": total, "warnings": lint.warnings(report, list(texts))}

    return examine


def test_good_text_has_no_warnings(examine):
    (warning,) = examine({f"empty{i}": "" for i in range(9)})["warnings"]
    assert warning.startswith("9 of 9 files contain no document: ")
    assert warning.endswith(": empty0, empty1, empty2 and 6 more")
    report = examine({"a": unique_text(20), "b": unique_text(30, start=20)})
    assert report["warnings"] == []
    assert report["repeated"] == {}
    assert report["total"] == {"documents": 50, "sentences": 150, "tokens": 1500}
    text = "« Déjà vu » à Âge d’or.\nNÃO é ação – ok…\nЭто кот.\nŁódź “é”.\n"
    assert examine({"a": text})["total"]["garbled"] == 0


def test_repeats_are_counted_within_a_block(examine):
    menu = "a b c.\nd e f."
    texts = {
        "a": unique_text(20),
        "b": f"{menu}\n\n{unique_text(9, start=50)}\n{menu}\n{menu}\n",
        "c": f"{unique_text(5)}\n\n{unique_text(5)}\n\n{unique_text(1)}",
    }
    report = examine(texts)

    def counts(name):
        return [source[name] for source in report["sources"].values()]

    assert counts("repeated_sentences") == [0, 4, 18]
    assert counts("repeated_tokens") == [0, 4 * 4, 18 * 10]
    assert counts("duplicate_documents") == [0, 0, 6]
    assert list(report["repeated"].items())[:3] == [
        *(("a b c.", 3), ("d e f.", 3)),
        ("The cat sat on a a a a a.", 3),
    ]
    repeats, copies = report["warnings"]
    assert repeats.startswith("More than 5.00% of the tokens are in sentences that occ")
    assert "In 2 of 3 files: c (55%)" in repeats
    assert copies.endswith("c (55%)")
    menu = "Cats on the mats, the cats."
    texts = {
        str(i): f"{menu}\n"
        + unique_text(40, start=40 * i).replace("\n\n", f"\n\n{menu}\n")
        for i in range(3)
    }
    report = examine(texts)
    assert report["repeated"] == {menu: 120}
    assert f"Remove boilerplate: {menu!r} (120 times)" in report["warnings"]


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        ("\n\n", r"1 of 2 files contain no document: .*bad"),
        (
            "猫坐在垫子上。\n狗也在。\n",
            r"1\.00% of the tokens are \[UNK\].*bad \(100%\)",
        ),
        ("Cating catsing sats.\nMating maters.\n", r"33% .*continue a word"),
        ("The cat.\n\nThe mat.\n\nOn the mat.\n", "33% of the documents have 1 sent"),
        (
            "The cat Ã©.\nThe mat.\n",
            r"1\.00% of the sentences .*wrong encoding.*bad \(50%\)",
        ),
        ("The catâ€™s.\nThe mat.\n", "of the sentences contain text like"),
        ("The cat \ufffd.\nThe mat.\n", "of the sentences contain text like"),
    ],
)
def test_warnings(examine, content, warning):
    report = examine({"good": unique_text(20), "bad": content})
    assert len([w for w in report["warnings"] if re.search(warning, w)]) == 1
