# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads sentences of words with entity tags, and writes CoNLL column files.

In a column file, a line is a word. Its columns are separated by spaces (CoNLL-2003) or
tabs (WNUT), the word first and its tag last. A blank line ends a sentence; a line that
starts with -DOCSTART- begins a document; lines that start with "#" and a blank and do
not have the columns of a word are comments::

    EU NNP B-NP B-ORG
    rejects VBZ B-VP O

A .jsonl file has one sentence per line, as in Hugging Face's data sets, a .csv file
with a header one word per line. If the name of its first column begins with "sent",
that column numbers the sentences, and may be empty after the first word::

    {"tokens": ["EU", "rejects"], "ner_tags": ["B-ORG", "O"]}

    sentence,word,tag
    1,EU,B-ORG
    1,rejects,O

Tags are IOB1, IOB2 (BIO), BIOES, BILOU or BMES. In IOB1, B marks only entities that
directly follow another one of their type. Tags are returned as IOB2, where B marks the
start of every entity. The type of tags without one, as in B, I, O, is "_", as in
seqeval.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from absl import logging

from bert_tf import storage
from bert_tf.data import Table
from bert_tf.finetuning.task import Example

_DOCUMENT = "-DOCSTART-"
_SPACES = re.compile(" +")
_COMMENT = re.compile(r"#\s")
_SEPARATORS = re.compile(r"[\t\r\n]")
_TAG = re.compile(r"O|[BIESLUMW](-\S+)?")
# By prefixes of BIOES, BILOU and BMES: a word inside, at the end, or alone.
_IOB = {"M": "I", "E": "I", "L": "I", "S": "B", "U": "B", "W": "B"}
_LAST = "ELSUW"

# Line number and content of each line: the columns of a word, [] for a blank line, the
# text of a -DOCSTART- line, or "" for a sentence without words.
_Rows: TypeAlias = list[tuple[int, list[str] | str]]


class Sentence(NamedTuple):
    """A sentence of a column file.

    Attributes:
        lines: Line number of each word, from 1; of a sentence without words, its own.
        rows: The columns of each word.
        begins_document: Whether -DOCSTART- lines are before the sentence.
    """

    lines: Sequence[int]
    rows: Sequence[Sequence[str]]
    begins_document: bool

    @property
    def words(self) -> list[str]:
        return [row[0] for row in self.rows]


