# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes text and JSON at local and remote paths.

Text is UTF-8 and may be compressed with gzip, bzip2 or xz.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import pathlib
import re
import zlib
from collections.abc import Iterator, Mapping
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


def read_lines_from(path: str, start: int) -> Iterator[tuple[int, str]]:
    """Yields (byte offset, text) of each line that begins at or after byte `start`.

    Raises:
        ValueError: As `read_lines`.
    """
    with open_text(path) as (file, _):
        if start:  # Begin one byte earlier, because a line may start at `start`.
            file.seek(start - 1)
            file.readline()
        offset, is_exact = file.tell(), not storage.is_remote(path)
        try:
            while line := file.readline():
                encoding = "utf-8" if offset else "utf-8-sig"
                yield offset, line.decode(encoding).rstrip("\r\n")
                # TensorFlow drops carriage returns of a bucket.
                offset = offset + len(line) if is_exact else file.tell()
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
        if not file.seekable():
            raise ValueError(f"{path} is a pipe. It must be a file, to be read twice.")
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


def write_text(path: str, text: str) -> None:
    """Writes a file atomically."""
    with storage.atomic_write(path) as file:
        file.write(text.encode("utf-8"))


# --- JSON ------------------------------------------------------------------------


def parse_json(text: str) -> Any:
    """Parses JSON. Lone surrogates, as of a truncated emoji, become U+FFFD."""
    value = json.loads(text)
    if r"\ud" not in text.lower():
        return value
    raw = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(raw.decode("utf-16", "replace"))


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file, see `parse_json`.

    Raises:
        ValueError: The file is not valid JSON, or as `read_lines`; the message names
            it.
    """
    text = "\n".join(read_lines(os.fspath(path)))
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error


def read_json_object(path: pathlib.Path, **fields: Any) -> dict[str, Any]:
    """Reads a JSON object; returns an empty dictionary if there is no such file.

    Args:
        path: The file.
        **fields: As in `check_fields`.

    Raises:
        ValueError: The file is not valid JSON, not an object, or a value is not
            allowed. The message names the file.
    """
    if not path.is_file():
        return {}
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} must contain a JSON object. Received: {values!r:.80}")
    check_fields(path, values, **fields)
    return values


def check_fields(path: Any, values: Mapping[str, Any], **fields: Any) -> None:
    """Checks values that are neither absent nor null.

    Args:
        path: The place to name in the error.
        values: The values by name.
        **fields: The type, or a tuple or range of allowed values, of each field; None
            allows any.

    Raises:
        ValueError: A value is not allowed.
    """
    for key, allowed in fields.items():
        if allowed is None or (value := values.get(key)) is None:
            continue
        is_type = isinstance(allowed, type)
        if isinstance(value, allowed) if is_type else value in allowed:
            continue
        if is_type:
            rule = f"have the type {allowed.__name__}"
        elif isinstance(allowed, range):
            rule = f"be from {allowed[0]} to {allowed[-1]}"
        else:
            rule = f"be {' or '.join(map(repr, allowed)) or 'null'}"
        raise ValueError(f"{path}: {key} must {rule}. Received: {key}={value!r:.80}")


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_text(os.fspath(path), json.dumps(value, indent=2) + "\n")
