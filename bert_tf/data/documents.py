# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits text files into documents and sentences.

Text is UTF-8, optionally compressed, local or remote (see `text_files.read_lines`). A
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
import itertools
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from bert_tf import storage, text_files
from bert_tf.data import layout as layouts
from bert_tf.data.layout import SENTENCE_END, Layout, TextFilesConfig
from bert_tf.data.tables import Table, parse_object, text_value
from bert_tf.text import count_words

Document = list[str]  # Its sentences.

_SAMPLE_BYTES = 1 << 17  # Read from the start of each file to detect its layout.
_PREVIEW_CHARACTERS = 1_000_000  # Read of each group of files.
_PART_BYTES = 1 << 23  # Text per job.


# --- Documents -------------------------------------------------------------------


class TextRange(NamedTuple):
    """Documents of a text file, or those that begin in a range of its bytes.

    The ranges of `split` contain every document once, so that several processes can
    read one file. Reading begins at the first separator at or after `start`, and stops
    at the first one at or after `end`.

    Attributes:
        path: The file.
        layout: How its lines form documents and sentences.
        stat: Its size in bytes and the time of its modification, see `storage.stat`.
        start: First byte.
        end: Last byte, exclusive; infinite if the file cannot be divided, because it is
            compressed, a table, or one document.
    """

    path: str
    layout: Layout
    stat: tuple[int, int]
    start: int = 0
    end: float = math.inf

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return min(self.end, self.stat[0]) - self.start

    def split(self, size: int) -> list[TextRange]:
        """Divides the range into ranges of about `size` bytes, if that is possible."""
        if self.end == math.inf:
            return [self]
        starts = range(self.start, self.end, size) or [self.start]
        bounds = itertools.pairwise([*starts, self.end])
        return [self._replace(start=start, end=end) for start, end in bounds]

    def paragraphs(self) -> Iterator[list[str]]:
        """Yields the non-empty paragraphs, or lines, of each document.

        Raises:
            ValueError: As `text_files.read_lines`, or a record has no text.
        """
        readers = {"line": self._lines, "json": self._objects, "table": self._rows}
        read = readers.get(self.layout.separator, self._documents)
        return filter(None, map(self._paragraphs, read()))

    def documents(self) -> Iterator[Document]:
        """Yields documents, each a non-empty list of sentences; see `paragraphs`."""
        return map(split_document, self.paragraphs())

    def _paragraphs(self, lines: list[str]) -> list[str]:
        joins = self.layout.is_wrapped
        if joins is None:
            joins = layouts.is_wrapped([x.expandtabs().rstrip() for x in lines])
        return unwrap(lines) if joins else list(filter(None, map(str.strip, lines)))

    # Each reader yields the lines of each document.

    def _documents(self) -> Iterator[list[str]]:
        is_separator = _separator(self.layout.separator)
        is_tagged = self.layout.separator == "doc_tag"
        # None inside a document of an earlier range.
        document: list[str] | None = None if self.start else []
        title = None
        for offset, line in text_files.read_lines_from(self.path, self.start):
            if is_separator(line):
                yield document or []
                document, title = [], _TITLE.match(line) if is_tagged else None
                if offset >= self.end:
                    return
            elif document is None:
                if offset >= self.end:
                    return
            elif title and line.strip() == title[1]:
                title = None
            elif not (is_tagged and _HEADING.match(line)):
                document.append(line)
        yield document or []

    def _own_lines(self) -> Iterator[tuple[int, str]]:
        lines = text_files.read_lines_from(self.path, self.start)
        return itertools.takewhile(lambda item: item[0] < self.end, lines)

    def _lines(self) -> Iterator[list[str]]:
        return ([line] for _, line in self._own_lines())

    def _rows(self) -> Iterator[list[str]]:
        table = Table(self.path)
        rows = table.rows([self.layout.text_column], flags="--text_column")
        return (text.split("\n") for _, (text,) in rows)

    def _objects(self) -> Iterator[list[str]]:
        for offset, line in self._own_lines():
            if not line.strip():
                continue
            hint = ""
            try:
                record = parse_object(line)
                hint = " Name the key of the text with --text_column."
                lines = text_value(record, self.layout.text_column).split("\n")
            except ValueError as error:
                number = text_files.line_number(self.path, offset)
                message = f"{self.path}, line {number}: {error}{hint}"
                raise ValueError(message) from None
            if lines[0].strip() == record.get("title"):
                del lines[0]
            yield lines


def read_paragraphs(texts: Iterable[TextRange]) -> Iterator[list[str]]:
    """Yields the paragraphs of each document of several files or ranges."""
    return itertools.chain.from_iterable(text.paragraphs() for text in texts)


