# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files in, documents out: each document a list of sentences.

What is read: UTF-8 text, gzip or not, with or without a byte order mark, with Unix or
Windows line ends, local or remote (see `bert_tf.storage`).
What separates documents is recognised from the beginning of each file, or said with
`separator`:

* `doc_tag`: WikiExtractor's `<doc id= url= title=>` ... `</doc>`. The line that
  repeats the title is dropped: it is no sentence, and BERT's authors "ignored lists,
  tables and headers" (arXiv 1810.04805, section 3.1).
* `blank_line`: a blank line ends a document, as in google-research/bert.
* `file`: the file is one document and blank lines separate its paragraphs, as in
  books. `auto` takes this for text whose lines are wrapped at a fixed width, and where
  lines mostly stand alone between blank ones: a paragraph is no document.

A line is a sentence, or running text that is split into sentences; wrapped lines are
joined first.
"""

from __future__ import annotations

import itertools
import re
import statistics
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_tf import storage

SEPARATORS = ("auto", "doc_tag", "blank_line", "file")

TO_THE_END = 1 << 62  # A byte offset behind every file.

_SAMPLE_BYTES = 1 << 18  # Of each file, to recognise its layout.


# --- Documents -------------------------------------------------------------------


class Layout(NamedTuple):
    """How a file's lines make documents."""

    separator: str  # One of `SEPARATORS`, except "auto".
    wrapped: bool  # Paragraphs are broken into lines at a fixed width.


def recognise(path: str, separator: str = "auto") -> Layout:
    """Returns the layout of a file, judged from its beginning.

    Args:
        path: A text file.
        separator: One of `SEPARATORS`: what the user says separates documents.
    """
    try:
        with storage.open_unzipped(path) as (file, _):
            sample = file.read(_SAMPLE_BYTES).decode("utf-8-sig", "replace")
    except (EOFError, zlib.error):
        sample = ""  # `read_lines_from` will say what is wrong, and where.
    lines = [line.strip() for line in sample.splitlines()]
    is_tagged = next(filter(None, lines), "").startswith("<doc ")
    if separator == "doc_tag" or (separator == "auto" and is_tagged):
        return Layout("doc_tag", wrapped=False)
    wrapped = _is_wrapped(lines)
    if separator == "auto":
        blocks = itertools.groupby(lines, key=bool)
        sizes = [len(list(block)) for is_text, block in blocks if is_text]
        # Titles stand between blank lines, too, but are few of the lines (3 % and less
        # in an encyclopedia; of the lines of novels 30 % and more stand alone).
        is_paragraphs = wrapped or (
            statistics.median(sizes or [1]) == 1 and 4 * sizes.count(1) >= sum(sizes)
        )
        separator = "file" if is_paragraphs else "blank_line"
    return Layout(separator, wrapped)


def _is_wrapped(lines: list[str]) -> bool:
    """Whether lines are broken at a fixed width, between 40 and 120 characters.

    Then most line breaks stand inside sentences (68 to 94 % of those inside blocks in
    hard-wrapped novels, below 20 % where a line is a sentence or a paragraph), and most
    lines that another one follows are nearly full.
    """
    breaks = [pair for pair in itertools.pairwise(lines) if all(pair)]
    if not breaks:
        return False
    inside = sum(
        line[-1] not in _FINAL and following[0].islower() for line, following in breaks
    )
    lengths = sorted(map(len, filter(None, lines)))
    width = lengths[int(0.95 * len(lengths))]
    typical = statistics.median(len(line) for line, _ in breaks)
    return inside > len(breaks) / 2 and 0.75 * width <= typical and 40 <= width <= 120


def sections(path: str, size: int, separator: str = "auto") -> list[tuple[int, int]]:
    """Divides a file into byte ranges (start, end) for `read_documents`.

    Together the ranges give every document once and in the file's order, so that
    several processes can read one large file. A file that is one document, and a
    gzip file, stay whole.
    """
    length = storage.stat(path)[0]
    if length > size:
        with storage.open_unzipped(path) as (_, is_gzip):
            pass
        if not is_gzip and recognise(path, separator).separator != "file":
            starts = range(0, length, size)
            return [(start, start + size) for start in starts[:-1]] + [
                (starts[-1], TO_THE_END)
            ]
    return [(0, TO_THE_END)]


