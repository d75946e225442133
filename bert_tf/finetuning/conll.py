# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""CoNLL column files in, sentences with entity tags out, and back.

A line is a word: its columns stand between spaces (CoNLL-2003) or tabs (WNUT), the word
itself first and its tag last. A blank line ends a sentence; a line that begins with
-DOCSTART- begins a document::

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tags are those of IOB1 or IOB2 (BIO): in IOB1 an entity begins with B only where it
follows another one of its type. What comes out is IOB2.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from bert_tf import storage

_DOCUMENT = "-DOCSTART-"
_SPACES = re.compile(" +")
_TAG = re.compile(r"O|[BI]-\S+")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a column file.

    Attributes:
        line: The line of its first word, from 1.
        rows: The columns of each word.
        document: The line -DOCSTART- before it, if it begins a document.
    """

    line: int
    rows: Sequence[Sequence[str]]
    document: str = ""

    @property
    def words(self) -> list[str]:
        return [row[0] for row in self.rows]


@dataclasses.dataclass(frozen=True)
class ColumnFile:
    """A column file in memory.

    Attributes:
        path: Where it was read from.
        separator: What separates the columns, a space or a tab.
        num_columns: That every word has.
        sentences: In the file's order; at least one.
    """

    path: pathlib.Path
    separator: str
    num_columns: int
    sentences: Sequence[Sentence]

    @classmethod
    def read(cls, path: str | os.PathLike) -> ColumnFile:
        """Reads a file; its first word says what separates columns, and how many.

        Raises:
            ValueError: The file has no word, is not UTF-8, or a row has more or fewer
                columns than the first; the message names file and line.
            OSError: It cannot be read.
        """
        path = pathlib.Path(path)
        separator, num_columns = "", 0
        sentences, rows, document = [], [], ""
        for number, line in _numbered(path):
            if not line.strip() or line.startswith(_DOCUMENT):
                if rows:
                    first = number - len(rows)
                    sentences.append(Sentence(first, rows, document))
                    rows, document = [], ""
                if line.startswith(_DOCUMENT):
                    document = line
                continue
            separator = separator or ("\t" if "\t" in line else " ")
            row = line.split("\t") if separator == "\t" else _SPACES.split(line)
            num_columns = num_columns or len(row)
            if len(row) != num_columns or not all(row):
                raise ValueError(
                    f"{path}, line {number}: {_plural(len(list(filter(None, row))))} "
                    f"where the first word has {num_columns}. Received: {line!r}"
                )
            rows.append(row)
        if not sentences:
            raise ValueError(f"{path} has no words.")
        return cls(path, separator, num_columns, sentences)

    @property
    def documents(self) -> Iterator[list[int]]:
        """Yields the numbers of the sentences of each document.

        Without -DOCSTART- in the file, every sentence is a document.
        """
        marked = any(sentence.document for sentence in self.sentences)
        document: list[int] = []
        for number, sentence in enumerate(self.sentences):
            if document and (sentence.document or not marked):
                yield document
                document = []
            document.append(number)
        yield document

    def tags(self) -> list[list[str]]:
        """Returns the last column of every sentence as IOB2.

        Raises:
            ValueError: It is no tag; the message names file and line.
        """
        for sentence in self.sentences:
            for line, row in enumerate(sentence.rows, start=sentence.line):
                if not _TAG.fullmatch(row[-1]) or self.num_columns == 1:
                    raise ValueError(
                        f"{self.path}, line {line}: the last column must be a tag: O, "
                        f"B-type or I-type. Received: {row[-1]!r}"
                    )
        return [iob2([row[-1] for row in s.rows]) for s in self.sentences]

    def write(self, path: pathlib.Path, tags: Iterable[Sequence[str]]) -> None:
        """Writes the file again, with a tag more at the end of every row.

        conlleval reads the result where the column before it is the gold tag.
        """
        with (
            storage.atomic_path(path) as unfinished,
            unfinished.open("w", encoding="utf-8", newline="\n") as file,
        ):
            for sentence, added in zip(self.sentences, tags, strict=True):
                if sentence.document:
                    file.write(f"{sentence.document}{self.separator}O\n\n")
                for row, tag in zip(sentence.rows, added, strict=True):
                    file.write(self.separator.join([*row, tag]) + "\n")
                file.write("\n")


def _numbered(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields the lines of a file from 1, and a blank one that ends it."""
    number = 0
    for number, line in enumerate(storage.read_lines(str(path)), start=1):
        yield number, line
    yield number + 1, ""


def _plural(columns: int) -> str:
    return f"{columns} column{'s' * (columns != 1)}"


def iob2(tags: Sequence[str]) -> list[str]:
    """Returns IOB1 or IOB2 tags of a sentence as IOB2.

    An I that nothing of its type precedes begins an entity, as in conlleval.

    >>> iob2(["I-PER", "I-PER", "B-PER", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'B-LOC']
    """
    result, before = [], "O"
    for tag in tags:
        begins = tag.startswith("I-") and tag[2:] != before[2:]
        result.append("B" + tag[1:] if begins else tag)
        before = tag
    return result
