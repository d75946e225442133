# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.documents."""

import collections
import gzip
import json
import os
import random

import pytest

from bert_tf import storage, text_files
from bert_tf.data import TextFilesConfig, documents
from bert_tf.data.layout import Layout
from tests.toy.tables import write_file as write

# --- Documents -------------------------------------------------------------------

TAGGED = (
    '<doc id="1" url="http://x/1" title="Rock "n" Roll">\nRock "n" Roll\n\n'
    'It is loud. It is old.\nRock "n" Roll\n</doc>\n'
    '<doc id="2" url="http://x/2" title="Empty">\nEmpty\n\n</doc>\n'
    '<doc id="3" url="http://x/3" title="Three">\nNo title line here.\n'
    '<doc id="4" url="http://x/4" title="Four">\nFour\n\nThe tag was never closed.\n'
)
LOUD = 'It is loud. | It is old. | Rock "n" Roll'
WRAPPED = (
    "THE TITLE\n\nCHAPTER I\n\nIt was the best of times, it was the worst\n"
    "of times, it was the age of wisdom. It was\nthe age of foolishness.\n\n"
    "It was the epoch of belief, it was the epoch\nof incredulity.\n"
)


def open_text(path, **options) -> documents.TextRange:
    (text,) = documents.list_texts(TextFilesConfig(input=str(path), **options))
    return text


def joined(text: documents.TextRange) -> str:
    """Returns the documents, as "Sentence. | Sentence. || Next document."."""
    return " || ".join(map(" | ".join, text.documents()))


def lines_of(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


UNWRAPPED = (
    "THE TITLE | CHAPTER I | It was the best of times, it was the worst of times, it "
    "was the age of wisdom. | It was the age of foolishness. | It was the epoch of "
    "belief, it was the epoch of incredulity."
)
# The separator of the user overrides the detection.
SEPARATED = "THE TITLE || CHAPTER I ||" + UNWRAPPED.split("I |")[1].replace(
    "foolishness. |", "foolishness. ||"
)
PARAGRAPHS = "A first paragraph. It goes on.\n\nA second one.\n\nA third.\n"
ARTICLE = ["A city.", "It is old.", "It is large.", "It has a port.", "It is far."]
CITIES = "Cities\n\nRome\n\n{0}\n\nOslo\n\n{0}".format("\n".join(ARTICLE))
SHORT = " | ".join(["the end."] * 4)
JSON = "Up. | No. | C. || É."
LONG = "A line " * 200_000
QUERIES = ["cheap Flights to rome", "Hotel near me", "weather"] * 5
# WikiText, on which d2l.ai pre-trains its BERT.
WIKI_TEXT = " = Rome =\n A city .\n = = Port = =\n Far .\n \n = Oslo = \n \n A city .\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("text", "separator", "expected"),
    [
        (TAGGED, "auto", f"{LOUD} || No title line here. || The tag was never closed."),
        ("A.\nB. And c.\n\n \t\nD.\nE.\n\n", "auto", "A. | B. | And c. || D. | E."),
        (WRAPPED, "auto", UNWRAPPED),
        (WRAPPED, "blank_line", SEPARATED),
        ("A.\nB.\n\nC.\nD.", "file", "A. | B. | C. | D."),
        # Posts of one or two lines are documents, unless the user tells otherwise.
        (PARAGRAPHS, "auto", PARAGRAPHS.strip().replace("\n\n", " || ")),
        (PARAGRAPHS, "file", PARAGRAPHS.strip().replace("\n\n", " | ")),
        (CITIES, "auto", CITIES.replace("\n\n", " || ").replace("\n", " | ")),
        # Short lines without full stops are not wrapped text.
        ("\n".join(QUERIES), "auto", " | ".join(QUERIES)),
        (WIKI_TEXT, "auto", "A city . | Far . || A city ."),
        # Files of TinyStories, and a part of a file of WikiExtractor.
        ("One.\n\nTwo.\n<|endoftext|>\nA.", "auto", "One. | Two. || A."),
        ("End.\n</doc>\n<doc id='1'>\nA.\n</doc>", "auto", "End. || A."),
        # A line of punctuation that repeats, or a line of the user.
        *(
            (f"A.\n{x}\nB.\n\nC.\n{x}\nD.\n{x}\nE.", y, "A. || B. | C. || D. || E.")
            for x, y in [("%", "auto"), ("* * *", "auto"), ("END", "END")]
        ),
        ("A.\n\f\nB.\n\f\nC.", "auto", "A. || B. || C."),
        ("One. Two.\nC.\n\nD.", "line", "One. | Two. || C. || D."),
        ("\n\n", "auto", ""),
        ("\ufeff", "auto", ""),
        ("<doc id='1'>\n</doc>\n", "auto", ""),
        # JSON lines. WikiExtractor repeats the title in the text.
        (lines_of({"text": "Up. No.\n\nC."}, {"text": "É."}), "auto", JSON),
        (lines_of({"text": "Up. No.\n\nC."}, {"text": "É."}), "blank_line", JSON),
        ('\ufeff\n{"text": "A."}\n\n{"text": "B."}', "auto", "A. || B."),
        (lines_of({"title": "Rome", "text": "Rome\n\nA city."}), "auto", "A city."),
        (lines_of({"text": ""}, {"text": " \n"}, {"text": "A."}), "auto", "A."),
        (lines_of({"text": LONG}), "auto", LONG.strip()),
        # Lines of lower case are sentences, also before "\r\n" and spaces.
        *(
            (lines_of({"text": f"the end.{x}" * 4}), "auto", SHORT)
            for x in ("\n", "\r\n", " \n")
        ),
        (
            lines_of({"text": WRAPPED}, {"text": "A\nB"}),
            "auto",
            f"{UNWRAPPED} || A | B",
        ),
        ("{{Infobox}}\nA city.\n", "auto", "{{Infobox}} | A city."),
        ("{1, 2} is a set.\nIt is.\n", "auto", "{1, 2} is a set. | It is."),
    ],
)
def test_documents_of_text_files(tmp_path, text, separator, expected, line_end):
    path = write(tmp_path / "text.txt", text.replace("\n", line_end))
    found = joined(open_text(path, document_separator=separator))
    assert found == expected.replace(". It goes", ". | It goes")


