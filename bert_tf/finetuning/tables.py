# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""TSV, CSV and JSONL files in, rows out, each with the number of its line; and back.

The ending of the name decides: `.csv` is comma-separated with double quotes (RFC
4180; a quoted field may span lines), `.jsonl` has one object per line, and all else
is tab-separated without quoting, as the files of the benchmarks are. Text is UTF-8.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import storage
from bert_tf.data.documents import read_lines

# Python's reader stops at 128 KiB per field; a text may be a whole book.
csv.field_size_limit(2**31 - 1)


class Table:
    """A file of rows with named columns.

    Args:
        path: The file.
        columns: Names of the columns where the file has no header; of a JSONL file,
            the keys of the first object are the names.

    Raises:
        ValueError: The file is empty or not UTF-8.
        OSError: It cannot be read.
    """

    def __init__(self, path: str | os.PathLike, columns: Sequence[str] = ()):
        self.path = pathlib.Path(path)
        self._has_header = self.path.suffix != ".jsonl" and not columns
        _, first = next(self._records(), (0, None))
        if first is None:
            raise ValueError(f"{path} is empty.")
        self.columns = tuple(columns or first)

    def require(self, columns: Sequence[str], flags: str) -> None:
        """Raises ValueError for a column that is missing; `flags` choose them."""
        for column in columns:
            if column not in self.columns:
                raise ValueError(
                    f"{self.path} has no column {column!r}. It has: "
                    f"{', '.join(self.columns)}. The columns are chosen by {flags}."
                )

    def rows(
        self, columns: Sequence[str], *, skip_bad_rows: bool = False
    ) -> Iterator[tuple[int, list[str]]]:
        """Yields `(line, values)`, the values of `columns` in their order.

        Args:
            columns: Names out of `self.columns`.
            skip_bad_rows: Leave out, and count in a warning, what would raise.

        Raises:
            ValueError: A row has more or fewer columns than the header, or an object
                lacks a key or has no text there; the message names file and line.
        """
        records, skipped = self._records(), 0
        if self._has_header:
            next(records)
        for line, record in records:
            try:
                values = self._pick(record, columns)
            except ValueError as error:
                if not skip_bad_rows:
                    message = f"{self.path}, line {line}: {error}"
                    raise ValueError(message) from None
                skipped += 1
            else:
                yield line, values
        if skipped:
            logging.warning("%s: %d malformed rows left out.", self.path, skipped)

    def _records(self) -> Iterator[tuple[int, Any]]:
        read = {".csv": _read_csv, ".jsonl": _read_jsonl}
        return read.get(self.path.suffix, _read_tsv)(self.path)

    def _pick(self, record: Any, columns: Sequence[str]) -> list[str]:
        if isinstance(record, dict):
            return [_text(record, key) for key in columns]
        if len(record) != len(self.columns):
            raise ValueError(
                f"{len(record)} column{'s' * (len(record) != 1)} instead of "
                f"{len(self.columns)} ({', '.join(self.columns)})."
            )
        return [record[self.columns.index(column)] for column in columns]


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a TSV, .csv or .jsonl file of at least one row, all with the same keys.

    What the file held before stays until the new one is complete.
    """
    with (
        storage.atomic_path(path) as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        else:
            dialect = "excel" if path.suffix == ".csv" else "excel-tab"
            writer = csv.DictWriter(file, rows[0], dialect=dialect, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def read(path: str | os.PathLike) -> list[dict[str, str]]:
    """Returns the rows of a file with a header, by the names of its columns.

    Raises:
        ValueError, OSError: As for `Table` and its `rows`.
    """
    table = Table(path)
    return [
        dict(zip(table.columns, values, strict=True))
        for _, values in table.rows(table.columns)
    ]


def _read_tsv(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(read_lines(str(path)), start=1):
        if line:
            yield number, line.split("\t")


def _read_csv(path: pathlib.Path) -> Iterator[tuple[int, list[str]]]:
    # Strict: otherwise a quote that is never closed swallows the rest of the file.
    reader = csv.reader((f"{line}\n" for line in read_lines(str(path))), strict=True)
    number = 1
    try:
        for fields in reader:
            if fields:
                yield number, fields
            number = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {number}: not CSV: {error}.") from error


def _read_jsonl(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_lines(str(path)), start=1):
        if line:
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}, line {number}: not JSON: {error}") from error
            if not isinstance(record, dict):
                raise ValueError(f"{path}, line {number}: not a JSON object: {line}")
            yield number, record


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise ValueError(
        f"{key!r} must be text or a number. Received: {json.dumps(value)}"
        if key in record
        else f"the object has no {key!r}. It has: {', '.join(record)}."
    )