@dataclasses.dataclass(frozen=True)
class ColumnFile:
    """A file of tagged sentences in memory.

    Attributes:
        path: The file.
        separator: Separator of the columns, a space or a tab.
        rows: The columns of all lines; none for a blank line, a string for others.
        sentences: At least one, in the order of the file.
    """

    path: pathlib.Path
    separator: str
    rows: Sequence[Sequence[str]]
    sentences: Sequence[Sentence]

    @classmethod
    def read(cls, path: str | os.PathLike) -> ColumnFile:
        """Reads a file. Its first word determines the separator and `num_columns`.

        Raises:
            ValueError: The file has no words or is not UTF-8, a word has more or fewer
                columns than the first one, or the first column counts the words. The
                message has the file and, for a word, the line.
            OSError: The file cannot be read.
        """
        path = pathlib.Path(path)
        table = Table(path)
        read = {".csv": _read_csv, ".jsonl": _read_jsonl}.get(table.suffix)
        separator, lines = ("\t", read(table)) if read else _read_columns(table)
        sentences, begins_document = [], False
        for is_word, group in itertools.groupby(lines, lambda line: _is_word(line[1])):
            numbers, rows = zip(*group)
            if is_word:
                sentences.append(Sentence(numbers, rows, begins_document))
            empty = [n for n, row in zip(numbers, rows) if row == ""]
            sentences += [Sentence((number,), (), False) for number in empty]
            begins_document = not is_word and any(rows)
        if not any(sentence.rows for sentence in sentences):
            raise ValueError(f"{path} contains no words.")
        file = cls(path, separator, [row for _, row in lines], sentences)
        for number, row in lines:
            if _is_word(row) and (len(row) != file.num_columns or not all(row)):
                raise ValueError(
                    f"{path}, line {number}: every word must have {file.num_columns} "
                    f"columns, as the first one. Got {sum(map(bool, row))} in "
                    f"{separator.join(row)!r}. A line has one word. For raw text, "
                    "use `bert_tf.load`, or export the model."
                )
        if file.num_columns > 1 and _are_counted(sentences):
            raise ValueError(
                f"{path}: the first column must be the word. Got numbers that count "
                f"the words: {', '.join(sentences[0].words[:3])}, ... Remove this "
                "column, for example with `cut -f2-` in a file with tabs."
            )
        spaced = [row[0] for _, row in lines if _is_word(row) and " " in row[0]]
        if spaced:
            logging.warning(
                "%s: %d words contain blanks, such as %r. They count as one word each, "
                "whose tag is that of their first piece.",
                path, len(spaced), spaced[0][:80],
            )  # fmt: skip
        return file

    @property
    def num_columns(self) -> int:
        """Number of columns of every word."""
        return len(next(s.rows[0] for s in self.sentences if s.rows))

    def pack(self, sizes: Sequence[int], limit: int) -> list[int]:
        """Groups consecutive sentences of a document up to a total size.

        Without -DOCSTART- lines, every sentence is a document.

        Args:
            sizes: Size of each sentence.
            limit: Maximum size of a group. A larger sentence is a group by itself.

        Returns:
            The first sentence of each group.
        """
        has_documents = any(sentence.begins_document for sentence in self.sentences)
        firsts, total = [], 0
        for index, sentence in enumerate(self.sentences):
            total += sizes[index]
            is_new_document = sentence.begins_document or not has_documents
            if is_new_document or total > limit or not firsts:
                firsts.append(index)
                total = sizes[index]
        return firsts

    def examples(self) -> list[Example]:
        """Returns the sentences; those of a document are a group.

        The gold label is the tags, separated by spaces; None if a value is not a tag.
        """
        gold = [None] * len(self.sentences)
        with contextlib.suppress(ValueError):
            gold = [" ".join(tags) for tags in self.tags()]
        starts = itertools.accumulate(int(s.begins_document) for s in self.sentences)
        examples = []
        for sentence, tags, number in zip(self.sentences, gold, starts):
            line, group = sentence.lines[0], f"document {number}" * (number > 0)
            inputs = (sentence.words,)
            examples.append(
                Example(str(line), None, inputs, tags, line=line, group=group)
            )
        return examples

    def select(self, lines: Collection[int]) -> ColumnFile:
        """Returns a file of the sentences that begin on some lines."""
        sentences = [s for s in self.sentences if s.lines[0] in lines]
        rows = [[[_DOCUMENT] * s.begins_document, s.rows, [[]]] for s in sentences]
        rows = [*itertools.chain(*itertools.chain(*rows))]
        return dataclasses.replace(self, rows=rows, sentences=sentences)

    def tags(self, types: Collection[str] | None = None) -> list[list[str]]:
        """Returns the last column of every sentence as IOB2 tags.

        Args:
            types: The known entity types; None allows all.

        Raises:
            ValueError: A value is not a tag, or its type is unknown. The message has
                file and line.
        """
        for sentence in self.sentences:
            for line, row in zip(sentence.lines, sentence.rows):
                tag = row[-1]
                if not _TAG.fullmatch(tag) or self.num_columns == 1:
                    raise ValueError(
                        f"{self.path}, line {line}: the last column must be a tag: O, "
                        "B-type or I-type, or E-, S-, L-, U-, M- or W-type in BIOES, "
                        f"BILOU or BMES, or only B, I, O. Got {tag!r}."
                    )
                type_ = _split_tag(tag)[1]
                if types is not None and type_ and type_ not in types:
                    raise ValueError(
                        f"{self.path}, line {line}: entity type {type_!r} does not "
                        f"occur in the training data, only {', '.join(types)}."
                    )
        return [to_iob2([row[-1] for row in s.rows]) for s in self.sentences]

    def write(
        self,
        path: pathlib.Path,
        tags: Iterable[Sequence[str]],
        gold: Iterable[Sequence[str]] | None = None,
    ) -> None:
        """Writes the lines of the file to `path` with one more column, the tags.

        Tabs and line breaks within a word become spaces.

        This is the input of conlleval: the gold tag second to last, the predicted one
        last.

        Args:
            path: The file to write.
            tags: The tags of each sentence.
            gold: The tags that replace the last column, in the scheme of `tags`. None
                for an unlabeled file.
        """
        tags, gold = (itertools.chain(*column or ()) for column in (tags, gold))
        with storage.atomic_write(str(path)) as file:
            for row in self.rows:
                if _is_word(row):
                    row = [*row[:-1], next(gold, row[-1]), next(tags)]
                elif row:
                    row = row.split(self.separator)
                    row += ["O"] * max(1, self.num_columns + 1 - len(row))
                cells = (_SEPARATORS.sub(" ", cell) for cell in row)
                file.write(f"{self.separator.join(cells)}\n".encode())


