# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.data.tables."""

import gzip
import re

import pytest

from bert_tf import text_files
from bert_tf.data import Table, read_table, write_table
from tests.toy.tables import write_file


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        (
            "a.tsv",
            '\ufefftext\tlabel\r\n"open quote\t1\r\n\r\n caf\u00e9\x85\u2028 \t0\r\n',
            [(2, ["1", '"open quote']), (4, ["0", " caf\u00e9\x85\u2028 "])],
        ),
        ("return.tsv", "text\tlabel\nx\ry\tz\n", [(2, ["z", "x\ry"])]),
        (
            "a.csv",
            'text,label\n"a, ""b""\n\nc",1\nd,0\n',
            [(2, ["1", 'a, "b"\n\nc']), (5, ["0", "d"])],
        ),
        (
            "a.jsonl",
            '{"x": [1], "text": "a\\tb", "label": 1.5}\n{"label": true, "text": ""}',
            [(1, ["1.5", "a\tb"]), (2, ["true", ""])],
        ),
        (
            "surrogates.json",  # An emoji, and half of one.
            '{"text": "\\ud83d\\ude00 \\uD83D", "label": "\\\\ud83d"}',
            [(1, ["\\ud83d", "\U0001f600 \ufffd"])],
        ),
    ],
)
def test_lines_and_values(tmp_path, name, content, rows):
    path = write_file(tmp_path / name, content)
    assert list(Table(path).rows(["label", "text"])) == rows
    if name == "a.tsv":  # Without a header.
        table = Table(path, columns=("label", "text"))
        assert next(table.rows(["text", "label"])) == (1, ["label", "text"])


CSV, TSV = "text,label\na film,good\n", "text\tlabel\na film\tgood\n"
JSONL = '{"text": "a film", "label": "good"}\n'


@pytest.mark.parametrize(
    ("names", "content"),
    [
        ("a.CSV a.csv.gz A.Csv.GZ a.csv.bak", CSV),
        ("a.json a.ndjson a.JSONL a.jsonl.gz a.json.gz", JSONL),
        ("a a.txt a.csv a.tsv.gz", "\ufeff\r\n" + JSONL.replace("\n", "\r\n")),
        ("a a.TSV a.txt a.tab a.tsv.gz a.gz", TSV),
    ],
)
def test_format_by_name_in_any_case_and_by_the_first_object(tmp_path, names, content):
    for name in names.split():
        for raw in (content.encode(), gzip.compress(content.encode())):
            path = write_file(tmp_path / name, raw)
            table = Table(path)
            assert table.columns == ("text", "label")
            rows = [values for _, values in table.rows(["label", "text"])]
            assert rows == [["good", "a film"]]


BAD_LINES = [
    # Name, content, line and message.
    ("a.tsv", "text\tlabel\nx\t1\ncut\ny\t0\n", "3: expected 2 columns (text, label)"),
    ("a.csv", "text,label\nx,1\ncut\ny,0\n", "3: expected 2 columns (text, label), "),
    ("a.jsonl", '{"text": "x"}\n{"text": "cut\n{"text": "y"}\n', "2: not a JSON"),
    ("a.jsonl", '{"text": "x"}\n{"text": null}\n{"text": "y"}\n', "2: 'text' must be"),
    ("a.jsonl", '{"text": "x"}\n{"txt": "z"}\n{"text": "y"}\n', "2: the object has n"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_LINES)
def test_skip_malformed_rows(tmp_path, caplog, name, content, message):
    path = write_file(tmp_path / name, content)
    table = Table(path, skip_malformed=True)
    assert [values for _, values in table.rows(["text"])] == [["x"], ["y"]]
    assert f"{name}: 1 rows are malformed. They are skipped." in caplog.text


def test_quotes_of_csv_in_tsv_are_reported(tmp_path, caplog):
    """primeqa/primeqa#441: pandas.to_csv(sep="\\t") doubles quotes."""
    cells = ['"a ""big"" cat"', '"cat"', '"" ""', '"']
    path = write_file(tmp_path / "a.tsv", "\n".join(["text", *cells]))
    assert [values for _, values in Table(path).rows(["text"])] == [[x] for x in cells]
    assert "a.tsv: 1 rows have quotes as in CSV" in caplog.text


UNCLOSED = 'text,label\n"a\nb",1\n"x,1\ny,2\n'


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *((name, content, f"{name}, line {m}") for name, content, m in BAD_LINES),
        ("a.tsv", "", "a.tsv is empty"),
        ("a.csv", UNCLOSED, "a.csv, line 4: invalid CSV: unexpected end of data. Q"),
        ("a.json", '[{"text": "x"}]', "Write one object per line: jq -c '.[]'."),
        ("a.tsv", b"text\na\n\xff\n", "a.tsv, line 3: not UTF-8"),
    ],
)
def test_malformed_file_error_names_file_and_line(tmp_path, name, content, message):
    path = write_file(tmp_path / name, content)
    with pytest.raises(ValueError, match=re.escape(message)):
        list(Table(path).rows(["text"]))


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("a.tsv", "sentence\tlabel", "no column 'text'. Its .*sentence, .* --text_a"),
        ("a.csv", ",text,label,label,", "has 2 columns 'label'"),
        ("a.csv", "text;label", "else by tabs, not by ';'"),
        ("a.csv", "a,b", "has no column 'label', no column 'text'. Its col"),
        ("a.jsonl", '{}\n{"text": "x"}', "has no column 'label'. .* with --text_a"),
    ],
)
def test_missing_column(tmp_path, name, header, message):
    table = Table(write_file(tmp_path / name, f"{header}\n"))
    with pytest.raises(ValueError, match=message):
        next(table.rows(["label", "text"], flags="--text_a"))


