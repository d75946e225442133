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

import functools
import itertools
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import flatbuffers
import numpy as np

from bert_tf.text.rules import GOOGLE_RULES, TokenizerRules

# --- Rules -----------------------------------------------------------------------


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


def is_ideograph(char: str) -> bool:
    """Whether `char` is in a block of CJK ideographs."""
    return any(first <= ord(char) <= last for first, last in CJK_IDEOGRAPHS)


def is_single_character_word(char: str) -> bool:
    """Whether `char` is always a word by itself: punctuation or a CJK ideograph."""
    return is_ideograph(char) or is_punctuation(char)


@functools.cache
def pretokenization_table(lowercase: bool) -> dict[int, str]:
    """Returns a table such that `text.translate(table).split()` gives BERT's words.

    `text` must be lowercased already if `lowercase`. Takes about a second.
    """
    table = {}
    for char in _assigned_characters():
        form = normalize_character(char, lowercase)
        form = "".join(f" {c} " if is_single_character_word(c) else c for c in form)
        if form != char:
            table[ord(char)] = form
    return table


def _assigned_characters() -> Iterator[str]:
    """Yields all characters except unassigned, private-use and surrogate ones."""
    for char in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(char) not in ("Cn", "Co", "Cs"):
            yield char


# --- Rules of a tokenizer --------------------------------------------------------


class CharacterRules(NamedTuple):
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


# Google's rules keep private-use characters in texts, but need no escapes by default.
_FIRST_ESCAPE = 0xF0000


def character_rules(lowercase: bool, rules: TokenizerRules) -> CharacterRules:
    """Returns the character rules of a tokenizer. Takes up to a second; cached."""
    names = ("library", "strip_accents", "clean_text")
    names += ("split_chinese", "split_punctuation")
    relevant = TokenizerRules(**{name: getattr(rules, name) for name in names})
    return _character_rules(lowercase, relevant)


@functools.cache
def _character_rules(lowercase: bool, rules: TokenizerRules) -> CharacterRules:
    if rules.library == "google":
        marks, is_split_ideograph = None, is_ideograph
        normalized = (
            (char, normalize_character(char, lowercase, rules.strip_accents))
            for char in _assigned_characters()
            # Unified ideographs never change.
            if not ("\u4e00" <= char <= "\u9fff" and rules.split_chinese)
        )
    else:
        normalized, marks, is_split_ideograph = _ask_tokenizers(lowercase, rules)
    escapes: dict[int, str] = {}

    def is_word(char: str) -> bool:
        if is_ideograph(char):
            return rules.split_chinese and is_split_ideograph(char)
        is_mark = is_punctuation(char) if marks is None else char in marks
        return rules.split_punctuation and is_mark

    @functools.cache
    def form(char: str) -> str:
        if char.isspace() and not "\x1c" <= char <= "\x1f":
            return " "
        if is_word(char):
            # The ICU version of a server may be older than ours and miss some
            # punctuation, so non-ASCII punctuation gets its spaces here.
            return char if char.isascii() or is_ideograph(char) else f" {char} "
        if is_single_character_word(char):
            return escapes.setdefault(ord(char), chr(_FIRST_ESCAPE + len(escapes)))
        return char

    forms = {}
    for char, chars in normalized:
        changed = form(chars) if len(chars) == 1 else "".join(map(form, chars))
        if changed != char:
            forms[char] = changed
    return CharacterRules(forms, escapes)