LAYOUTS = ["doc_tag", "json", "blank_line", "line", "%", "file"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", LAYOUTS)
def test_byte_ranges_contain_every_document_once(tmp_path, separator, line_end):
    rng = random.Random(f"{separator} {line_end}")
    texts, count = [], 0
    for i in range(40):
        lines = [f"Line {i}.{j} é." for j in range(rng.randint(2, 5))]
        count += {"line": len(lines), "file": i == 0}.get(separator, 1)
        if separator == "json":
            texts.append(json.dumps({"text": "\n".join(lines)}, ensure_ascii=False))
        elif separator == "doc_tag":
            lines = [f'<doc id="{i}" title="T{i}">', f"T{i}", "", *lines, "</doc>"]
            texts += [*lines, *[""] * rng.randint(0, 3)]
        else:
            between = "%" if separator == "%" else ""
            texts += [*lines, *[between] * rng.randint(1, 3)]
    text = line_end.join(texts).encode()
    is_detected = separator in LAYOUTS[:3]
    options = {} if is_detected else {"document_separator": separator}
    file = open_text(write(tmp_path / "text.txt", text), **options)
    assert file.layout.separator == separator
    whole = list(file.documents())
    assert len(whole) == count
    assert separator == "line" or [len(d) for d in whole].count(1) == 0
    remote = f"ram://documents_test/{separator}-{len(line_end)}"  # Not `gs://`.
    with storage.open_file(remote, "wb") as copy:
        copy.write(text)
    there = file._replace(path=remote)
    for each, size in [(file, 5), (file, 50), (there, 333), (there, 10_000)]:
        pieces = each.split(size)
        assert len(pieces) == (1 if separator == "file" else -(-len(text) // size))
        assert sum(piece.size for piece in pieces) == len(text)
        assert [d for piece in pieces for d in piece.documents()] == whole


def test_compressed_files_and_tables_are_not_divided(tmp_path):
    packed = write(tmp_path / "packed", gzip.compress(b"One.\nTwo.\n\n" * 100, 0))
    table = write(tmp_path / "a.csv", "text\n" + "One.\n" * 100)
    for path in (packed, table):
        file = open_text(path)
        assert file.split(100) == [file]
        assert file.size == os.path.getsize(path)


def test_text_columns(tmp_path):
    remote = "ram://documents_test/a.csv"
    text_files.write_text(remote, "text\nOne.\n")
    assert list(open_text(remote).documents()) == [["One."]]
    for name, content, expected in [
        ("a.CSV", 'id,body\n1,"One.\nTwo."\n2,Three.\n', "One. | Two. || Three."),
        ("b.tsv", "body\tid\nFour.\t3\n", "Four."),
        ("c.jsonl", lines_of({"body": "Five."}), "Five."),
    ]:
        path = write(tmp_path / name, content)
        assert joined(open_text(path, text_column="body")) == expected
        with pytest.raises(ValueError, match=r"'text'.*body.*--text_column"):
            list(open_text(path).documents())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines_of({"text": "A."}, {"id": 2}), "line 2: .*'text', only id.*text_column"),
        (json.dumps([{"text": "A."}], indent=1), r"line 1: .*per line: jq -c '\.\[\]'"),
        (json.dumps({"text": "A."}, indent=1), "line 1: .* per line: jq -c '.'.$"),
        ('<mediawiki xml:lang="en">\n<page>', "is XML or HTML.* use WikiExtractor"),
    ],
)
def test_errors_name_line_and_command(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        list(open_text(write(tmp_path / "text.txt", text)).documents())


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


def test_layouts_of_real_text(real_data):
    options = TextFilesConfig(input=f"{real_data}/books/*.txt")
    layouts = collections.Counter(x.layout for x in documents.list_texts(options))
    assert layouts == {Layout("file", True): 12, Layout("blank_line", False): 11}
    article = next(open_text(real_data / "wikipedia_en/AA_wiki_00.txt").documents())
    assert article[0].startswith("Anarchism is a political philosophy that")
