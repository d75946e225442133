# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads UTF-8 text files, local or remote, also compressed with gzip, bzip2 or xz.

Files of other encodings and formats are refused with the command that converts them.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

from bert_tf import storage

# The first bytes of compressed text, and the function that reads it.
_COMPRESSED = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
}

# The first bytes of files that are not UTF-8 text, and the command that converts them.
_PANDAS = "import pandas; pandas.read_parquet('{path}').to_json('{path}.jsonl'"
_NOT_TEXT = {
    rb"\xff\xfe\0\0|\0\0\xfe\xff": ("UTF-32", "iconv -f UTF-32 -t UTF-8 {path}"),
    rb"\xff\xfe|\xfe\xff": ("UTF-16", "iconv -f UTF-16 -t UTF-8 {path}"),
    rb"(.[\0-\x08]){2}": ("UTF-16LE", "iconv -f UTF-16LE -t UTF-8 {path}"),
    rb"([\0-\x08].){2}": ("UTF-16BE", "iconv -f UTF-16BE -t UTF-8 {path}"),
    rb"PAR[1E]\x15": (
        "a Parquet file",
        f"python -c \"{_PANDAS}, orient='records', lines=True)\"",
    ),
    rb"PK(\x03\x04|\x05\x06|\x07\x08)": ("a zip archive", "unzip {path}"),
    rb".{257}ustar": ("a tar archive", "tar -xf {path}"),
    rb"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "7z x {path}"),
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": ("Zstandard", "zstd -d {path}"),
    rb"%PDF-": ("a PDF file", "pdftotext {path}"),
    rb"version https://git-lfs": ("a Git LFS pointer", "git lfs pull"),
}
_FIRST_BYTES = 512


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a UTF-8 text file without line ends.

    The file may begin with a byte order mark and have Unix or Windows line ends.

    Raises:
        ValueError: The file is not UTF-8, and as `open_text`. The message names the
            file and, if the text begins as UTF-8, the line.
    """
    return (line for _, line in read_lines_from(path, 0))


def parse_json(text: str) -> Any:
    """Parses JSON. Lone surrogates, as of a truncated emoji, become U+FFFD."""
    value = json.loads(text)
    if r"\ud" not in text.lower():
        return value
    raw = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(raw.decode("utf-16", "replace"))


def read_lines_from(
    path: str, start: int, max_bytes: int = -1
) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, text) of each line that begins at or after byte `start`.

    Lines of local and compressed files that are longer than `max_bytes`, unless
    negative, are yielded in pieces.

    Raises:
        ValueError: As `read_lines`.
    """
    with open_text(path) as (file, is_compressed):
        # The `readline` of a remote file has no limit and drops carriage returns.
        is_plain = not storage.is_remote(path) or is_compressed
        limit = (max_bytes,) if is_plain else ()
        offset = 0
        if start:  # Begin one byte earlier, because a line may start at `start`.
            file.seek(start - 1)
            while (piece := file.readline(*limit)) and not piece.endswith(b"\n"):
                pass
            offset = file.tell()
        encoding = "utf-8" if offset else "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)()  # Joins cut characters.
        try:
            while line := file.readline(*limit):
                is_complete = line.endswith(b"\n") or len(line) != max_bytes
                yield offset, decoder.decode(line, is_complete).rstrip("\r\n")
                offset = offset + len(line) if is_plain else file.tell()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {line_number(path, offset)}: not UTF-8 text "
                f"({error.reason} 0x{error.object[error.start]:02x} at byte "
                f"{error.start} of the line). Convert the file, for example: "
                "iconv -f CP1252 -t UTF-8, or with -f UTF-16LE, -f GB18030, ..."
            ) from None


@contextlib.contextmanager
def open_text(path: str) -> Iterator[tuple[IO[bytes], bool]]:
    """Opens a text file for reading; the first bytes, not the suffix, tell its format.

    Yields:
        The bytes of the text, and whether the file is compressed: gzip, bzip2 or xz.

    Raises:
        ValueError: The file is UTF-16, an archive or another known format, or is
            damaged. The message names the format and the command that converts it.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(storage.open_file(path, "rb"))
        head = _first_bytes(file)
        opened = [o for start, o in _COMPRESSED.items() if re.match(start, head)]
        try:
            if opened:
                file = stack.enter_context(opened[0](file))
                head = _first_bytes(file)
            _check_is_text(head, path, is_compressed=bool(opened))
            yield file, bool(opened)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None) or not opened:  # Not of the compression.
                raise
            raise ValueError(f"{path}: damaged compressed file: {error}") from error


def _first_bytes(file: IO[bytes]) -> bytes:
    head = file.read(_FIRST_BYTES)
    file.seek(0)
    return head


def _check_is_text(head: bytes, path: str, is_compressed: bool) -> None:
    for start, (name, command) in _NOT_TEXT.items():
        if re.match(start, head, re.DOTALL):
            first = "Decompress it, then: " if is_compressed else "Convert it: "
            raise ValueError(
                f"{path} is {name}, not UTF-8 text. {first}{command.format(path=path)}"
            )


def line_number(path: str, offset: int) -> int:
    """Returns the number, from 1, of the line that begins at a byte offset."""
    with open_text(path) as (file, _):
        number = 1
        while file.tell() < offset:
            file.readline()
            number += 1
        return number
