# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits text files into documents and sentences.

Text is UTF-8, optionally compressed, local or remote (see `storage.read_lines`). A
`Layout` describes what separates its documents:

* `json`, `table`: in JSON lines, which begin with "{", and rows of `.csv` and `.tsv`
  files, the text under one key or column is a document.
* `doc_tag`: WikiExtractor's `<doc id= url= title=>` ... `</doc>`, the titles of
  WikiText, `= Title =`, or lines of `<|endoftext|>`. Titles and headings are dropped,
  because BERT's authors "ignored lists, tables and headers" (arXiv 1810.04805, section
  3.1).
* `blank_line`: blank lines separate documents, as in google-research/bert.
* `line`: each line is a document. `file`: the file is one document, as a book is.
* any other line, for example "%": lines that equal it separate documents.

Hard-wrapped lines are joined into paragraphs. Every line or paragraph is split into
sentences.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf import storage
from bert_tf.data.layout import (
    SENTENCE_END,
    Layout,
    TextFilesConfig,
    detect_layout,
    frequent_lines,
    indentation,
    is_wrapped,
)
from bert_tf.data.tables import Table, parse_object, text_value

Document = list[str]  # Its sentences.

END_OF_FILE = 1 << 62  # Larger than the size of any file.

_PREVIEW_CHARACTERS = 1_000_000  # Read of each group of files.


# --- Documents -------------------------------------------------------------------


class Range(NamedTuple):
    """Documents of a text file that begin in a range of its bytes.

    The ranges of `split_file` contain every document once, so that several processes
    can read one file. Reading begins at the first separator at or after `start`, and
    stops at the first one at or after `end`.
    """

    path: str
    layout: Layout
    start: int = 0
    end: int = END_OF_FILE

    def paragraphs(self) -> Iterator[list[str]]:
        """Yields the non-empty paragraphs, or lines, of each document.

        Raises:
            ValueError: As `storage.read_lines`, or a record has no text.
        """
        has_records = self.layout.separator in ("json", "table")
        documents = self._records() if has_records else self._documents()
        return filter(None, map(self._paragraphs, documents))

    def documents(self) -> Iterator[Document]:
        """Yields documents, each a non-empty list of sentences."""
        return map(split_document, self.paragraphs())

    def _paragraphs(self, lines: list[str]) -> list[str]:
        joins = self.layout.is_wrapped
        if joins is None:
            joins = is_wrapped([line.expandtabs() for line in lines])
        return unwrap(lines) if joins else list(filter(None, map(str.strip, lines)))

    def _documents(self) -> Iterator[list[str]]:
        """Yields the lines of each document."""
        is_separator = _separator(self.layout.separator)
        is_tagged = self.layout.separator == "doc_tag"
        document: list[str] = []
        title = None
        inside = self.start == 0
        for offset, line in storage.read_lines_from(self.path, self.start):
            if self.layout.separator == "line":
                if offset >= self.end:
                    return
                yield [line]
            elif is_separator(line):
                yield document
                document = []
                if offset >= self.end:
                    return
                inside = True
                title = _TITLE.match(line) if is_tagged else None
            elif not inside:
                if offset >= self.end:  # A document of an earlier range.
                    return
            elif title and line.strip() == title[1]:
                title = None
            elif not (is_tagged and _HEADING.match(line)):
                document.append(line)
        yield document

    def _records(self) -> Iterator[list[str]]:
        """Yields the lines of the text of each record."""
        column = self.layout.text_column
        if self.layout.separator == "table":
            table = Table(self.path)
            for _, (text,) in table.rows(table.require([column], "--text_column")):
                yield text.split("\n")
            return
        for offset, line in storage.read_lines_from(self.path, self.start):
            if offset >= self.end:
                return
            if not line.strip():
                continue
            try:
                record = parse_object(line)
                lines = text_value(record, column).split("\n")
            except ValueError as error:
                number = storage.line_number(self.path, offset)
                raise ValueError(
                    f"{self.path}, line {number}: {error} Name the key of the text "
                    "with --text_column."
                ) from None
            if lines[0].strip() == record.get("title"):
                del lines[0]
            yield lines


def read_paragraphs(ranges: Iterable[Range]) -> Iterator[list[str]]:
    """Yields the paragraphs of all documents in ranges."""
    return itertools.chain.from_iterable(part.paragraphs() for part in ranges)


