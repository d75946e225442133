# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.documents."""

import collections
import gzip
import json
import os
import pathlib
import random

import pytest

from bert_tf import storage
from bert_tf.data import TextConfig, documents
from bert_tf.data.layout import Layout


def write(path: pathlib.Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


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


UNWRAPPED = [
    "THE TITLE",
    "CHAPTER I",
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "It was the age of foolishness.",
    "It was the epoch of belief, it was the epoch of incredulity.",
]
PARAGRAPHS = "A first paragraph. It goes on.\n\nA second one.\n\nA third.\n"
ARTICLE = ["A city.", "It is old.", "It is large.", "It has a port.", "It is far."]
SIGNED = [["A."], ["B.", "C."], ["D."], ["E."]]
QUERIES = ["cheap Flights to rome", "Hotel near me", "weather"] * 5


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "separator", "expected"),
    [
        (
            TAGGED,
            "auto",
            [
                ["It is loud.", "It is old.", 'Rock "n" Roll'],
                ["No title line here."],
                ["The tag before was never closed."],
            ],
        ),
        (
            "One.\nTwo. And three.\n\n \t\nFour.\nFive.\n\n",
            "auto",
            [["One.", "Two.", "And three."], ["Four.", "Five."]],
        ),
        (WRAPPED, "auto", [UNWRAPPED]),
        # The separator of the user overrides the detection.
        (
            WRAPPED,
            "blank_line",
            [[line] for line in UNWRAPPED[:2]] + [UNWRAPPED[2:4], UNWRAPPED[4:]],
        ),
        ("One.\nTwo.\n\nThree.\nFour.", "file", [["One.", "Two.", "Three.", "Four."]]),
        # Posts of one or two lines are documents, unless the user tells otherwise.
        (
            PARAGRAPHS,
            "auto",
            [["A first paragraph.", "It goes on."], ["A second one."], ["A third."]],
        ),
        (
            PARAGRAPHS,
            "file",
            [["A first paragraph.", "It goes on.", "A second one.", "A third."]],
        ),
        (
            "Cities\n\nRome\n\n{0}\n\nOslo\n\n{0}\n".format("\n".join(ARTICLE)),
            "auto",
            [["Cities"], ["Rome"], ARTICLE, ["Oslo"], ARTICLE],
        ),
        # Short lines without full stops are not wrapped text.
        ("\n".join(QUERIES), "auto", [QUERIES]),
        # WikiText, on which d2l.ai pre-trains its BERT,
        (
            " \n = Rome = \n \n A city . It is old . \n \n = = Port = = \n \n Far . \n"
            " \n = Oslo = \n \n A city . \n",
            "auto",
            [["A city .", "It is old .", "Far ."], ["A city ."]],
        ),
        # files of TinyStories, and a part of a file of WikiExtractor.
        ("One.\n\nTwo.\n<|endoftext|>\nA.", "auto", [["One.", "Two."], ["A."]]),
        ("End.\n</doc>\n<doc id='1'>\nA.\n</doc>", "auto", [["End."], ["A."]]),
        # A line of punctuation that repeats, or a line of the user.
        *(
            (f"A.\n{rule}\nB.\n\nC.\n{rule}\nD.\n{rule}\nE.", separator, SIGNED)
            for rule, separator in [("%", "auto"), ("* * *", "auto"), ("END", "END")]
        ),
        ("A.\n\f\nB.\n\f\nC.", "auto", [["A."], ["B."], ["C."]]),
        ("One. Two.\nC.\n\nD.", "line", [["One.", "Two."], ["C."], ["D."]]),
        ("\n\n", "auto", []),
        ("\ufeff", "auto", []),
        ("<doc id='1'>\n</doc>\n", "auto", []),
    ],
)
def test_documents_of_text_files(tmp_path, text, separator, expected, line_end):
    assert read(tmp_path, text.replace("\n", line_end), separator) == expected


