# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes CoNLL column files: sentences of words with entity tags.

A line is a word. Its columns are separated by spaces (CoNLL-2003) or tabs (WNUT), the
word first and its tag last. A blank line ends a sentence; a line that starts with
-DOCSTART- begins a document::

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

Tags are IOB1 or IOB2 (BIO). In IOB1, B marks only entities that directly follow another
one of their type. Tags are returned as IOB2, where B marks the start of every entity.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Sequence

from bert_tf import storage

_DOCUMENT = "-DOCSTART-"
_SPACES = re.compile(" +")
_TAG = re.compile(r"O|[BI]-\S+")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence of a column file.

    Attributes:
        line: Line number of the first word, from 1.
        rows: The columns of each word.
        document: The -DOCSTART- line if the sentence begins a document, else "".
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
        path: The file.
        separator: Separator of the columns, a space or a tab.
        num_columns: Number of columns of every word.
        sentences: At least one, in the order of the file.
    """

    path: pathlib.Path
    separator: str
    num_columns: int
    sentences: Sequence[Sentence]

    @classmethod
    def read(cls, path: str | os.PathLike) -> ColumnFile:
        """Reads a file. Its first word determines the separator and `num_columns`.

        Raises:
            ValueError: The file has no words or is not UTF-8, or a word has more or
                fewer columns than the first one. The message has file and line.
            OSError: The file cannot be read.
        """
        path = pathlib.Path(path)
        separator, num_columns = "", 0
        sentences, rows, document = [], [], ""
        lines = itertools.chain(storage.read_lines(str(path)), [""])
        for number, line in enumerate(lines, start=1):
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
                columns = len(list(filter(None, row)))
                raise ValueError(
                    f"{path}, line {number}: every word must have {num_columns} "
                    f"columns, as the first one. Got {columns} in {line!r}."
                )
            rows.append(row)
        if not sentences:
            raise ValueError(f"{path} contains no words.")
        return cls(path, separator, num_columns, sentences)

    def pack(self, sizes: Sequence[int], limit: int) -> list[int]:
        """Groups consecutive sentences of a document up to a total size.

        Without -DOCSTART- lines, every sentence is a document.

        Args:
            sizes: Size of each sentence.
            limit: Maximum size of a group. A larger sentence is a group by itself.

        Returns:
            The first sentence of each group.
        """
        has_documents = any(sentence.document for sentence in self.sentences)
        firsts, total = [], 0
        for index, sentence in enumerate(self.sentences):
            total += sizes[index]
            is_new_document = sentence.document or not has_documents
            if is_new_document or total > limit or not firsts:
                firsts.append(index)
                total = sizes[index]
        return firsts

    def tags(self, types: Collection[str] | None = None) -> list[list[str]]:
        """Returns the last column of every sentence as IOB2 tags.

        Args:
            types: The known entity types; None allows all.

        Raises:
            ValueError: A value is not a tag, or its type is unknown. The message has
                file and line.
        """
        for sentence in self.sentences:
            for line, row in enumerate(sentence.rows, start=sentence.line):
                tag = row[-1]
                if not _TAG.fullmatch(tag) or self.num_columns == 1:
                    raise ValueError(
                        f"{self.path}, line {line}: the last column must be a tag: O, "
                        f"B-type or I-type. Got {tag!r}."
                    )
                if types is not None and tag != "O" and tag[2:] not in types:
                    raise ValueError(
                        f"{self.path}, line {line}: entity type {tag[2:]!r} does not "
                        "occur in the training data. Types in the training data: "
                        f"{', '.join(types)}."
                    )
        return [to_iob2([row[-1] for row in s.rows]) for s in self.sentences]

    def write(self, path: pathlib.Path, tags: Iterable[Sequence[str]]) -> None:
        """Writes the file to `path` with one more column, the tags.

        This is the input of conlleval: the gold tag second to last, the predicted one
        last.
        """
        with (
            storage.atomic_path(path) as unfinished,
            unfinished.open("w", encoding="utf-8", newline="\n") as file,
        ):
            for sentence, column in zip(self.sentences, tags, strict=True):
                if sentence.document:
                    file.write(f"{sentence.document}{self.separator}O\n\n")
                for row, tag in zip(sentence.rows, column, strict=True):
                    file.write(self.separator.join([*row, tag]) + "\n")
                file.write("\n")


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Converts IOB1 or IOB2 tags of a sentence to IOB2.

    An I without a predecessor of its type begins an entity, as in conlleval.

    >>> to_iob2(["I-PER", "I-PER", "B-PER", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'B-LOC']
    """
    result, previous = [], "O"
    for tag in tags:
        is_first = tag.startswith("I-") and tag[2:] != previous[2:]
        result.append("B" + tag[1:] if is_first else tag)
        previous = tag
    return result