def read_documents(
    path: str,
    separator: str = "auto",
    wrapped_lines: str = "auto",
    text_column: str = "text",
) -> Iterator[Document]:
    """Yields the documents of a text file, each a non-empty list of sentences.

    Args:
        path: A text file.
        separator: What separates documents: "auto", "blank_line", "line", "file",
            "doc_tag", or a line of the text.
        wrapped_lines: Whether lines are joined into paragraphs: "auto", "yes", "no".
        text_column: Key of JSON lines, or column of a table, with the text.

    Raises:
        ValueError: The file is not UTF-8, is markup, or a record has no text.
    """
    options = TextFilesConfig(
        input=path,
        document_separator=separator,
        wrapped_lines=wrapped_lines,
        text_column=text_column,
    )
    if layout := detect_layout(path, options):
        yield from Range(path, layout).documents()


def split_file(path: str, layout: Layout, size: int) -> list[Range]:
    """Divides a file into ranges of about `size` bytes.

    A compressed file, a table or a file that is one document is not divided.
    """
    starts: Sequence[int] = [0]
    length = storage.stat(path)[0]
    if length > size and layout.separator not in ("file", "table"):
        with storage.open_text(path) as (_, is_compressed):
            starts = [0] if is_compressed else range(0, length, size)
    pairs = itertools.pairwise([*starts, END_OF_FILE])
    return [Range(path, layout, start, end) for start, end in pairs]


def content_share(paragraphs: Sequence[str], seed: int) -> float:
    """Returns a number in [0, 1) that depends on the text of a document and a seed."""
    text = f"{seed}\n" + "\n".join(paragraphs)
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def unwrap(lines: Iterable[str]) -> list[str]:
    """Joins the lines of each paragraph. Blank lines end it, indented ones begin it."""
    paragraphs: list[list[str]] = [[]]
    before = 0
    for line in map(str.expandtabs, lines):
        if not (text := line.strip()) or indentation(line) > before:
            paragraphs.append([])
        paragraphs[-1] += [text] if text else []
        before = indentation(line) if text else END_OF_FILE
    joined = ("\n".join(paragraph) for paragraph in paragraphs if paragraph)
    return [_CJK_BREAK.sub("", text).replace("\n", " ") for text in joined]


def _separator(name: str) -> Callable[[str], object]:
    """Returns the predicate of lines that separate documents."""
    return {
        "doc_tag": _TAG.match,
        "blank_line": lambda line: not line.strip(),
        "file": lambda line: False,
    }.get(name, lambda line: line.strip() == name.strip())


_TITLE = re.compile(r'<doc .*?\btitle="(.*?)"[^"]*>$')
_TAG = re.compile(r"<doc |</doc>|<\|endoftext\|>|\s*= [^=]+ =\s*$")
_HEADING = re.compile(r"\s*=( ?=)* [^=]+ =( ?=)*\s*$")
_CJK_BREAK = re.compile(r"(?<=[\u2e80-\u9fff\uff00-\uff60])\n(?=[\u2e80-\u9fff])")


# --- Files -----------------------------------------------------------------------


def list_texts(
    patterns: str, options: TextFilesConfig, exclude: Iterable[str] = ()
) -> dict[str, Layout]:
    """Returns the layouts of the files that comma-separated globs match.

    Vocabularies and the files of `exclude` are skipped with a warning.

    Raises:
        ValueError: No file matches, or as `detect_layout`.
    """
    excluded = set(map(storage.real_path, exclude))
    layouts = {}
    for path in storage.expand_globs(patterns):
        is_excluded = storage.real_path(path) in excluded
        if is_excluded or not (layout := detect_layout(path, options)):
            reason = "not text to learn" if is_excluded else "a vocabulary"
            print(f"warning: {path} is {reason}. It is skipped.")
        else:
            layouts[path] = layout
    return layouts


def preview(layouts: dict[str, Layout]) -> str:
    """Returns what was detected for each group of files, with two documents of each."""
    groups = collections.defaultdict(list)
    for path, layout in layouts.items():
        groups[layout].append(path)
    shown = itertools.starmap(_preview_group, groups.items())
    return "\n".join(shown) + (
        "\nIf that is wrong, pass --document_separator (blank_line, line, file, "
        "doc_tag, or a line between documents, such as '%') or --wrapped_lines (yes, "
        "no)."
    )


