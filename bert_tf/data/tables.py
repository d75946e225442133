# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TSV, CSV and JSONL tables; errors name the file and the line.

The file name decides the format, in any case and without `.gz`, `.bz2` or `.xz`: `.csv`
is comma-separated with double quotes (RFC 4180; a quoted field may span lines);
`.jsonl`, `.ndjson` and `.json` have one object per line, as has any file that begins
with one. All other files are tab-separated without quoting, as benchmarks such as GLUE
ship them. Text is UTF-8.
"""

from __future__ import annotations

import bz2
import collections
import contextlib
import csv
import functools
import gzip
import itertools
import json
import lzma
import operator
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import logging

from bert_tf import storage, text_files

# The default limit of 128 KiB per field is too small for a text as long as a book.
csv.field_size_limit(2**31 - 1)


# A cell of CSV whose quotes are doubled.
_QUOTED = re.compile(r'"[^"]*""([^"]|"")*"')

# Cells without a value, as in `pandas.read_csv`.
MISSING_VALUES = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
     "1.#QNAN", "<NA>", "N/A", "NA", "NAN", "NULL", "NaN", "None", "n/a", "nan", "null")
)  # fmt: skip

_SUFFIXES = {".tsv": ".tsv", ".csv": ".csv"}
_SUFFIXES |= dict.fromkeys((".jsonl", ".ndjson", ".json"), ".jsonl")
_COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def _suffix(path: str | os.PathLike) -> str:
    """Returns the format that the name of a table selects."""
    suffixes = map(str.lower, reversed(pathlib.PurePath(path).suffixes))
    return next(filter(None, map(_SUFFIXES.get, suffixes)), ".tsv")


class Table:
    """A file of rows with named columns. It is opened once, and read as a stream.

    Args:
        path: The file.
        columns: Column names of a file without a header.
        skip_malformed: Skip malformed rows, and log how many, instead of raising.
            Invalid CSV always raises.

    Attributes:
        suffix: The format: ".csv", ".jsonl" or ".tsv".
        lines: All lines, for readers of other formats. They are consumed, as by `rows`.
        first_line: The first line that is not empty; "" if all are.

    Raises:
        ValueError: The file is not UTF-8.
        OSError: The file cannot be read.

    Example:

    ```python
    from bert_tf.data import Table, write_table

    write_table("train.csv", [{"text": "a cat", "label": 1}])
    list(Table("train.csv").rows(["label", "text"]))  # [(2, ["1", "a cat"])]
    ```
    """

    def __init__(
        self,
        path: str | os.PathLike,
        columns: Sequence[str] = (),
        skip_malformed: bool = False,
    ):
        self.path = os.fspath(path)
        self._skip_malformed = skip_malformed
        self.lines, ahead = itertools.tee(text_files.read_lines(self.path))
        self.first_line = next(filter(None, ahead), "")
        del ahead  # It would keep all lines.
        is_json = self.first_object is not None
        self.suffix = ".jsonl" if is_json else _suffix(path)
        self._records = self._read_records(self.lines)
        if columns:
            self.columns = tuple(columns)

    @functools.cached_property
    def first_object(self) -> dict[str, Any] | None:
        """The JSON object in the first line; None if it has none."""
        with contextlib.suppress(ValueError):
            return parse_object(self.first_line)

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """The column names. Those of a JSONL file are the keys of its first object.

        Raises:
            ValueError: The file is empty.
        """
        line, record = next(self._records, (0, None))
        if not line:
            raise ValueError(f"{self.path} is empty.")
        if self.suffix != ".jsonl":
            return tuple(self._cells(record))
        self._records = itertools.chain([(line, record)], self._records)
        try:
            return tuple(parse_object(record))
        except ValueError as error:
            raise ValueError(f"{self.path}, line {line}: {error}") from None

    def rows(
        self,
        columns: Sequence[str] | None = None,
        *,
        flags: str = "",
        nested: Collection[str] = (),
        optional: Collection[str] = (),
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yields `(line, values)`, with the values of `columns` in that order.

        Call it once: it consumes the file.

        Args:
            columns: Names of columns; by default all.
            flags: The flags that select columns, for the message about a missing one.
            nested: Columns of a JSONL file whose values may also be null, lists or
                objects. All other values are returned as strings.
            optional: Columns that the file, or objects of a JSONL file, may lack. Their
                value is then None.

        Raises:
            ValueError: The file has no such column, or several. Or a row is malformed:
                it has more or fewer columns than the header, or is no object, or an
                object without text or number under a key. The message names file and
                line.
        """
        if columns is None:
            columns = self.columns
        else:
            self.require(columns, flags, optional)
        notes = collections.Counter()
        for line, record in self._records:
            try:
                values = self._select(record, columns, nested, optional)
            except ValueError as error:
                if not self._skip_malformed:
                    raise ValueError(f"{self.path}, line {line}: {error}") from None
                notes["are malformed. They are skipped."] += 1
            else:
                cells = filter(None, values)
                if self.suffix == ".tsv" and any(map(_QUOTED.fullmatch, cells)):
                    notes["have quotes as in CSV, which TSV lacks. Use .csv."] += 1
                yield line, values
        for note, count in notes.items():
            logging.warning("%s: %d rows %s", self.path, count, note)

    def require(
        self, columns: Iterable[str], flags: str = "", optional: Collection[str] = ()
    ) -> None:
        """Raises ValueError unless the file has each column once; as `rows`."""
        counts = {column: self.columns.count(column) for column in columns}
        wrong = [
            f"no column {x!r}" for x, n in counts.items() if not (n or x in optional)
        ]
        wrong += [f"{n} columns {x!r}" for x, n in counts.items() if n > 1]
        if not wrong:
            return
        rule = f"Select columns with {flags}." if flags else "Rename its columns."
        first = "".join(self.columns[:1])
        found = re.search("[;,\t]", first)
        if found and len(self.columns) == 1:
            rule = "Separate columns by commas in a .csv file, else by tabs"
            rule += f", not by {found[0]!r}."
        if first.startswith("sep="):
            rule = f"Remove its first line, {first!r}, of Excel."
        raise ValueError(
            f"{self.path} has {', '.join(wrong)}. Its columns are: "
            f"{', '.join(self.columns)}. {rule}"
        )

    def _read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, Any]]:
        """Yields the number and the line, or in CSV the cells, of each row."""
        if self.suffix != ".csv":
            yield from filter(operator.itemgetter(1), enumerate(lines, start=1))
            return
        number = 1
        # Strict mode reports an unclosed quote, which otherwise swallows the rest.
        reader = csv.reader((f"{line}\n" for line in lines), strict=True)
        try:
            for cells in reader:
                if cells:
                    yield number, cells
                number = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(
                f"{self.path}, line {number}: invalid CSV: {error}. Quotes must be "
                "closed, and line ends must be LF or CRLF, also within quotes."
            ) from error

    def _cells(self, record: Any) -> list[str]:
        return record if self.suffix == ".csv" else record.split("\t")

    def _select(
        self,
        record: Any,
        columns: Sequence[str],
        nested: Collection[str],
        optional: Collection[str],
    ) -> list[Any]:
        if self.suffix == ".jsonl":
            values = parse_object(record)
            absent = {key for key in optional if values.get(key) is None}
            return [
                None if key in absent else text_value(values, key, key in nested)
                for key in columns
            ]
        cells = self._cells(record)
        if len(cells) != len(self.columns):
            raise ValueError(
                f"expected {len(self.columns)} columns ({', '.join(self.columns)}), "
                f"got {len(cells)}."
            )
        values = dict(zip(self.columns, cells))
        return [values.get(column) for column in columns]


