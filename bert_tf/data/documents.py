# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Splits text files into documents and sentences.

Text is UTF-8, optionally compressed, local or remote (see `storage.read_lines`). In
JSON lines, which begin with "{", the "text" of each line is a document. For other
files, one of three separators of documents is detected or set by the user:

* `doc_tag`: WikiExtractor's `<doc id= url= title=>` ... `</doc>`, the titles of
  WikiText, `= Title =`, or lines of `<|endoftext|>`. Titles are dropped, because BERT's
  authors "ignored lists, tables and headers" (arXiv 1810.04805, section 3.1).
* `blank_line`: blank lines separate documents, as in google-research/bert.
* `file`: the file is one document and blank lines separate paragraphs, as in books.

Hard-wrapped lines are joined into paragraphs. Every line or paragraph is split into
sentences. A block is a list of documents that are in memory together.
"""

from __future__ import annotations

import itertools
import random
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bert_tf import storage
from bert_tf.data.tables import parse_object, text_value

DOCUMENT_SEPARATORS = ("auto", "doc_tag", "blank_line", "file")

Document = list[str]  # Its sentences.

END_OF_FILE = 1 << 62  # Larger than the size of any file.

_BLOCK_CHARACTERS = 1 << 24  # Most parts of a text are one block.
_MIN_DOCUMENTS = 10  # If the first block has fewer, none of its documents is held out.
_JSON = re.compile(r'\s*(\[\s*)?\{\s*["}]')  # The start of objects, or a list of them.
_MARKUP = re.compile(r"\s*<(mediawiki|!doctype|html|\?xml)\b", re.IGNORECASE)
_SAMPLE_BYTES = 1 << 18  # Read from the start of each file to detect its layout.


# --- Documents -------------------------------------------------------------------


class Layout(NamedTuple):
    """How the lines of a file form documents."""

    separator: str  # "json", or one of `DOCUMENT_SEPARATORS` except "auto".
    is_wrapped: bool  # Whether paragraphs are wrapped at a fixed width.


def detect_layout(path: str, separator: str = "auto") -> Layout:
    """Detects the layout of a text file from its first 256 KiB.

    With `separator="auto"` a file is one document if its lines are wrapped, or if many
    lines have a blank line before and after them: these are paragraphs.

    Raises:
        ValueError: The file is a dump of a wiki, or a web page.
    """
    with storage.open_text(path) as (file, _):
        sample = file.read(_SAMPLE_BYTES).decode("utf-8-sig", "replace")
    if _MARKUP.match(sample):
        raise ValueError(
            f"{path} is XML or HTML. Extract its text, for example from a dump of "
            "Wikipedia with WikiExtractor."
        )
    if _JSON.match(sample):
        return Layout("json", is_wrapped=False)
    if separator == "doc_tag" or (separator == "auto" and _TAGGED.search(sample)):
        return Layout("doc_tag", is_wrapped=False)
    lines = [line.strip() for line in sample.splitlines()]
    is_wrapped = _is_wrapped(lines)
    if separator == "auto":
        blocks = itertools.groupby(lines, key=bool)
        sizes = [len(list(block)) for is_text, block in blocks if is_text]
        # Titles have blank lines around them, too, but they are at most 3% of the lines
        # in an encyclopedia. In novels 30% and more of the lines are paragraphs.
        is_paragraphs = is_wrapped or (
            statistics.median(sizes or [1]) == 1 and 4 * sizes.count(1) >= sum(sizes)
        )
        separator = "file" if is_paragraphs else "blank_line"
    return Layout(separator, is_wrapped)


def _is_wrapped(lines: list[str]) -> bool:
    """Returns whether lines are wrapped at a width between 40 and 120 characters.

    In wrapped text most line breaks are inside sentences: 68 to 94% in hard-wrapped
    novels, but below 20% where each line is a sentence or a paragraph. And most lines
    are nearly full, except the last of each paragraph.
    """
    breaks = [pair for pair in itertools.pairwise(lines) if all(pair)]
    if not breaks:
        return False
    num_inside = sum(
        line[-1] not in _FINAL and following[0].islower() for line, following in breaks
    )
    lengths = sorted(map(len, filter(None, lines)))
    width = lengths[int(0.95 * len(lengths))]
    typical = statistics.median(len(line) for line, _ in breaks)
    is_full = 40 <= width <= 120 and typical >= 0.75 * width
    return num_inside > len(breaks) / 2 and is_full


def byte_ranges(path: str, size: int, separator: str = "auto") -> list[tuple[int, int]]:
    """Divides a file into byte ranges (start, end) of about `size` bytes.

    `read_documents` yields every document in exactly one of the ranges, so that several
    processes can read one file. A compressed file or a file that is one document is
    not divided.
    """
    starts: Sequence[int] = [0]
    length = storage.stat(path)[0]
    if length > size:
        with storage.open_text(path) as (_, is_compressed):
            pass
        if not is_compressed and detect_layout(path, separator).separator != "file":
            starts = range(0, length, size)
    return list(itertools.pairwise([*starts, END_OF_FILE]))


def read_documents(
    path: str, separator: str = "auto", start: int = 0, end: int = END_OF_FILE
) -> Iterator[Document]:
    """Yields the documents of a text file, each a non-empty list of sentences.

    Args:
        path: A text file.
        separator: One of `DOCUMENT_SEPARATORS`.
        start: Start of a range of `byte_ranges`. Reading begins at the first separator
            at or after this byte.
        end: End of the range. Reading stops at the first separator at or after it.

    Raises:
        ValueError: As `storage.read_lines`.
    """
    layout = detect_layout(path, separator)
    if layout.separator == "json":
        yield from _read_json_lines(path, start, end)
        return
    lines = storage.read_lines_from(path, start)
    if layout.is_wrapped:
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
            title = _TITLE.match(line)
        elif not inside or not line.strip():
            continue
        elif title and line.strip() == title[1]:
            title = None
        else:
            document += split_sentences(line)
    if document:
        yield document


def _read_json_lines(path: str, start: int, end: int) -> Iterator[Document]:
    """Yields the documents of the lines that begin in a range of bytes."""
    for offset, line in storage.read_lines_from(path, start):
        if offset >= end:
            return
        if not line.strip():
            continue
        try:
            record = parse_object(line)
            lines = text_value(record, "text").split("\n")
        except ValueError as error:
            number = storage.line_number(path, offset)
            raise ValueError(
                f"{path}, line {number}: {error} The text of a document must be under "
                "the key 'text', for example: jq -c '{text: .KEY | strings}'"
            ) from None
        if lines[0].strip() == record.get("title"):
            del lines[0]
        numbered: Iterable[tuple[int, str]] = enumerate(lines)
        if _is_wrapped([line.strip() for line in lines]):
            numbered = _unwrap(numbered)
        document = [s for _, line in numbered for s in split_sentences(line)]
        if document:
            yield document


_TITLE = re.compile(r'<doc .*?\btitle="(.*?)"[^"]*>$')
# A tag at the start of the file, or one that hardly occurs in other text.
_TAGGED = re.compile(
    r"\A\s*(<doc |= [^=\n]+ =\s*$)|^(</doc>|<\|endoftext\|>)\s*$", re.MULTILINE
)
_IS_SEPARATOR = {
    "doc_tag": re.compile(r"<doc |</doc>|<\|endoftext\|>|\s*= [^=]+ =\s*$").match,
    "blank_line": lambda line: not line.strip(),
    "file": lambda line: False,
}


def _unwrap(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Joins the lines of each paragraph; keeps blank lines."""
    for is_text, group in itertools.groupby(lines, lambda line: bool(line[1].strip())):
        if is_text:
            offsets, paragraph = zip(*group)
            yield offsets[0], " ".join(map(str.strip, paragraph))
        else:
            yield from group