def _ask_tokenizers(
    lowercase: bool, rules: TokenizerRules
) -> tuple[Iterable[tuple[str, str]], Set[str], Callable[[str], bool]]:
    """Asks the library tokenizers, whose Unicode tables differ from Python's.

    Returns:
        Characters with their replacements, the punctuation marks, and a function that
        tells whether an ideograph is a word.
    """
    import tokenizers  # Google's rules do not need it.

    separator = "~"
    bmp = (c for c in range(0x20000) if not 0xD800 <= c < 0xF900 and c != ord("~"))
    # Unified ideographs never change, only compatibility ideographs do.
    chars = [c for c in map(chr, bmp) if c >= "\uf900" or not is_ideograph(c)]
    chars += map(chr, (*range(0x2F800, 0x2FA20), *range(0xE0000, 0xE0200)))
    normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=rules.clean_text,
        handle_chinese_chars=False,
        strip_accents=rules.strip_accents,
        lowercase=lowercase,
    )
    forms = normalizer.normalize_str(separator.join(chars)).split(separator)
    split = tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    marks = {piece for piece, _ in split(f"x~x{'x'.join(chars)}x") if len(piece) == 1}
    # The library skips a part of a block. All boundaries are multiples of 32.
    is_split = functools.cache(
        lambda block: (
            len(tokenizers.normalizers.BertNormalizer().normalize_str(block)) > 1
        )
    )

    def is_split_ideograph(char: str) -> bool:
        return is_split(chr(ord(char) // 32 * 32))

    ideographs = [chr(c) for a, b in CJK_IDEOGRAPHS for c in range(a, b + 1)]
    if rules.split_chinese:
        ideographs = [c for c in ideographs if not is_split_ideograph(c)]
    planes = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    private = map(chr, itertools.chain(*planes))
    pairs = itertools.chain(
        ((char, char) for char in (separator, *ideographs)),
        zip(chars, forms, strict=True),
        ((char, "") for char in private if rules.clean_text),
    )
    return pairs, marks - {"x"}, is_split_ideograph


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


@functools.cache
def normalizer_model(lowercase: bool, rules: TokenizerRules = GOOGLE_RULES) -> bytes:
    """Compiles `character_rules` into a model for `tf_text.FastBertNormalizer`.

    The model is a flatbuffer of the schema `fast_bert_normalizer_model.fbs` of
    tensorflow/text. Takes about a second; the result is cached.
    """
    pool, pool_offsets, values = bytearray(), {b"": 0}, {}
    for utf8, replacement in _utf8_replacements(
        character_rules(lowercase, rules).forms
    ):
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


# --- Trie ------------------------------------------------------------------------

# The labels of a trie are bytes. Label 0 holds the value of the key that ends there.
_VALUE_LABEL = 0
_PAGE_SIZE = 256  # Labels are single bytes, so the children of a node share one page.
_MAX_PAGES = (1 << 21) // _PAGE_SIZE  # An offset has 21 bits.


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
    numbers: dict[tuple, int] = {}
    _number_child_sets(sorted(values.items()), numbers)
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


def _number_child_sets(
    items: Iterable[tuple[bytes, int]], numbers: dict[tuple, int]
) -> int:
    """Numbers the distinct sets of children of a trie; its root gets the last one.

    Sharing equal sets halves the trie, because many characters are deleted and the
    truncated characters of all rare scripts have equal subtrees.
    """
    children = []  # Pairs of a label and the number of the child's set, or the value.
    for label, group in itertools.groupby(items, key=lambda item: item[0][:1]):
        if label:
            rest = ((key[1:], value) for key, value in group)
            children.append((label[0], _number_child_sets(rest, numbers)))
        else:
            children.append((_VALUE_LABEL, next(group)[1]))
    return numbers.setdefault(tuple(children), len(numbers))


def _assign_bases(child_sets: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Finds a base for each set of labels such that no two children share a unit.

    Bases are unique too, because a lookup recognizes a child only by its label. Large
    sets are placed first, on one of the last four pages. Sets of one label then fill
    the gaps on all pages.

    Returns:
        The bases and the number of units.
    """
    index_of = np.arange(_PAGE_SIZE)[:, None] ^ np.arange(_PAGE_SIZE)  # [base, label]
    is_free_unit = np.ones((_MAX_PAGES, _PAGE_SIZE), bool)  # [page, index in page]
    is_free_base = np.ones((_MAX_PAGES, _PAGE_SIZE), bool)
    is_free_unit[0, 0] = False  # The root.
    bases = [0] * len(child_sets)
    num_pages = 0
    first_page = 0  # No page before it has a gap for a single label.
    for number in sorted(range(len(child_sets)), key=lambda n: -len(child_sets[n])):
        indices = index_of[:, child_sets[number]]
        is_single = len(child_sets[number]) == 1
        start = first_page if is_single else max(0, num_pages - 4)
        for page in range(start, _MAX_PAGES):
            fits = is_free_base[page] & is_free_unit[page, indices].all(axis=1)
            if fits.any():
                break
        first_page = page if is_single else 0
        num_pages = max(num_pages, page + 1)
        base = int(fits.argmax())
        is_free_unit[page, indices[base]] = False
        is_free_base[page, base] = False
        bases[number] = page * _PAGE_SIZE + base
    return bases, num_pages * _PAGE_SIZE