def read_documents(
    path: str, separator: str = "auto", start: int = 0, end: int = TO_THE_END
) -> Iterator[list[str]]:
    """Yields the documents of a text file, each a non-empty list of sentences.

    Args:
        path: A text file.
        separator: One of `SEPARATORS`: what separates documents.
        start: With `end`, a range of `sections`: the documents after the first
            separator that begins at or behind this byte ...
        end: ... up to the first separator that begins at or behind this one.

    Raises:
        ValueError: As `storage.read_lines`.
    """
    layout = recognise(path, separator)
    lines = storage.read_lines_from(path, start)
    if layout.wrapped:
        lines = _unwrap(lines)
    is_separator = _IS_SEPARATOR[layout.separator]
    document: list[str] = []
    title = None
    inside = start == 0
    for offset, line in lines:
        if is_separator(line):
            if document:
                yield document
                document = []
            if offset >= end:
                return
            inside = True
            title = layout.separator == "doc_tag" and _TITLE.match(line)
        elif not inside or not line or line.isspace():
            continue
        elif title and line.strip() == title[1]:
            title = None
        else:
            document += split_sentences(line)
    if document:
        yield document


_TITLE = re.compile(r'<doc .*?\btitle="(.*?)"[^"]*>$')
_IS_SEPARATOR = {
    "doc_tag": lambda line: line.startswith(("<doc ", "</doc>")),
    "blank_line": lambda line: not line or line.isspace(),
    "file": lambda line: False,
}


def _unwrap(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Joins the lines of each paragraph; blank lines stay."""
    paragraph: list[str] = []
    for offset, line in lines:
        if line and not line.isspace():
            paragraph.append(line.strip())
            continue
        if paragraph:
            yield offset, " ".join(paragraph)
            paragraph = []
        yield offset, ""
    if paragraph:
        yield offset, " ".join(paragraph)


# --- Sentences -------------------------------------------------------------------

_FINAL = frozenset(".!?:;…。！？\"'”’)]")  # What a line that ends a sentence ends in.
_OPENING = "\"'“‘([«¿¡"

# A possible end: final punctuation, closing quotes, white space, and no small letter
# behind; or full-width punctuation, which needs no space.
_END = re.compile(
    r"""[.!?…]["'”’)\]»]*\s+(?![a-z\s])|[。！？｡]["'”’」』）]*\s*""",
)

# Abbreviations, by what their full stop may stand before: a name, a number, or also a
# new sentence, which is then believed only of words that rarely begin anything else.
_ABBREVIATIONS = {
    word: follower
    for follower, words in {
        "name": "Mr Mrs Ms Mx Messrs Mme Mlle Dr Drs Prof Rev Fr Hon Pres Gov Sen Rep "
        "Gen Col Maj Capt Cpt Lt Sgt Cpl Adm Cmdr St Ste Mt Ft vs cf viz e.g i.e",
        "number": "No no Nos nos Vol vol Vols vols Fig fig Figs figs Ch ch Sec sec Art "
        "art pp p Op op ca c fl b d r Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec",
        "sentence": "Inc Ltd Co Corp Bros Jr Sr etc al ed eds a.m p.m Ph.D",
    }.items()
    for word in words.split()
}
_BEGINNINGS = (
    "The This That These Those There Then It Its He His She Her They Their We Our You "
    "In On At By As For From With After Before During When While Since If Although "
    "But And However Some Many Most Another Both According What Who How Why"
)
_BEGINNERS = frozenset(_BEGINNINGS.split())


def split_sentences(text: str) -> list[str]:
    """Splits a paragraph into its sentences.

    Rules, not a model: abbreviations, initials, decimal and ordinal numbers, and
    quotations are told from sentence ends by what surrounds the full stop. English
    first; other languages get what their punctuation and capitals give.

    >>> split_sentences('Dr. J. Smith paid $2.50. "Why?" he asked.')
    ['Dr. J. Smith paid $2.50.', '"Why?" he asked.']
    """
    text = text.strip()
    sentences = []
    begin = 0
    for match in _END.finditer(text):
        end = match.end()
        if end < len(text) and _is_end(text, begin, match.start(), end):
            sentences.append(text[begin:end].rstrip())
            begin = end
    if begin < len(text):
        sentences.append(text[begin:])
    return sentences


def _is_end(text: str, begin: int, stop: int, following: int) -> bool:
    """Whether the punctuation at `stop` ends the sentence that starts at `begin`.

    `following` is where the next word, or the quote before it, stands.
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
        return next_word.partition(" ")[0].rstrip(",") in _BEGINNERS
    return True