def _is_word(row: Sequence[str]) -> bool:
    return bool(row) and not isinstance(row, str)


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Converts IOB1, IOB2, BIOES or BILOU tags of a sentence to IOB2.

    An I without a predecessor of its type begins an entity, as in conlleval.

    >>> to_iob2(["I-PER", "E-PER", "S-PER", "I-LOC"])
    ['B-PER', 'I-PER', 'B-PER', 'B-LOC']
    """
    result, previous = [], ""
    for tag in tags:
        prefix, type_ = _split_tag(tag)
        iob = _IOB.get(prefix, prefix)
        if iob == "I" and type_ != previous:
            iob = "B"
        result.append(f"{iob}-{type_}" if type_ else "O")
        previous = "" if prefix in _LAST else type_
    return result


def _split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix and the type of a tag; the type of O is ""."""
    prefix, _, type_ = tag.partition("-")
    return prefix, "" if tag == "O" else type_ or "_"


def _are_counted(sentences: Sequence[Sentence]) -> bool:
    """Whether the first column counts the words of each sentence: 1, 2, 3, ...

    It may begin at any number, and have ranges (1-2) and empty nodes (1.1) of CoNLL-U.
    """
    for sentence in sentences:
        words = [w for w in sentence.words if not re.fullmatch(r"\d+[-.]\d+", w)]
        first = int(words[0]) if words and words[0].isdecimal() else 0
        if words != [str(first + i) for i in range(len(words))]:
            return False
    return any(len(sentence.rows) > 1 for sentence in sentences)


# --- Formats ---------------------------------------------------------------------


def _read_columns(file: Table) -> tuple[str, _Rows]:
    """Returns the separator and the rows."""
    separator, first_shape, rows = "", None, []
    for number, line in enumerate(file.lines, start=1):
        if not line.strip() or line.startswith(_DOCUMENT):
            rows.append((number, line if line.strip() else []))
            continue
        if "\r" in line:
            raise ValueError(
                f"{file.path}, line {number}: line ends must be LF or CRLF."
            )
        split = separator or ("\t" if "\t" in line else " ")
        line = line.rstrip()
        row = line.split("\t") if split == "\t" else _SPACES.split(line)
        # A tagged word may be "#" too. A comment has other columns than words.
        shape = len(row), bool(_TAG.fullmatch(row[-1]))
        if _COMMENT.match(line) and shape != (first_shape or (len(row), True)):
            continue
        separator, first_shape = split, first_shape or shape
        rows.append((number, row))
    return separator, rows


def _read_csv(table: Table) -> _Rows:
    rows, last_line, last_sentence = [], 1, ""
    names = [name.lower() for name in table.columns]
    has_sentence = names[0].startswith("sent")
    if any(name.startswith(("word", "token")) for name in names[has_sentence + 1 : -1]):
        rule = "the first column must be the word, after that of the sentence, sent..."
        raise ValueError(f"{table.path}: {rule}. Got {', '.join(table.columns)}.")
    for line, cells in table.rows():
        sentence, row = ("", cells) if not has_sentence else (cells[0], cells[1:])
        is_blank = line > last_line + 1 or not any(row)
        if rows and (is_blank or sentence not in ("", last_sentence)):
            rows.append((line, []))
        if any(row):
            is_document = row[0].startswith(_DOCUMENT)
            rows.append((line, "\t".join(row) if is_document else row))
        last_line = line + "".join(cells).count("\n")  # Cells may have several.
        last_sentence = sentence or last_sentence
    return rows


def _read_jsonl(table: Table) -> _Rows:
    rows, known = [], (("tokens", "words"), ("ner_tags", "tags", "labels"))
    found = [[key for key in keys if key in table.columns] for keys in known]
    keys = [*(found[0][:1] or ["tokens"]), *found[1][:1]]  # May be unlabeled.
    flags = "the keys tokens and ner_tags"
    for line, columns in table.rows(keys, flags=flags, nested=keys):
        are_lists = {*map(type, columns)} == {list} and len({*map(len, columns)}) == 1
        if not are_lists or {*map(type, itertools.chain(*columns))} - {str}:
            raise ValueError(
                f"{table.path}, line {line}: {' and '.join(keys)} must be lists of "
                "strings of the same length. If the tags are numbers, write their "
                f"names instead. Got {json.dumps(columns)[:200]}"
            )
        words = [(line, list(row)) for row in zip(*columns)] or [(line, "")]
        if columns[0] and len(words) == 1 and columns[0][0].startswith(_DOCUMENT):
            words = [(line, "\t".join(words[0][1]))]
        rows += [*words, (line, [])]
    return rows
