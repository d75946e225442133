# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of bert_tf.text_files: encodings, line ends, compression, damaged files."""

import bz2
import gzip
import lzma
import random

import pytest

from bert_tf import text_files


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, bz2.compress, lzma.compress]
)
def test_read_lines_handles_byte_order_mark_line_ends_and_compression(
    tmp_path, compress
):
    text = "\ufeffDer Löwe\r\n\r\nschläft\u2028heute\n\ufeffnacht".encode()
    (tmp_path / "text").write_bytes(compress(text))
    assert list(text_files.read_lines(str(tmp_path / "text"))) == [
        "Der Löwe",
        "",
        "schläft\u2028heute",  # Only \n ends a line.
        "\ufeffnacht",  # A byte order mark only at the start of the file.
    ]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("start", [0, 5])
def test_line_that_is_not_utf8_is_named(tmp_path, compress, start):
    text = "Eins.\nZwei.\nfünf.\n".encode("latin-1")
    (tmp_path / "latin").write_bytes(compress(text))
    with pytest.raises(ValueError, match=r"latin, line 3: not UTF-8 .* 0xfc"):
        list(text_files.read_lines_from(str(tmp_path / "latin"), start))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_damaged_compressed_file_is_named(tmp_path, compress):
    whole = compress(random.Random(0).randbytes(1000).hex().encode())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    for data in (whole[: len(whole) // 2], damaged):
        (tmp_path / "text").write_bytes(data)
        with pytest.raises(ValueError, match="text: damaged compressed file: "):
            list(text_files.read_lines(str(tmp_path / "text")))


GERMAN = "Der Löwe schläft heute nacht.\r\nWach auf!\r\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GERMAN.encode("utf-16"), "text is not UTF-8 text, but UTF-16, .* -f UTF-16 -"),
        (gzip.compress(GERMAN.encode("utf-16-be"), mtime=0), "but UTF-16"),
        ("这是一个句子。\n".encode("utf-16-le"), "line 1: not UTF-8 text"),
        (bytes(512), "an archive or another binary file"),
    ],
)
def test_other_encodings_and_binary_files_are_refused(tmp_path, data, message):
    (tmp_path / "text").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(text_files.read_lines(str(tmp_path / "text")))


UNUSUAL = ["BZhang won in Paris.", "One line with a \0 in it.", "日本語 \0 のテキスト"]


@pytest.mark.parametrize("text", [*UNUSUAL, "", "a"])
def test_text_that_begins_like_another_format_is_read(tmp_path, text):
    (tmp_path / "text").write_bytes(text.encode())
    assert list(text_files.read_lines(str(tmp_path / "text"))) == [text] * bool(text)
