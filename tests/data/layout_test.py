# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.layout: what is detected, refused and printed."""

import random
import textwrap

import pytest

from bert_tf.data import TextConfig, documents
from bert_tf.data.layout import Layout
from tests.toy.tables import write_file

WORDS = ["the", "old", "captain", "walked", "slowly", "harbor", "while", "gulls"]
HINDI = ["यह", "एक", "लंबा", "वाक्य", "है", "जो", "कई", "पंक्तियों", "में", "टूटा"]
HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年"
RNG = random.Random(0)


def sentence(words=WORDS, end="."):
    return " ".join(RNG.choices(words, k=RNG.randint(5, 20))).capitalize() + end


def paragraph(**options):
    return " ".join(sentence(**options) for _ in range(5))


def repeat(make, count=60, between="\n"):
    return between.join(make() for _ in range(count))


def wrap(text="", **options):
    return textwrap.fill(text or paragraph(), 70, **options)


def han_lines():
    text = "".join("".join(RNG.choices(HAN, k=20)) + "。" for _ in range(6))
    return "\n".join(text[i : i + 35] for i in range(0, len(text), 35))


INDENTED = {"initial_indent": "   ", "subsequent_indent": "   "}
LINES, BOOK = Layout("blank_line"), Layout("file", True)


def detect(tmp_path, text, **options):
    path = write_file(tmp_path / "text.txt", text)
    (file,) = documents.list_texts(TextConfig(input=path, **options))
    return file.layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        # Wrapped: books, also indented, of scripts without capitals or spaces.
        (repeat(wrap, between="\n\n"), BOOK),
        (repeat(lambda: wrap(initial_indent="    ")), BOOK),
        (repeat(lambda: wrap(**INDENTED), between="\n\n"), BOOK),
        (repeat(lambda: wrap(paragraph(words=HINDI, end="।")), between="\n\n"), BOOK),
        (repeat(han_lines, between="\n\n"), BOOK),
        # Quotations with their authors between lines of "%".
        (repeat(lambda: f"{wrap()}\n\t\t-- A. B.\n%"), Layout("%", True)),
        # Not wrapped: sentences, words, posts, verses, records, k-mers.
        (repeat(sentence, 300), LINES),
        (repeat(lambda: sentence().lower()[:-1], 300), LINES),
        (repeat(lambda: sentence(HINDI, "।"), 300), LINES),
        (repeat(lambda: RNG.choice(WORDS), 300), LINES),
        (repeat(lambda: sentence() + "\n" * RNG.randint(0, 1), 300), LINES),
        (repeat(lambda: repeat(lambda: sentence()[:-1], 4), 60, "\n\n"), LINES),
        (repeat(lambda: " ".join(RNG.choices(["ACG", "TTA"], k=16))), LINES),
        (repeat(lambda: f"[12:{RNG.randint(10, 59)}] <a> {sentence()}"), LINES),
        # A scene break of a book does not separate documents.
        (repeat(lambda: repeat(wrap, 9, "\n\n"), 5, "\n\n***\n\n"), BOOK),
    ],
)
def test_detected_layouts(tmp_path, text, layout):
    assert detect(tmp_path, text) == layout
    assert detect(tmp_path, text, wrapped_lines="yes").is_wrapped
    assert not detect(tmp_path, text, wrapped_lines="no").is_wrapped
    assert detect(tmp_path, text, document_separator="line").separator == "line"


def test_indented_lines_begin_paragraphs():
    lines = ["Title", "  One", "  line.", "", "\tTwo", "words", "  -- A. B."]
    assert documents.unwrap(lines) == ["Title", "One line.", "Two words", "-- A. B."]
    assert documents.unwrap(["这是", "一个", "句子"]) == ["这是一个句子"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<!DOCTYPE html>\nA.", "XML or HTML"),
        (repeat(lambda: f"<p>{sentence()}</p>"), "XML or HTML"),
        (repeat(lambda: f"<DOC>\n<TEXT>\n{sentence()}\n</TEXT>\n</DOC>"), "XML"),
        (repeat(lambda: f".SH A\n.PP\n{sentence()}"), "a manual page"),
        (repeat(lambda: f"1\n00:01:02,003 --> 00:01:04,005\n{sentence()}\n"), "subt"),
        (repeat(lambda: f'#: a.c:1\nmsgid "{sentence()}"\nmsgstr ""\n'), "PO"),
        (f"From a@b.c Mon Jan  1 12:00:00 2024\nSubject: A\n\n{sentence()}", "mailbox"),
        (f"\\documentclass{{book}}\n\\begin{{document}}\n{sentence()}", "TeX"),
        (repeat(lambda: "int f(int a) {\n  return a;\n}\n"), "source code"),
        (repeat(lambda: "walked\tVBD\tO"), "a table"),
    ],
)
def test_markup_is_refused_unless_the_user_names_a_separator(tmp_path, text, name):
    with pytest.raises(ValueError, match=f"{name}.*--document_separator=blank_line"):
        detect(tmp_path, text)
    found = detect(tmp_path, text, document_separator="blank_line")
    assert found.separator == "blank_line"


def test_misspelled_separator_is_refused():
    with pytest.raises(ValueError, match=r"one of auto, blank.* Received: 'blank'"):
        TextConfig(input="", document_separator="blank")


def test_preview_shows_what_is_learned(tmp_path, capsys):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("One. Two.\nThree.\n\n# Four\n\n# Five.\n\n" * 9)
    (tmp_path / "c.txt").write_text("Six.\n%\nSeven.\n%\nEight.\n%\n")
    (tmp_path / "d.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    pattern = f"{tmp_path}/*.txt"
    texts = documents.list_texts(TextConfig(input=pattern))
    assert f"warning: {tmp_path}/d.txt is a vocabulary" in capsys.readouterr().out
    assert documents.preview(texts).split("\n") == [
        f"{tmp_path}/a.txt and 1 more: a blank line ends a document, a line end ends a "
        "sentence.",
        "  Documents: 54, sentences: 90. The first two, as they are learned:",
        "    1. One. | Two. | Three.",
        "    2. # Four",
        f"{tmp_path}/c.txt: a line '%' ends a document, a line end ends a sentence.",
        "  Documents: 3, sentences: 3. The first two, as they are learned:",
        "    1. Six.",
        "    2. Seven.",
        "If that is wrong, pass --document_separator (blank_line, line, file, doc_tag, "
        "or a line between documents, such as '%') or --wrapped_lines (yes, no).",
    ]


def test_preview_of_a_large_text_is_of_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_PREVIEW_CHARACTERS", 10)
    path = write_file(tmp_path / "text.txt", "One two three.\n\n" * 9)
    preview = documents.preview(documents.list_texts(TextConfig(input=path)))
    assert "Documents: 1, sentences: 1 in the first 0.0 million characters" in preview