def test_files_and_objects_may_lack_optional_columns(tmp_path):
    content = '{"text": "a"}\n{"id": "i7", "text": "b"}\n{"id": null, "text": "c"}\n'
    table = Table(write_file(tmp_path / "a.jsonl", content))
    assert table.columns == ("text",)  # Of the first object.
    rows = list(table.rows(["text", "id"], optional=["id"]))
    assert rows == [(1, ["a", None]), (2, ["b", "i7"]), (3, ["c", None])]
    with pytest.raises(ValueError, match="line 2: 'id' must be text or a number"):
        read_table(write_file(tmp_path / "b.jsonl", content.partition("\n")[2]))
    for name in ("a.tsv", "a.csv"):
        table = Table(write_file(tmp_path / name, "text\na\n"))
        rows = list(table.rows(["id", "text"], optional=["id"]))
        assert rows == [(2, [None, "a"])]


@pytest.mark.parametrize("content", ["text\tn\na\t1\n", "\n{}\n"])
def test_a_table_is_opened_once(tmp_path, monkeypatch, content):
    opened, read_lines = [], text_files.read_lines
    monkeypatch.setattr(
        text_files, "read_lines", lambda path: opened.append(path) or read_lines(path)
    )
    path = write_file(tmp_path / "a.txt", content.replace("{}", '{"text": "a"}'))
    assert [values for _, values in Table(path).rows(["text"])] == [["a"]]
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("table.tsv", b"text\t"),
        ("table.CSV", b"text,"),
        ("table.NDJSON", b'{"text"'),
        ("table.csv.gz", b"\x1f\x8b"),
        ("table.JSONL.BZ2", b"BZh"),
    ],
)
def test_write_and_read_round_trip(tmp_path, name, start):
    long = "word " * 200_000
    rows = [{"text": long, "score": 0.5}, {"text": 'é, "漢', "score": 1}]
    write_table(tmp_path / name, rows)
    read = [values for _, values in Table(tmp_path / name).rows(["score", "text"])]
    assert read == [["0.5", long], ["1", 'é, "漢']]
    assert list(tmp_path.iterdir()) == [tmp_path / name]
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize(("name", "read"), [("a.tsv", "x y z"), ("a.csv", "x\ny\tz")])
def test_line_breaks_in_names_and_cells(tmp_path, name, read):
    """Labels are in the names of columns; tools take a lone CR as the end of a line."""
    write_table(tmp_path / name, [{"P(x\ny\tz)": "x\ry\tz"}])
    assert b"\r" not in (tmp_path / name).read_bytes()
    table = Table(tmp_path / name)
    assert table.columns == (f"P({read})",)
    assert list(table.rows(table.columns)) == [(2 + read.count("\n"), [read])]
