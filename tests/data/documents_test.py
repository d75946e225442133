# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.documents."""

import gzip
import json
import os
import pathlib
import random

import pytest

from bert_tf import storage
from bert_tf.data import documents


def write(path: pathlib.Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# --- Files -----------------------------------------------------------------------


def test_remote_files_give_equal_documents(tmp_path):
    """Uses `ram://` in place of `gs://`."""
    text = "One.\nTwo.\n\nThree.\nFour.\n" * 9
    local = write(tmp_path / "a.txt", text)
    for name, data in (("a", text.encode()), ("b", gzip.compress(text.encode()))):
        with storage.open_file(f"ram://documents_test/{name}", "wb") as file:
            file.write(data)
    plain, packed = storage.expand_globs("ram://documents_test/*")
    assert storage.stat(plain)[0] == len(text)
    whole = list(documents.read_documents(local))
    assert list(documents.read_documents(packed)) == whole
    ranges = documents.byte_ranges(plain, 50)
    assert len(ranges) == 5
    found = [d for r in ranges for d in documents.read_documents(plain, "auto", *r)]
    assert found == whole


# --- Documents -------------------------------------------------------------------

TAGGED = """<doc id="1" url="http://x/1" title="Rock "n" Roll">
Rock "n" Roll

It is loud. It is old.
Rock "n" Roll
</doc>
<doc id="2" url="http://x/2" title="Empty">
Empty

</doc>
<doc id="3" url="http://x/3" title="Three">
No title line here.
<doc id="4" url="http://x/4" title="Four">
Four

The tag before was never closed.
</doc>
"""

WRAPPED = """THE TITLE

CHAPTER I

It was the best of times, it was the worst
of times, it was the age of wisdom. It was
the age of foolishness.

It was the epoch of belief, it was the epoch
of incredulity.
"""


def read(tmp_path, text, separator="auto"):
    path = write(tmp_path / "text.txt", text)
    return list(documents.read_documents(path, separator))


def test_doc_tags_separate_documents_and_titles_are_dropped(tmp_path):
    assert read(tmp_path, TAGGED) == [
        ["It is loud.", "It is old.", 'Rock "n" Roll'],
        ["No title line here."],
        ["The tag before was never closed."],
    ]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_blank_lines_separate_documents_of_several_lines(tmp_path, line_end):
    text = "One.\nTwo. And three.\n\n \t\nFour.\nFive.\n\n"
    assert read(tmp_path, text.replace("\n", line_end)) == [
        ["One.", "Two.", "And three."],
        ["Four.", "Five."],
    ]


def test_wrapped_lines_are_joined_into_one_document(tmp_path):
    assert read(tmp_path, WRAPPED.replace("\n", "\r\n")) == [
        [
            "THE TITLE",
            "CHAPTER I",
            "It was the best of times, it was the worst of times, it was the age of "
            "wisdom.",
            "It was the age of foolishness.",
            "It was the epoch of belief, it was the epoch of incredulity.",
        ]
    ]


def test_single_lines_between_blank_lines_are_paragraphs(tmp_path):
    text = "A first paragraph. It goes on.\n\nA second one.\n\nA third.\n"
    whole = ["A first paragraph.", "It goes on.", "A second one.", "A third."]
    assert read(tmp_path, text) == [whole]
    # The separator of the user overrides the detection.
    separated = [whole[:2], whole[2:3], whole[3:]]
    assert read(tmp_path, text, "blank_line") == separated


def test_titles_between_blank_lines_are_not_paragraphs(tmp_path):
    article = ["A city.", "It is old.", "It is large.", "It has a port.", "It is far."]
    text = "Cities\n\nRome\n\n{0}\n\nOslo\n\n{0}\n".format("\n".join(article))
    assert read(tmp_path, text) == [["Cities"], ["Rome"], article, ["Oslo"], article]


def test_separator_overrides_detection(tmp_path):
    text = "One.\nTwo.\n\nThree.\nFour.\n"
    assert read(tmp_path, text, "file") == [["One.", "Two.", "Three.", "Four."]]
    assert len(read(tmp_path, WRAPPED, "blank_line")) == 4


def test_short_lines_without_full_stops_are_not_wrapped_text(tmp_path):
    text = "\n".join(["cheap Flights to rome", "Hotel near me", "weather"] * 5)
    assert len(read(tmp_path, text)[0]) == 15


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", "<doc id='1'>\n</doc>\n"])
def test_empty_files_contain_no_documents(tmp_path, text):
    assert read(tmp_path, text) == []


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_byte_ranges_contain_every_document_once(tmp_path, tagged, line_end):
    rng = random.Random(f"{tagged} {line_end}")
    texts = []
    for i in range(40):
        lines = [f"Line {i}.{j} é." for j in range(rng.randint(2, 5))]
        if tagged:
            lines = [f'<doc id="{i}" title="T{i}">', f"T{i}", "", *lines, "</doc>"]
        texts += [*lines, *[""] * rng.randint(not tagged, 3)]
    path = write(tmp_path / "text.txt", line_end.join(texts))
    whole = list(documents.read_documents(path))
    assert len(whole) == 40
    assert [len(d) for d in whole].count(1) == 0
    for size in [5, 50, 333, 10_000]:
        pieces = documents.byte_ranges(path, size)
        assert len(pieces) == -(-os.path.getsize(path) // size)
        found = []
        for start, end in pieces:
            found += documents.read_documents(path, "auto", start, end)
        assert found == whole


def test_gzip_and_single_documents_are_one_range(tmp_path):
    lines = "One.\nTwo.\n\n" * 100
    whole = [(0, documents.END_OF_FILE)]
    packed = write(tmp_path / "packed", gzip.compress(lines.encode(), 0))
    assert documents.byte_ranges(packed, 100) == whole
    book = write(tmp_path / "book", lines)
    assert documents.byte_ranges(book, 100, "file") == whole
    assert len(documents.byte_ranges(book, 100)) == 11


def lines_of(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("separator", ["auto", "blank_line"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            lines_of({"id": 1, "text": "One. Two.\n\nThree."}, {"text": "É."}),
            [["One.", "Two.", "Three."], ["É."]],
        ),
        ('\ufeff\r\n{"text": "A."}\r\n\r\n{"text": "B."}', [["A."], ["B."]]),
        # WikiExtractor repeats the title in the text.
        (lines_of({"title": "Rome", "text": "Rome\n\nA city."}), [["A city."]]),
        (lines_of({"text": ""}, {"text": " \n"}, {"text": "A."}), [["A."]]),
        (lines_of({"text": "A line " * 200_000}), [[("A line " * 200_000).strip()]]),
        (
            lines_of({"text": WRAPPED}, {"text": "One\nTwo"}),
            [
                [
                    *("THE TITLE", "CHAPTER I"),
                    "It was the best of times, it was the worst of times, it was the "
                    "age of wisdom.",
                    "It was the age of foolishness.",
                    "It was the epoch of belief, it was the epoch of incredulity.",
                ],
                ["One", "Two"],
            ],
        ),
        ("{{Infobox}}\nA city.\n", [["{{Infobox}}", "A city."]]),
        ("{1, 2} is a set.\nIt is finite.\n", [["{1, 2} is a set.", "It is finite."]]),
    ],
)
def test_json_lines_are_documents(tmp_path, text, expected, separator):
    assert read(tmp_path, text, separator) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines_of({"id": 1, "body": "A."}), "line 1: .* no key 'text', only id, body"),
        (
            lines_of({"text": "A."}, {"id": 2}),
            "line 2: .*'text', only id.*jq -c '{text",
        ),
        (lines_of({"text": ["A."]}), r'line 1: .* a string. Got \["A."\]'),
        (lines_of({"text": "A."}, {}, {"text": None}), "line 2: .* no key 'text'"),
        (lines_of({"text": None}), "Got null.*jq -c 'select"),
        ('{"text": "A."}\n{"text": "B', "line 2: not a JSON object .Unterminated"),
        (json.dumps([{"text": "A."}]), r"line 1: .*jq -c '\.\[\]' .*text.txt$"),
        (json.dumps([{"text": "A."}], indent=1), r"line 1: .*jq -c '\.\[\]'"),
        (json.dumps({"text": "A."}, indent=1), "line 1: .* object per line: jq -c ."),
    ],
)
def test_errors_in_json_lines_name_line_and_command(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


def test_ranges_of_json_lines_contain_every_document_once(tmp_path):
    path = write(tmp_path / "a", lines_of(*({"text": "é" * i} for i in range(40))))
    whole = list(documents.read_documents(path))
    assert len(whole) == 39
    for size in (5, 50, 333):
        ranges = documents.byte_ranges(path, size)
        assert len(ranges) == -(-os.path.getsize(path) // size)
        parts = (documents.read_documents(path, "auto", *r) for r in ranges)
        assert [document for part in parts for document in part] == whole


# --- Blocks ----------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.04, 0.1, 0.5])
@pytest.mark.parametrize("size", [2, 3, 7, 40])
def test_share_of_held_out_documents(share, size):
    block = [("file", [str(i)]) for i in range(size)]
    counts = []
    for seed in range(2000):
        rng = random.Random(seed)
        splits = documents.hold_out(block, share, rng, is_first=False)
        held_out = splits.get("validation", [])
        assert sorted(splits["train"] + held_out) == sorted(block)
        assert len(held_out) != 1
        assert len(splits["train"]) > 1
        counts.append(len(held_out))
    if size > 3:  # Of fewer, two cannot be held out.
        expected = share * size
        deviation = max(expected, 2) ** 0.5 * 3 / 2000**0.5 * max(expected, 1) ** 0.5
        assert sum(counts) / len(counts) == pytest.approx(expected, abs=deviation)
    else:
        assert set(counts) == {0}


# --- Sentences -------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "One sentence. | Another one! | A third? | Yes.",
        "Dr. Smith met Mrs. Jones at St. Paul's. | They left.",
        "J. R. R. Tolkien wrote it. | He was born in 1892. | That is known.",
        "The U.S. Army came. | It left the U.S. | The end.",
        "It cost $3.50, i.e. 2.5 percent. | See Fig. 3 and pp. 4 and No. 5. | Right.",
        "He had nine. | 5 of them agreed.",
        "Acme Inc. Chairman Bob Jr. Miller spoke. | He worked for Acme Inc. | He left.",
        '"Stop!" he cried. | "Why?" | "Because." | She left (he stayed). | "Good."',
        "“Stop!” he cried. | ‘Why?’ | “Because.”",
        "Wait ... and see. | Wait... | Then see.",
        "1. An item. | 2. Another.",
        "Он ушёл. | Она осталась.",
        "这是一个句子。| 那是另一个！| 对吗？",
        "An end.of.file is no end. | In v2.0 it is none. | Only 5 p.m. and 6 a.m. are",
        "Spaced out . | Like this ! | Or so",
        "No end at all",
    ],
)
def test_split_sentences(text):
    sentences = [part.strip() for part in text.split("|")]
    joined = text.replace("| ", "").replace("|", "")
    assert documents.split_sentences(joined) == sentences


def test_split_sentences_keeps_all_characters():
    rng = random.Random(0)
    alphabet = [
        *"ab AB .!?\"')( ",
        "Mr.",
        "No. 5",
        "。",
        "\t",
        "U.S.",
        "Inc.",
        "…",
        ' "',
    ]
    for _ in range(2000):
        text = "".join(rng.choices(alphabet, k=rng.randint(0, 40)))
        sentences = documents.split_sentences(text)
        assert all(sentence == sentence.strip() != "" for sentence in sentences)
        assert "".join("".join(sentences).split()) == "".join(text.split())


# --- Real data -------------------------------------------------------------------

DATA = os.environ.get("BERT_TF_DATA")


@pytest.mark.skipif(not DATA, reason="BERT_TF_DATA is not set")
def test_layouts_of_real_text():
    books = storage.expand_globs(f"{DATA}/books/*.txt")
    assert {documents.detect_layout(book).separator for book in books} == {"file"}
    wrapped = [book for book in books if documents.detect_layout(book).is_wrapped]
    assert len(wrapped) == 12
    article = next(documents.read_documents(f"{DATA}/wikipedia_en/AA_wiki_00.txt"))
    assert article[0].startswith("Anarchism is a political philosophy that")