# --- Blocks ----------------------------------------------------------------------


def read_blocks(
    ranges: Iterable[tuple[str, int, int]], separator: str
) -> Iterator[list[Document]]:
    """Yields lists of the documents in ranges (path, start, end) of files.

    All blocks but the last have at least two documents.
    """
    block: list[Document] = []
    size = 0
    for path, start, end in ranges:
        for document in read_documents(path, separator, start, end):
            if size >= _BLOCK_CHARACTERS and len(block) > 1:
                yield block
                block, size = [], 0
            block.append(document)
            size += sum(map(len, document))
    if block:
        yield block


def hold_out(
    block: list[Document], share: float, rng: random.Random, is_first: bool
) -> dict[str, list[Document]]:
    """Returns the documents of each split, "train" and "validation", that has any.

    A split needs two documents for its random segments. So a block whose share is below
    two documents holds out two with a probability, or none. The first block of a text
    holds out two, unless it is tiny.
    """
    expected = share * len(block)
    few = 1 if expected >= 2 else 2
    held_out = few * int(expected / few + rng.random())
    if is_first and expected and len(block) >= _MIN_DOCUMENTS:
        held_out = max(held_out, 2)
    chosen = {*rng.sample(range(len(block)), min(held_out, len(block)))}
    if len(block) - len(chosen) < 2:
        chosen.clear()
    splits = {"train": [d for i, d in enumerate(block) if i not in chosen]}
    if chosen:
        splits["validation"] = [block[i] for i in sorted(chosen)]
    return splits


# --- Sentences -------------------------------------------------------------------

_FINAL = frozenset(".!?:;…。！？\"'”’)]")  # Last character of a sentence.
_OPENING = "\"'“‘([«¿¡"

# Candidate ends: final punctuation, closing quotes and white space, not followed by a
# lower-case letter; or full stops of other scripts, which need no white space. The
# first class has both kinds: the search then skips to it, in half of the time.
_END = re.compile(
    r"""[.!?…؟。！？｡।॥۔։።။](?:(?<=[.!?…؟])["'”’)\]»]*\s+(?![a-z\s])"""
    r"""|(?<=[。！？｡।॥۔։።။])["'”’」』）]*\s*)"""
)

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
    for match in _END.finditer(text):
        end = match.end()
        if end < len(text) and _is_end(text, begin, match.start(), end):
            sentences.append(text[begin:end].rstrip())
            begin = end
    if begin < len(text):
        sentences.append(text[begin:])
    return sentences


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