def _preview_group(layout: Layout, paths: Sequence[str]) -> str:
    size, found, is_partial = 0, [], ""
    for paragraphs in read_paragraphs(Range(path, layout) for path in paths):
        if size > _PREVIEW_CHARACTERS:
            is_partial = f" in the first {size / 1e6:.1f} million characters"
            break
        found.append(split_document(paragraphs))
        size += sum(map(len, found[-1]))
    others = f" and {len(paths) - 1} more" * (len(paths) > 1)
    first = map(" | ".join, found[:2])
    shown = (textwrap.shorten(text, 300, placeholder=" ...") for text in first)
    lines = [
        f"{paths[0]}{others}: {layout}.",
        f"Documents: {len(found):,}, sentences: {sum(map(len, found)):,}{is_partial}. "
        "The first two, as they are learned:",
        *(f"  {number}. {text}" for number, text in enumerate(shown, start=1)),
    ]
    if layout.separator not in ("json", "table"):
        lines += (f"Note: {note}." for note in frequent_lines(paths[0], layout))
    return "\n  ".join(lines)


# --- Sentences -------------------------------------------------------------------

_OPENING = "\"'“‘([«¿¡"

# Abbreviations by what follows them inside a sentence: a name, a number, or anything.
# Those of the last kind end a sentence only before a word of `_SENTENCE_STARTERS`.
_ABBREVIATIONS = {
    word: follower
    for follower, words in {
        "name": "Mr Mrs Ms Mx Messrs Mme Mlle Dr Drs Prof Rev Fr Hon Pres Gov Sen Rep "
        "Gen Col Maj Capt Cpt Lt Sgt Cpl Adm Cmdr St Ste Mt Ft vs cf viz e.g i.e",
        "number": "No no Nos nos Vol vol Vols vols Fig fig Figs figs Ch ch Sec sec Art "
        "art pp p Op op ca c fl b d r Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec",
        "any": "Inc Ltd Co Corp Bros Jr Sr etc al ed eds a.m p.m Ph.D",
    }.items()
    for word in words.split()
}
_STARTERS = (
    "The This That These Those There Then It Its He His She Her They Their We Our You "
    "In On At By As For From With After Before During When While Since If Although "
    "But And However Some Many Most Another Both According What Who How Why"
)
_SENTENCE_STARTERS = frozenset(_STARTERS.split())


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into sentences with rules for English.

    The characters around a full stop distinguish the end of a sentence from
    abbreviations, initials, decimal and ordinal numbers, and quotations. Other
    languages are split by punctuation and capital letters.

    >>> split_sentences('Dr. J. Smith paid $2.50. "Why?" he asked.')
    ['Dr. J. Smith paid $2.50.', '"Why?" he asked.']
    """
    text = text.strip()
    sentences = []
    begin = 0
    for match in SENTENCE_END.finditer(text):
        end = match.end()
        if end < len(text) and _is_end(text, begin, match.start(), end):
            sentences.append(text[begin:end].rstrip())
            begin = end
    if begin < len(text):
        sentences.append(text[begin:])
    return sentences


def split_document(paragraphs: Iterable[str]) -> Document:
    """Returns the sentences of paragraphs."""
    return [sentence for text in paragraphs for sentence in split_sentences(text)]


def _is_end(text: str, begin: int, stop: int, following: int) -> bool:
    """Returns whether the punctuation at `stop` ends the sentence from `begin`.

    The next word, or the quote before it, starts at `following`.
    """
    if text[stop] != ".":
        return not text[following].islower()
    word = text[max(begin, text.rfind(" ", begin, stop) + 1) : stop].lstrip(_OPENING)
    follower = _ABBREVIATIONS.get(word)
    next_word = text[following : following + 16].lstrip(_OPENING)
    if follower == "name" or next_word[:1].islower():
        return False
    if follower == "number":
        return not next_word[:1].isdigit()
    if word.isdigit() and stop - begin == len(word):
        return False  # "1. An item"
    is_initial = len(word) == 1 or (len(word) < 8 and word[-2:-1] == ".")  # "U.S"
    if follower or (is_initial and word.isascii() and word[-1].isalpha()):
        return next_word.partition(" ")[0].rstrip(",") in _SENTENCE_STARTERS
    return True