def lines_of(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("layout", ["tagged", "blank_line", "json"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_byte_ranges_contain_every_document_once(tmp_path, layout, line_end):
    rng = random.Random(f"{layout} {line_end}")
    texts = []
    for i in range(40):
        lines = [f"Line {i}.{j} é." for j in range(rng.randint(2, 5))]
        if layout == "json":
            texts.append(json.dumps({"text": "\n".join(lines)}, ensure_ascii=False))
            continue
        if layout == "tagged":
            lines = [f'<doc id="{i}" title="T{i}">', f"T{i}", "", *lines, "</doc>"]
        texts += [*lines, *[""] * rng.randint(layout != "tagged", 3)]
    text = line_end.join(texts).encode()
    path = write(tmp_path / "text.txt", text)
    layout = documents.detect_layout(path, TextConfig(input=path))
    whole = list(documents.read_documents(path))
    assert len(whole) == 40
    assert [len(d) for d in whole].count(1) == 0
    remote = f"ram://documents_test/{layout.separator}-{len(line_end)}"  # Not `gs://`.
    with storage.open_file(remote, "wb") as file:
        file.write(text)
    for name, size in [(path, 5), (path, 50), (remote, 333), (remote, 10_000)]:
        pieces = documents.split_file(name, layout, size)
        assert len(pieces) == -(-len(text) // size)
        assert [d for piece in pieces for d in piece.documents()] == whole


@pytest.mark.parametrize("separator", ["line", "%", "file"])
def test_ranges_of_other_separators(tmp_path, separator):
    lines = [f"{i}." if i % 3 else "%" for i in range(90)]
    path = write(tmp_path / "text.txt", "\n".join(lines))
    layout = Layout(separator)
    whole = list(documents.Range(path, layout).documents())
    assert len(whole) == {"line": 90, "%": 30, "file": 1}[separator]
    pieces = documents.split_file(path, layout, 7)
    assert [d for piece in pieces for d in piece.documents()] == whole


def test_gzip_and_tables_are_one_range(tmp_path):
    packed = write(tmp_path / "packed", gzip.compress(b"One.\nTwo.\n\n" * 100, 0))
    for layout in (Layout("blank_line"), Layout("table")):
        (whole,) = documents.split_file(packed, layout, 100)
        assert whole == (packed, layout, 0, documents.END_OF_FILE)


def test_text_columns(tmp_path):
    write(tmp_path / "a.CSV", 'id,body\n1,"One.\nTwo."\n2,Three.\n')
    write(tmp_path / "b.tsv", "body\tid\nFour.\t3\n")
    write(tmp_path / "c.jsonl", lines_of({"body": "Five."}))
    remote = "ram://documents_test/a.csv"
    storage.write_text(remote, "text\nOne.\n")
    assert list(documents.read_documents(remote)) == [["One."]]
    expected = {"a.CSV": [["One.", "Two."], ["Three."]], "b.tsv": [["Four."]]}
    for name, texts in (expected | {"c.jsonl": [["Five."]]}).items():
        path = str(tmp_path / name)
        assert list(documents.read_documents(path, text_column="body")) == texts
        with pytest.raises(ValueError, match=r"'text'.*body.*--text_column"):
            list(documents.read_documents(path))


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
            [UNWRAPPED, ["One", "Two"]],
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
        (lines_of({"text": "A."}, {"id": 2}), "line 2: .*'text', only id.*text_column"),
        (lines_of({"text": ["A."]}), r'line 1: .* must be text .* Got \["A."\]'),
        ('{"text": "A."}\n{"text": "B', "line 2: not a JSON object: Unterminated"),
        (json.dumps([{"text": "A."}], indent=1), r"line 1: .*per line: jq -c '\.\[\]'"),
        (json.dumps({"text": "A."}, indent=1), "line 1: .* object per line: jq -c ."),
        ('<mediawiki xml:lang="en">\n<page>', "is XML or HTML.* use WikiExtractor"),
    ],
)
def test_errors_name_line_and_command(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


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
        # nltk/nltk#2586
        "राम घर गया। | वह सो गया।",
        "هل هذا جيد؟ | نعم. | یہ ایک جملہ ہے۔ | ہاں۔",
        "An end.of.file is no end. | In v2.0 it is none. | Only 5 p.m. and 6 a.m. are",
        "Spaced out . | Like this ! | Or so",
        "No end at all",
    ],
)
def test_split_sentences(text):
    sentences = [part.strip() for part in text.split("|")]
    joined = text.replace("| ", "").replace("|", "")
    assert documents.split_sentences(joined) == sentences


# --- Real data -------------------------------------------------------------------

DATA = os.environ.get("BERT_TF_DATA")


@pytest.mark.skipif(not DATA, reason="BERT_TF_DATA is not set")
def test_layouts_of_real_text():
    books = f"{DATA}/books/*.txt"
    found = documents.list_texts(books, TextConfig(input=books)).values()
    layouts = collections.Counter(found)
    assert layouts == {Layout("file", True): 12, Layout("blank_line", False): 11}
    article = next(documents.read_documents(f"{DATA}/wikipedia_en/AA_wiki_00.txt"))
    assert article[0].startswith("Anarchism is a political philosophy that")
