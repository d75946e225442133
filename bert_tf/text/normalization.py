# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT's text normalization, compiled into a model for `tf_text.FastBertNormalizer`.

The rules are those of `tokenization.py` in google-research/bert. tf_text's built-in
models apply NFKC case folding instead, which BERT was not trained with: it expands ½
to three characters, ß to ss and ﬁ to fi.

All rules look at one character at a time. `text.word_pieces` implements the only
exception, the final sigma. Character properties come from the `unicodedata` of the
Python that builds the model (Unicode 13 in Python 3.10, 15.1 in Python 3.13). An
exported model contains the compiled rules.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

# --- Rules in which tokenizers of BERT differ, besides vocabulary and casing -----


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A string that becomes one token wherever it occurs in a text.

    Attributes:
        content: The string, a token of the vocabulary.
        normalized: Whether to compare after normalization, e.g. in lower case.
        special: Whether transformers calls it a special token.
    """

    content: str
    normalized: bool = False
    special: bool = True


@dataclasses.dataclass(frozen=True)
class TokenizerRules:
    """How to tokenize. The defaults are the rules of google-research/bert.

    Attributes:
        library: "google" for google-research/bert, or "tokenizers" for the library of
            Hugging Face. It decides about character properties, a final sigma (only
            google's rules keep ς), the order of lowercasing and stripping accents, the
            length of the longest words, and which of two truncated segments gets an odd
            token.
        strip_accents: Whether to strip accents. None: if the tokenizer lowercases.
        split_chinese: Whether each Chinese character is a word.
        second_segment: The segment id of second texts, 0 or 1.
        added_tokens: Tokens to find inside texts. By default none, so the names of
            special tokens are ordinary text.
    """

    library: str = "google"
    strip_accents: bool | None = None
    split_chinese: bool = True
    second_segment: int = 1
    added_tokens: tuple[AddedToken, ...] = ()

    @property
    def max_characters_per_word(self) -> int:
        """Longer words become [UNK]."""
        return 200 if self.library == "google" else 100

    def to_dict(self) -> dict[str, Any]:
        """Returns the values that differ from google's."""
        values = dataclasses.asdict(self)
        default = dataclasses.asdict(GOOGLE_RULES)
        return {k: v for k, v in values.items() if v != default[k]}


GOOGLE_RULES = TokenizerRules()

# --- Characters ------------------------------------------------------------------


def normalize_character(
    char: str, lowercase: bool, strip_accents: bool | None = None
) -> str:
    """Returns the replacement of `char`, or "" to delete it.

    Deletes control and format characters and maps whitespace to a space. If
    `lowercase`, also lowercases. If `strip_accents`, by default `lowercase`, decomposes
    (NFD) and strips accents.
    """
    category = unicodedata.category(char)
    if char in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    if char == "\ufffd" or category in ("Cc", "Cf"):
        return ""
    if lowercase:
        char = char.lower()
    if not (lowercase if strip_accents is None else strip_accents):
        return char
    decomposed = unicodedata.normalize("NFD", char)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def is_punctuation(char: str) -> bool:
    """Whether `char` is punctuation. All ASCII symbols count as punctuation."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


# Blocks of CJK ideographs, without kana and Hangul.
CJK_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# The first code point of each block, and the one after it, sorted.
_BOUNDARIES = sorted(n for first, last in CJK_IDEOGRAPHS for n in (first, last + 1))


def is_ideograph(char: str) -> bool:
    """Whether `char` is in a block of CJK ideographs."""
    return bisect.bisect(_BOUNDARIES, ord(char)) % 2 == 1


def is_single_character_word(char: str) -> bool:
    """Whether `char` is always a word by itself: punctuation or a CJK ideograph."""
    return is_ideograph(char) or is_punctuation(char)


@functools.cache
def pretokenization_table(
    lowercase: bool, strip_accents: bool | None = None, split_chinese: bool = True
) -> dict[int, str]:
    """Returns a table such that `text.translate(table).split()` gives BERT's words.

    Words of one character have a space on each side. `text` must be lowercased already
    if `lowercase`. Takes about a second.
    """
    table = {}
    for char in map(chr, range(sys.maxunicode + 1)):
        # Unassigned, private-use and surrogate characters stay the same.
        if unicodedata.category(char) not in ("Cn", "Co", "Cs"):
            form = normalize_character(char, lowercase, strip_accents)
            table[ord(char)] = "".join(
                f" {c} "
                if is_punctuation(c) or (split_chinese and is_ideograph(c))
                else c
                for c in form
            )
    return table


def _table_of_tokenizers(
    lowercase: bool, strip_accents: bool | None, split_chinese: bool
) -> dict[int, str]:
    """Like `pretokenization_table`, by the library tokenizers.

    Its Unicode tables differ from Python's, and it skips a part of a CJK block.
    """
    import tokenizers  # Google's rules do not need it.

    # Planes without characters and private-use characters are left out.
    planes = (range(0xD800), range(0xF900, 0x32000), range(0xE0000, 0xE0200))
    chars = [chr(code) for plane in planes for code in plane if code != ord("~")]
    private = (
        range(0xE000, 0xF900),
        range(0xF0000, 0xFFFFE),
        range(0x100000, 0x10FFFE),
    )
    normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=split_chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    forms = normalizer.normalize_str("~".join(chars)).split("~")
    split = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    pieces = split(f"x~x{'x'.join(chars)}x")
    marks = {ord(c): f" {c} " for c, _ in pieces if len(c) == 1 and c != "x"}
    forms = [form.translate(marks) for form in forms]
    table = dict.fromkeys(itertools.chain(*private), "") | {ord("~"): " ~ "}
    return table | dict(zip(map(ord, chars), forms, strict=True))


# --- Rules of a tokenizer --------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class CharacterRules:
    """What a tokenizer does with single characters.

    Attributes:
        forms: The replacement of each character that changes. Characters that are words
            by themselves have spaces around them, unless tf_text splits them anyway.
        escapes: Characters that tf_text would split although the rules do not, and the
            private-use characters that replace them in texts and in tokens.
    """

    forms: dict[str, str]
    escapes: dict[int, str]

    def apply(self, text: str) -> str:
        """Returns what the normalizer makes of a text."""
        return "".join(self.forms.get(char, char) for char in text)

    @functools.cached_property
    def normalizer_model(self) -> bytes:
        """The model of these rules for `tf_text.FastBertNormalizer`.

        It is a flatbuffer of the schema `fast_bert_normalizer_model.fbs` of
        tensorflow/text. The first access takes about half a second.
        """
        pool, pool_offsets, values = bytearray(), {b"": 0}, {}
        for utf8, replacement in _utf8_replacements(self.forms):
            if replacement not in pool_offsets:
                pool_offsets[replacement] = len(pool)
                pool += replacement
            offset = pool_offsets[replacement] << _LENGTH_BITS
            values[utf8] = _REPLACED | offset | len(replacement)
        value_of_nul = values.pop(b"\0", 0)  # NUL terminates the keys of the trie.

        builder = flatbuffers.Builder(1 << 19)
        trie = builder.CreateNumpyVector(double_array_trie(values))
        pool = builder.CreateByteVector(bytes(pool))
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(1, trie, 0)
        builder.PrependInt32Slot(2, value_of_nul, 0)
        builder.PrependUOffsetTRelativeSlot(3, pool, 0)
        builder.Finish(builder.EndObject())
        return bytes(builder.Output())


# Google's rules keep private-use characters in texts, but need no escapes by default.
_FIRST_ESCAPE = 0xF0000


def character_rules(lowercase: bool, rules: TokenizerRules) -> CharacterRules:
    """Returns the character rules of a tokenizer. Takes about a second; cached."""
    settings = (rules.strip_accents, rules.split_chinese)
    return _character_rules(rules.library, lowercase, *settings)


@functools.cache
def _character_rules(library: str, *settings: bool | None) -> CharacterRules:
    is_google = library == "google"
    table = (pretokenization_table if is_google else _table_of_tokenizers)(*settings)
    forms, escapes = {}, {}

    def escape(char: str) -> str:
        if not is_single_character_word(char):
            return char
        return escapes.setdefault(ord(char), chr(_FIRST_ESCAPE + len(escapes)))

    def replace(match: re.Match) -> str:
        word, other = match.groups()
        if other:
            return escape(other)
        # The ICU version of a server may be older than ours and miss some punctuation,
        # so non-ASCII punctuation keeps its spaces.
        return word if word.isascii() or is_ideograph(word) else match[0]

    part = re.compile(" (.) |(.)", re.DOTALL)
    for code, form in table.items():
        form = escape(form) if len(form) == 1 else part.sub(replace, form)
        if form != chr(code):
            forms[chr(code)] = form
    return CharacterRules(forms, escapes)


# --- Model -----------------------------------------------------------------------

# A value of the trie: the flag "replaced", the offset of the replacement in the string
# pool, and its length in bytes in the lowest six bits.
_REPLACED = 1 << 30
_LENGTH_BITS = 6


def _utf8_replacements(forms: Mapping[str, str]) -> Iterator[tuple[bytes, bytes]]:
    """Yields (UTF-8 bytes, replacement) of every character that changes."""
    for char, form in forms.items():
        yield char.encode(), form.encode()
    # Delete invalid UTF-8: bytes that start no character, and truncated characters.
    for byte in range(0x80, 0x100):
        yield bytes([byte]), b""
    for code_point in itertools.chain(
        range(0x800, 0xD800, 0x40), range(0xE000, sys.maxunicode + 1, 0x40)
    ):
        utf8 = chr(code_point).encode()
        for length in range(2, len(utf8)):
            yield utf8[:length], b""


# --- Trie ------------------------------------------------------------------------

# The labels of a trie are bytes. Label 0 holds the value of the key that ends there.
_VALUE_LABEL = 0
_PAGE_SIZE = 256  # Labels are single bytes, so the children of a node share one page.


def double_array_trie(values: Mapping[bytes, int]) -> np.ndarray:
    """Builds a double-array trie in the format of the darts-clone library.

    The children of a node are at `base ^ label`, where `base` is the index of the node
    XOR the offset in its unit. A unit has its label in bits 0-7, a flag in bit 8
    that is set if the node has a value, and its offset from bit 10. The unit of a value
    is the value with bit 31 set.

    Args:
        values: Maps non-empty keys without NUL to values below 2^31.

    Returns:
        The units, uint32. The size is a multiple of 256, because a lookup may read any
        unit of a page.
    """
    root: dict[int, Any] = {}
    for key, value in sorted(values.items()):
        node = root
        for label in key:
            node = node.setdefault(label, {})
        node[_VALUE_LABEL] = value
    numbers: dict[tuple, int] = {}
    _number_child_sets(root, numbers)
    child_sets = list(numbers)
    labels = [[label for label, _ in child_set] for child_set in child_sets]
    bases, num_units = _assign_bases(labels)
    units = np.zeros(num_units, np.uint32)
    units[0] = bases[-1] << 10
    for base, child_set in zip(bases, child_sets):
        for label, child in child_set:
            index = base ^ label
            if label == _VALUE_LABEL:
                units[index] = 1 << 31 | child
            else:
                has_value = labels[child][0] == _VALUE_LABEL
                offset = index ^ bases[child]
                units[index] = offset << 10 | has_value << 8 | label
    return units


def _number_child_sets(node: Mapping[int, Any], numbers: dict[tuple, int]) -> int:
    """Numbers the distinct sets of children of a trie; its root gets the last one.

    Sharing equal sets halves the trie, because many characters are deleted and the
    truncated characters of all rare scripts have equal subtrees.
    """
    # Pairs of a label and the number of the child's set, or the value.
    children = tuple(
        (label, _number_child_sets(child, numbers) if label else child)
        for label, child in node.items()
    )
    return numbers.setdefault(children, len(numbers))


def _assign_bases(child_sets: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Finds a base for each set of labels such that no two children share a unit.

    Bases are unique too, because a lookup recognizes a child only by its label. The
    largest sets are placed first, each on the first page with a place for it.

    Returns:
        The bases and the number of units.
    """
    index_of = np.arange(_PAGE_SIZE)[:, None] ^ np.arange(_PAGE_SIZE)  # [base, label]
    is_free_unit = np.ones((len(child_sets), _PAGE_SIZE), bool)  # [page, index in page]
    is_free_base = is_free_unit.copy()
    is_free_unit[0, 0] = False  # The root.
    first_page = dict.fromkeys(map(len, child_sets), 0)  # By the number of labels.
    bases = [0] * len(child_sets)
    for number in sorted(range(len(child_sets)), key=lambda n: -len(child_sets[n])):
        indices = index_of[:, child_sets[number]]
        for page in range(first_page[indices.shape[1]], len(child_sets)):
            fits = is_free_base[page] & is_free_unit[page, indices].all(axis=1)
            if fits.any():
                break
        first_page[indices.shape[1]] = page
        base = int(fits.argmax())
        is_free_unit[page, indices[base]] = False
        is_free_base[page, base] = False
        bases[number] = page * _PAGE_SIZE + base
    num_pages = max(bases) // _PAGE_SIZE + 1
    return bases, num_pages * _PAGE_SIZE
