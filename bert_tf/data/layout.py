# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Detects how the lines of a text file form documents and sentences.

`documents.list_texts` detects it once for each file, from its beginning, and passes it
on with every range of the file. Where the evidence is weak, a line end is a sentence
end and a blank line ends a document. `--help` of `bert_tf.corpus` lists the flags that
override the detection; `documents.preview` prints what was detected.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf import cli

_RULES = {
    "blank_line": "a blank line ends a document",
    "line": "each line is a document",
    "file": "each file is a document",
    "doc_tag": "tags or titles separate documents",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFilesConfig(cli.Options):
    """Options of the commands that read text files."""

    input: str = cli.option(
        help="Text files, JSON lines, .csv or .tsv: comma-separated globs. UTF-8, also "
        "compressed."
    )
    document_separator: str = cli.option(
        "auto",
        help="What separates documents: blank_line, line (each line is one), file, "
        "doc_tag (WikiExtractor's <doc> and similar tags), or a line of your text such "
        "as '%'. auto detects it for each file.",
        common=True,
    )
    wrapped_lines: str = cli.option(
        "auto",
        help="Whether lines are wrapped at a fixed width: yes joins those of a "
        "paragraph, no ends a sentence at each line end, auto detects it.",
        choices=("auto", "yes", "no"),
        common=True,
    )
    text_column: str = cli.option(
        "text", help="Key of JSON lines, or column of .csv and .tsv, with the text."
    )

    def __post_init__(self):
        super().__post_init__()
        separator = self.document_separator
        names = ("auto", *_RULES)
        if separator not in names and re.fullmatch("[a-z_]+", separator):
            raise ValueError(
                f"--document_separator must be one of {', '.join(names)}, or a line "
                f"that is not a lower-case word. Received: {separator!r}"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextConfig(TextFilesConfig):
    """Options of the commands that read and normalize text files."""

    lowercase: bool = cli.option(
        True, help="Lowercase and strip accents (an uncased vocabulary).", common=True
    )


class Layout(NamedTuple):
    """How a file forms documents and sentences.

    Attributes:
        separator: One of `_RULES`, or a line; "json" or "table" for files of records.
        is_wrapped: Whether lines are joined into paragraphs; None detects it for each
            record.
        text_column: The key or column of the text of a record.
    """

    separator: str
    is_wrapped: bool | None = False
    text_column: str = "text"

    def __str__(self) -> str:
        rule = _RULES.get(self.separator, f"a line {self.separator!r} ends a document")
        if self.separator in ("json", "table"):
            rule = f"the {self.text_column!r} of each record is a document"
        joined = {True: "wrapped lines are joined", False: "a line end ends a sentence"}
        default = "the lines of a document are joined if they are wrapped"
        return f"{rule}, {joined.get(self.is_wrapped, default)}"


def detect_layout(path: str, sample: str, options: TextFilesConfig) -> Layout | None:
    """Returns the layout of a text file; None if it is a WordPiece vocabulary.

    Args:
        path: The file.
        sample: The beginning of its text.
        options: What the user knows about the layout.

    Raises:
        ValueError: The file is markup, and the user names no separator.
    """
    wrapped = {"yes": True, "no": False}.get(options.wrapped_lines)
    is_table = re.search(r"\.[ct]sv(\.\w+)?$", path, re.IGNORECASE)
    if is_table or _JSON.match(sample):
        kind = "table" if is_table else "json"
        return Layout(kind, wrapped, options.text_column)
    if all(re.search(rf"^\[{name}\]\s*$", sample, re.M) for name in ("UNK", "MASK")):
        return None
    separator = options.document_separator
    if separator == "doc_tag" or (separator == "auto" and _TAGGED.search(sample)):
        return Layout("doc_tag", wrapped or False)
    lines = [line.rstrip() for line in sample.expandtabs().split("\n")]
    if separator == "auto":
        _refuse_markup(path, sample, lines)
        separator = _punctuation_separator(lines) or separator
    if wrapped is None:
        ended = ["" if x.strip() == separator.strip() else x for x in lines]
        wrapped = separator != "line" and is_wrapped(ended)
    if separator == "auto":
        separator = "file" if wrapped else "blank_line"
    return Layout(separator, wrapped)


def is_wrapped(lines: Sequence[str]) -> bool:
    """Returns whether lines are wrapped at a fixed width, as in books.

    Most line breaks must be inside sentences, and the text must have ends of sentences.
    In addition, most lines must be full: the first word of the next line would not fit.
    92% or more of the lines of wrapped novels are full, but 25 to 53% of those of other
    texts. Or most lines must continue in lower case. Indented lines begin a paragraph.
    """
    blocks = [
        list(block)
        for is_text, block in itertools.groupby(lines, key=lambda x: bool(x.strip()))
        if is_text
    ]
    breaks = [
        (line, following.strip())
        for block in blocks
        for line, following in itertools.pairwise(block)
        if indentation(following) <= indentation(line)
    ]
    if len(breaks) < max(3, sum(map(len, blocks)) / 10):
        return False
    width = sorted(len(line) for line, _ in breaks)[3 * len(breaks) // 4]
    full = inside = lower = stops = 0
    for line, following in breaks:
        is_inside = line[-1] not in FINAL
        inside += is_inside
        lower += is_inside and following[0].islower()
        full += len(line) + 1 + len(_WORD.match(following)[0]) > width
        stops += bool(SENTENCE_END.search(line))
    ends = [block[-1][-1] in FINAL for block in blocks if len(block) > 1]
    has_stops = stops > 0.1 * len(breaks)
    is_full = full > 0.8 * len(breaks) and (has_stops or sum(ends) > len(ends) / 2)
    continues = lower > len(breaks) / 2 and has_stops
    return inside > len(breaks) / 2 and (is_full or continues)


def indentation(line: str) -> int:
    """Returns the number of spaces at the start of a line without tabs."""
    return len(line) - len(line.lstrip())


def _punctuation_separator(lines: Sequence[str]) -> str | None:
    """Returns a line of punctuation that separates documents, for example "%"."""
    stripped = [line.strip() for line in lines]
    rules = collections.Counter(filter(_RULE.fullmatch, stripped))
    ((separator, count),) = rules.most_common(1) or [("", 0)]
    # Blank lines that are not beside the separator separate documents, too.
    kinds = [line if line in ("", separator) else "text" for line in stripped]
    kinds = [kind for kind, _ in itertools.groupby(kinds)]
    triples = zip(kinds, kinds[1:], kinds[2:])
    gaps = sum(triple == ("text", "", "text") for triple in triples)
    return separator if count >= 3 and 2 * count >= gaps else None


def _refuse_markup(path: str, sample: str, lines: Sequence[str]) -> None:
    count = sum(map(bool, lines))
    for name, pattern, share in _MARKUP:
        found = re.findall(pattern, sample, re.MULTILINE | re.IGNORECASE)
        if len(found) > (max(4, share * count) if share else 0):
            match = re.search(f".*({pattern}).*", sample, re.MULTILINE | re.IGNORECASE)
            raise ValueError(
                f"{path} is {name}: {len(found)} of {count} lines are like "
                f"{match[0].strip()[:60]!r}. Extract its text, or learn the lines as "
                "they are with --document_separator=blank_line"
            )


FINAL = frozenset(".!?:;…。！？।॥\"'”’)]»」』")  # Last character of a sentence.

# Candidate ends: final punctuation, closing quotes and white space, not followed by a
# lower-case letter; or full stops of other scripts, which need no white space. The
# first class has both kinds: the search then skips to it, in half of the time.
SENTENCE_END = re.compile(
    r"""[.!?…؟。！？｡।॥۔։።](?:(?<=[.!?…؟])["'”’)\]»]*\s+(?![a-z\s])"""
    r"""|(?<=[。！？｡।॥۔։።])["'”’」』）]*\s*)"""
)

_JSON = re.compile(r'\s*(\[\s*)?\{\s*["}]')  # The start of objects, or a list of them.
# A tag at the start of the file, or one that hardly occurs in other text.
_TAGGED = re.compile(
    r"\A\s*(<doc |= [^=\n]+ =\s*$)|^(</doc>|<\|endoftext\|>)\s*$", re.MULTILINE
)
_RULE = re.compile(r"[%*=_~#+•—–─═§&$@^\- ]+")
# A word, or a character of a script without spaces.
_WORD = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]|\S+")

# Name, pattern and largest share of the lines in which text may have it.
_MARKUP = (
    (
        "XML or HTML (of Wikipedia, use WikiExtractor)",
        r"\A\s*<(?:mediawiki|!doctype|html|\?xml)\b",
        0,
    ),
    ("XML or HTML", r"^\s*</?[a-z][^<>]*>(?:.*>)?\s*$", 0.2),
    ("a mailbox", r"\AFrom \S+.*\d\d:\d\d", 0),
    ("RTF", r"\A\{\\rtf", 0),
    ("PDF or PostScript", r"\A%(?:PDF|!PS)", 0),
    ("TeX", r"^\\documentclass", 0),
    ("TeX", r"\\(?:begin|section|cite|ref|emph|textbf)\b", 0.1),
    ("a manual page (roff)", r"^(?:['.]\\\"|\.[a-z]{1,2}\b)", 0.1),
    ("a list of subtitles", r"^\s*(?:\d\d:)?\d\d:\d\d[,.]\d+ --> |^Dialogue: \d", 0.1),
    ("a list of translations (PO)", r"^(?:msgid|msgstr|#[:,.~|] )", 0.3),
    ("a wiki's source", r"\[\[[^\]\n]+\]\]", 0.3),
    ("source code", r"[;{}]\s*$", 0.4),
    ("a table (its name must end in .tsv)", r"^[^\t\n]*\S\t[^\n]*\S", 0.8),
)