def unwrap(lines: Iterable[str]) -> list[str]:
    """Joins the lines of each paragraph. Blank lines end it, indented ones begin it."""
    paragraphs: list[list[str]] = [[]]
    before: float = 0
    for line in map(str.expandtabs, lines):
        if not (text := line.strip()) or layouts.indentation(line) > before:
            paragraphs.append([])
        paragraphs[-1] += [text] if text else []
        before = layouts.indentation(line) if text else math.inf
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
    options: TextFilesConfig, patterns: str = "", exclude: Iterable[str] = ()
) -> list[TextRange]:
    """Returns the text files that comma-separated globs match, with their layouts.

    Vocabularies and the files of `exclude` are skipped with a warning.

    Args:
        options: The files, and what the user knows about their layout.
        patterns: Other files than `options.input`.
        exclude: Paths of files to skip.

    Raises:
        ValueError: No file matches, or a file is binary or markup.
    """
    excluded = set(map(storage.real_path, exclude))
    texts = []
    for path in storage.expand_globs(patterns or options.input):
        is_excluded = storage.real_path(path) in excluded
        if is_excluded or not (text := _open_text(path, options)):
            reason = "not text to learn" if is_excluded else "a vocabulary"
            print(f"warning: {path} is {reason}. It is skipped.")
        else:
            texts.append(text)
    return texts


def _open_text(path: str, options: TextFilesConfig) -> TextRange | None:
    """Returns a text file; None if it is a vocabulary."""
    with text_files.open_text(path) as (file, is_compressed):
        sample = file.read(_SAMPLE_BYTES).decode("utf-8-sig", "replace")
    if not (layout := layouts.detect_layout(path, sample, options)):
        return None
    stat = storage.stat(path)
    is_whole = is_compressed or layout.separator in ("file", "table")
    return TextRange(path, layout, stat, end=math.inf if is_whole else stat[0])


def read_documents(path: str, **options: Any) -> Iterator[Document]:
    """Yields the documents of text files, each a non-empty list of sentences.

    Args:
        path: A text file, or a glob.
        **options: Other options of `TextFilesConfig`.

    Raises:
        ValueError: See `list_texts`.
    """
    for text in list_texts(TextFilesConfig(input=path, **options)):
        yield from text.documents()


def split_texts(texts: Iterable[TextRange]) -> list[TextRange]:
    """Divides files into ranges of at most about `_PART_BYTES`."""
    return [part for text in texts for part in text.split(_PART_BYTES)]


def group_parts(texts: Iterable[TextRange]) -> list[list[TextRange]]:
    """Divides files into parts, groups of ranges of about `_PART_BYTES`."""
    parts: list[list[TextRange]] = []
    size = _PART_BYTES
    for text in split_texts(texts):
        if size >= _PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += text.size
    return parts


def count_part(lowercase: bool, part: Sequence[TextRange]) -> list[dict[str, int]]:
    """Counts the words of a part; a job of `bert_tf.vocab`. See `text.count_words`."""
    paragraphs = itertools.chain.from_iterable(read_paragraphs(part))
    return list(count_words(paragraphs, lowercase))


def preview(texts: Iterable[TextRange]) -> str:
    """Returns what was detected for each group of files, with two documents of each."""
    groups = collections.defaultdict(list)
    for text in texts:
        groups[text.layout].append(text)
    return "\n".join(map(_preview_group, groups.values())) + (
        "\nIf that is wrong, pass --document_separator (blank_line, line, file, "
        "doc_tag, or a line between documents, such as '%') or --wrapped_lines (yes, "
        "no)."
    )


def _preview_group(texts: Sequence[TextRange]) -> str:
    """Returns the preview of files with the same layout."""
    size, found, is_partial = 0, [], ""
    for paragraphs in read_paragraphs(texts):
        if size > _PREVIEW_CHARACTERS:
            is_partial = f" in the first {size / 1e6:.1f} million characters"
            break
        found.append(split_document(paragraphs))
        size += sum(map(len, found[-1]))
    others = f" and {len(texts) - 1} more" * (len(texts) > 1)
    lines = [
        f"{texts[0].path}{others}: {texts[0].layout}.",
        f"Documents: {len(found):,}, sentences: {sum(map(len, found)):,}{is_partial}. "
        "The first two, as they are learned:",
    ]
    for number, document in enumerate(found[:2], start=1):
        shown = textwrap.shorten(" | ".join(document), 300, placeholder=" ...")
        lines.append(f"  {number}. {shown}")
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
