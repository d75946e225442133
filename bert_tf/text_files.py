# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads UTF-8 text files, local or remote, also compressed with gzip, bzip2 or xz."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import IO, Any

from bert_tf import storage

_FIRST_BYTES = 512

# The first bytes of compressed text, and the function that reads it.
_COMPRESSED = {
    rb"\x1f\x8b": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
}


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


def read_lines_from(path: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, text) of each line that begins at or after byte `start`.

    Raises:
        ValueError: As `read_lines`.
    """
    with open_text(path) as (file, _):
        if start:  # Begin one byte earlier, because a line may start at `start`.
            file.seek(start - 1)
            file.readline()
        offset = file.tell()
        try:
            while line := file.readline():
                encoding = "utf-8" if offset else "utf-8-sig"
                yield offset, line.decode(encoding).rstrip("\r\n")
                offset = file.tell()  # TensorFlow drops carriage returns of a bucket.
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {line_number(path, offset)}: not UTF-8 text "
                f"({error.reason} 0x{error.object[error.start]:02x} at byte "
                f"{error.start} of the line). Convert the file, for example: "
                "iconv -f CP1252 -t UTF-8, or with -f UTF-16, -f GB18030, ..."
            ) from None


@contextlib.contextmanager
def open_text(path: str) -> Iterator[tuple[IO[bytes], bool]]:
    """Opens a text file for reading; the first bytes, not the suffix, tell its format.

    Yields:
        The bytes of the text, and whether the file is compressed: gzip, bzip2 or xz.

    Raises:
        ValueError: The file is damaged, or binary: many of its first bytes are 0.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(storage.open_file(path, "rb"))
        head = _first_bytes(file)
        opened = [o for start, o in _COMPRESSED.items() if re.match(start, head)]
        try:
            if opened:
                file = stack.enter_context(opened[0](file))
                head = _first_bytes(file)
            if head.count(0) > len(head) / 4:
                raise ValueError(
                    f"{path} is not UTF-8 text, but UTF-16, an archive or another "
                    "binary file. Convert it, for example: iconv -f UTF-16 -t UTF-8"
                )
            yield file, bool(opened)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if getattr(error, "errno", None) or not opened:  # Not of the compression.
                raise
            raise ValueError(f"{path}: damaged compressed file: {error}") from error


def _first_bytes(file: IO[bytes]) -> bytes:
    head = file.read(_FIRST_BYTES)
    file.seek(0)
    return head


def line_number(path: str, offset: int) -> int:
    """Returns the number, from 1, of the line that begins at a byte offset."""
    with open_text(path) as (file, _):
        number = 1
        while file.tell() < offset:
            file.readline()
            number += 1
        return number