def write_table(path: str | os.PathLike, rows: Iterable[Mapping[str, Any]]) -> int:
    """Writes a TSV, .csv or .jsonl file atomically; returns the number of rows.

    Args:
        path: The file; its name selects the format and compression as in `Table`. Tabs
            and line breaks become spaces in TSV, which has no quotes. In CSV, a
            carriage return becomes a line feed.
        rows: At least one row; all have the same keys. They are not kept in memory.
    """
    path, suffix, count = pathlib.Path(path), _suffix(path), 0
    open_text = _COMPRESSED.get(path.suffix.lower(), open)
    with (
        storage.atomic_path(path) as temporary,
        open_text(temporary, "wt", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        for count, row in enumerate(rows, start=1):
            if suffix == ".jsonl":
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                continue
            for cells in [row.values()] if count > 1 else [row.keys(), row.values()]:
                if suffix == ".tsv":
                    cells = (re.sub(r"[\t\r\n]", " ", str(cell)) for cell in cells)
                    file.write("\t".join(cells) + "\n")
                else:  # `csv` does not quote carriage returns.
                    writer.writerow(re.sub("\r\n?", "\n", str(cell)) for cell in cells)
    return count


def read_table(path: str | os.PathLike) -> list[dict[str, str]]:
    """Returns the rows of a file with a header as dictionaries by column name.

    Raises:
        ValueError, OSError: As in `Table` and `Table.rows`.
    """
    table = Table(path)
    return [dict(zip(table.columns, values)) for _, values in table.rows()]


def parse_object(line: str) -> dict[str, Any]:
    """Parses a line of a JSONL file.

    Raises:
        ValueError: The line is not an object. The message ends with a command.
    """
    try:
        record = text_files.parse_json(line)
        if not isinstance(record, dict):
            raise ValueError(line[:80])
    except (ValueError, RecursionError) as error:
        items = "'.[]'" if line.lstrip().startswith("[") else "'.'"
        raise ValueError(
            f"not a JSON object: {error}. Write one object per line: jq -c {items}."
        ) from None
    return record


def text_value(record: dict[str, Any], key: str, may_be_nested: bool = False) -> Any:
    """Returns the text or number under a key as a string.

    Raises:
        ValueError: The key is missing; or the value is null, a list or an object, and
            `may_be_nested` is False.
    """
    if key not in record:
        raise ValueError(f"the object has no key {key!r}, only {', '.join(record)}.")
    value = record[key]
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if not isinstance(value, str) and not may_be_nested:
        shown = json.dumps(value)[:80]
        raise ValueError(f"{key!r} must be text or a number. Got {shown}.")
    return value
