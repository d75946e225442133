# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.lint: text files with known problems."""

import collections
import itertools
import re

import pytest

from bert_tf.data import CorpusConfig, jobs, lint, repeats, token_store

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


@pytest.fixture
def examine(tmp_path, vocabulary, monkeypatch):
    def examine(texts: dict[str, str], chunk: int = 7) -> dict:
        for name, text in texts.items():
            if not (tmp_path / name).exists():  # The store checks its time.
                (tmp_path / name).write_text(text, encoding="utf-8")
        options = CorpusConfig(
            input="",
            vocabulary="",
            output=str(tmp_path),
            token_store=str(tmp_path / "store"),
            document_separator="blank_line",
        )
        files = [str(tmp_path / name) for name in texts]
        with jobs.Workers(1) as workers:
            token_store.build_token_store(options, files, vocabulary, workers)
        monkeypatch.setattr(repeats, "_CHUNK", chunk)
        report = lint.report(str(tmp_path / "store"), vocabulary)
        by_name = {path.rsplit("/", 1)[1]: c for path, c in report["sources"].items()}
        return report | {"sources": by_name, "warnings": lint.warnings(report)}

    return examine


def test_good_text_has_no_warnings(examine):
    report = examine({"a": unique_text(20), "b": unique_text(30, start=20)})
    assert report["warnings"] == []
    assert report["most_repeated"] == []
    assert report["total"] == {
        "documents": 50,
        "sentences": 150,
        "tokens": 1500,
        "unknown": 0,
        "continuations": 0,
        "garbled": 0,
        "one_sentence_documents": 0,
        "repeated_sentences": 0,
        "repeated_tokens": 0,
        "duplicate_documents": 0,
    }


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_repeats_are_counted_in_the_file_of_the_repeat(examine, chunk):
    texts = {
        "a": unique_text(20),
        "b": "a b c.\nd e f.\n\n" + unique_text(9, start=50) + "\na b c.\n",
        "c": unique_text(5) + "\n\nx.\ny.\n\n" + unique_text(15, start=5),
        "d": "Á B  c.\nTHE CAT SAT ON A A A A A.\n",  # Equal after normalization.
    }
    report = examine(texts, chunk)
    seen = collections.Counter()
    for name, text in texts.items():
        expected = {"sentences": 0, "tokens": 0}
        for line in filter(None, text.split("\n")):
            line = " ".join(line.lower().replace("á", "a").split())
            if seen[line]:
                expected["sentences"] += 1
                expected["tokens"] += len(re.findall(r"\w+|[.,]", line))
            seen[line] += 1
        counts = report["sources"][name]
        assert counts["repeated_sentences"] == expected["sentences"], name
        assert counts["repeated_tokens"] == expected["tokens"], name
    documents = [c["duplicate_documents"] for c in report["sources"].values()]
    assert documents == [0, 0, 20, 0]
    assert report["most_repeated"][:3] == [
        [3, "the cat sat on a a a a a ."],
        [3, "a b c ."],
        [2, "the cat sat on a a a a b ."],
    ]
    assert len(report["most_repeated"]) == 10
    repeats, copies = report["warnings"]
    assert repeats.startswith("More than 5.00% of the tokens are in sentences that occ")
    assert "In 2 of 4 files: " in repeats
    assert "d (100%)" in repeats
    assert copies.endswith("c (95%)")


def test_boilerplate_is_quoted_in_warning(examine):
    documents = unique_text(150).split("\n\n")
    menu = "Cats on the mats, the cats."
    report = examine({"a": "\n\n".join(f"{menu}\n{text}" for text in documents)})
    assert report["most_repeated"] == [[150, "cats on the mats , the cats ."]]
    assert any(
        "'cats on the mats , the cats .' (150 times)" in warning
        for warning in report["warnings"]
    )


@pytest.mark.parametrize(
    ("text", "warning"),
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
def test_warnings(examine, text, warning):
    report = examine({"good": unique_text(20), "bad": text})
    assert len([w for w in report["warnings"] if re.search(warning, w)]) == 1


def test_non_english_text_is_not_garbled(examine):
    text = "« Déjà vu » à Âge d’or.\nNÃO é ação – ok…\nЭто кот.\nŁódź “é”.\n"
    assert examine({"a": text})["total"]["garbled"] == 0


def test_warning_lists_three_files(examine):
    texts = {"good": unique_text(5)} | {f"empty{i}": "" for i in range(9)}
    (warning,) = examine(texts)["warnings"]
    assert warning.startswith("9 of 10 files contain no document: ")
    assert warning.endswith("empty2 and 6 more")


def test_table_has_total_and_largest_files(examine):
    texts = {f"f{i:02d}": unique_text(i + 1, start=100 * i) for i in range(14)}
    report = examine(texts)
    lines = lint.table(report).split("\n")
    assert len(lines) == 1 + 1 + 10
    assert lines[1].endswith("0.00%  all 14 files")
    assert lines[2].split()[-1] == "f13"
    assert lines[1].split()[:3] == ["105", "315", "3,150"]


def test_report_is_cached(examine, monkeypatch):
    first = examine({"a": unique_text(5)})
    monkeypatch.setattr(lint, "count_repeats", None)  # Not called again.
    assert examine({"a": unique_text(5)}) == first
