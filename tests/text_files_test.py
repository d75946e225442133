# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile

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


@pytest.mark.parametrize("start", [0, 1])
def test_long_lines_are_read_in_pieces(tmp_path, start):
    path = str(tmp_path / "text")
    (tmp_path / "text").write_text("äöü bcd €fgh€ijkl\nshort\näöüßäöüßäöüß")
    whole = list(text_files.read_lines_from(path, start))
    pieces = list(text_files.read_lines_from(path, start, 7))
    assert len(pieces) > len(whole)
    assert max(len(piece.encode()) for _, piece in pieces) <= 9
    assert "".join(p for _, p in pieces) == "".join(line for _, line in whole)
    assert {offset for offset, _ in whole} <= {offset for offset, _ in pieces}


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_read_lines_names_line_that_is_not_utf8(tmp_path, compress):
    (tmp_path / "latin").write_bytes(
        compress("Eins.\nZwei.\nfünf.\n".encode("latin-1"))
    )
    with pytest.raises(ValueError, match=r"latin, line 3: not UTF-8 .* 0xfc"):
        list(text_files.read_lines(str(tmp_path / "latin")))


def test_error_after_a_start_offset_has_the_line_number_of_the_file(tmp_path):
    (tmp_path / "latin").write_bytes(b"One.\nTwo.\n\nThree.\nFour \xe9.\n")
    with pytest.raises(ValueError, match="line 5"):
        list(text_files.read_lines_from(str(tmp_path / "latin"), 7))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_damaged_compressed_file_is_named(tmp_path, compress):
    whole = compress(random.Random(0).randbytes(1000).hex().encode())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    for data in (whole[: len(whole) // 2], damaged):
        (tmp_path / "text").write_bytes(data)
        with pytest.raises(ValueError, match="text: damaged compressed file: "):
            list(text_files.read_lines(str(tmp_path / "text")))


def tar(name: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return file.getvalue()


def zip_(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, "text")
    return file.getvalue()


GERMAN = "Der Löwe schläft heute nacht.\r\nWach auf!\r\n"
CHINESE = "这是一个句子。\n那是另一个！\n"


# Compressed data of the `zstd` command; Parquet of pyarrow.
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GERMAN.encode("utf-16"), "is UTF-16, .*iconv -f UTF-16 -t UTF-8 .*text$"),
        ("\ufeffa".encode("utf-16-be"), "is UTF-16, .*iconv -f UTF-16 -t"),
        (CHINESE.encode("utf-16"), "is UTF-16, "),
        (GERMAN.encode("utf-16-le"), "is UTF-16LE, .*iconv -f UTF-16LE -t"),
        (GERMAN.encode("utf-16-be"), "is UTF-16BE, .*iconv -f UTF-16BE -t"),
        (CHINESE.encode("utf-16-le"), "not UTF-8 text .*iconv .*-f UTF-16LE"),
        ("Она осталась. \U0001f600\n".encode("utf-16-be") * 50, "is UTF-16BE"),
        ("می‌رود و".encode("utf-16-le"), "is UTF-16LE"),
        (GERMAN.encode("utf-32"), "is UTF-32, .*iconv -f UTF-32 -t"),
        (
            gzip.compress(GERMAN.encode("utf-16"), mtime=0),
            "UTF-16, .*Decompress it, then: iconv",
        ),
        (zip_("a.txt"), "is a zip archive, .*unzip .*text$"),
        (tar("a.txt"), "is a tar archive"),
        (gzip.compress(tar("a.txt"), mtime=0), "is a tar archive, .*tar -xf .*text$"),
        (b"\x28\xb5\x2f\xfd\x04\x58\x11\x00\x00\x61\x0a", "is Zstandard, .*zstd -d"),
        (b"PAR1\x15\x04\x15\x1a\x15", "is a Parquet file, .*pandas.read_parquet"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "is a 7-Zip archive"),
        (b"%PDF-1.7\n", "is a PDF file, .*pdftotext"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
            "is a Git LFS pointer, .*git lfs pull",
        ),
    ],
)
def test_other_formats_are_named_with_command(tmp_path, data, message):
    (tmp_path / "text").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        list(text_files.read_lines(str(tmp_path / "text")))


@pytest.mark.parametrize(
    "text",
    [
        "BZhang won in Paris.",
        "PK is a band. " * 20,
        "PAR1 is a gene.",
        "version 2",
        "One line with a \0 in it, and some more text.",
        "日本語 \0 のテキスト",
        "",
        "a",
    ],
)
def test_text_that_begins_like_another_format_is_read(tmp_path, text):
    (tmp_path / "text").write_bytes(text.encode())
    assert list(text_files.read_lines(str(tmp_path / "text"))) == [text] * bool(text)
