# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""What BERT does to a text before it looks for word pieces, compiled for TensorFlow.

In: nothing but Python's own Unicode tables. Out: the model that
`tf_text.FastBertNormalizer` interprets; `bert_tf.text` puts it into the graph.

tf_text's built-in models case-fold (NFKC), which is not what BERT was trained with:
they turn ½ into three characters, ß into ss and ﬁ into fi. BERT's own rules are those
of `tokenization.py` in google-research/bert, here `normal_form`. They look at one
character at a time, with a single exception, the final sigma, that `bert_tf.text`
treats.

The tables are those of the Python that builds the model (Unicode 13 in Python 3.10,
15.1 in Python 3.13). An exported model carries the result along.
"""

from __future__ import annotations

import functools
import itertools
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

import flatbuffers
import numpy as np

# --- The rules -------------------------------------------------------------------


def normal_form(char: str, lowercase: bool) -> str:
    """Returns what BERT reads instead of `char`; "" deletes it.

    Control and format characters go, white space becomes a space. If `lowercase`,
    letters are lower-cased, decomposed (NFD), and lose their accents.
    """
    category = unicodedata.category(char)
    if char in "\t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    if char == "\ufffd" or category in ("Cc", "Cf"):
        return ""
    if not lowercase:
        return char
    decomposed = unicodedata.normalize("NFD", char.lower())
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def is_punctuation(char: str) -> bool:
    """Whether `char` is a word of its own; so are all ASCII symbols."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


# Chinese characters are words of their own, kana and Hangul are not.
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_single_character_word(char: str) -> bool:
    """Whether `char` is split off from its neighbours: punctuation, or Chinese."""
    return is_punctuation(char) or any(a <= ord(char) <= b for a, b in _CHINESE)


def word_table(lowercase: bool) -> dict[int, str]:
    """All rules as a table: `text.translate(table).split()` gives the words of BERT.

    Takes about a second.
    """
    table = {}
    for char in _assigned_characters():
        form = normal_form(char, lowercase)
        form = "".join(f" {c} " if is_single_character_word(c) else c for c in form)
        if form != char:
            table[ord(char)] = form
    return table


def _assigned_characters() -> Iterator[str]:
    """Yields all characters but the unassigned, private and surrogate ones."""
    for char in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(char) not in ("Cn", "Co", "Cs"):
            yield char


# --- The model -------------------------------------------------------------------

# A value is a flag that says "replaced", where the replacement begins in the pool of
# strings, and in the lowest six bits its length in bytes.
_REPLACED = 1 << 30
_LENGTH_BITS = 6


def _utf8_replacements(lowercase: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yields the UTF-8 of every character that changes, and of what it becomes."""
    for char in _assigned_characters():
        form = normal_form(char, lowercase)
        # Python may know punctuation that the ICU library of a server does not know
        # yet, so it is set apart here. ASCII needs no such help.
        if not form.isascii() and len(form) == 1 and is_punctuation(form):
            form = f" {form} "
        if form != char:
            yield char.encode(), form.encode()
    # Bytes that are not UTF-8 are deleted: those that begin no character, and the
    # beginnings of characters that were cut off.
    for byte in range(0x80, 0x100):
        yield bytes([byte]), b""
    for code_point in itertools.chain(
        range(0x800, 0xD800, 0x40), range(0xE000, sys.maxunicode + 1, 0x40)
    ):
        utf8 = chr(code_point).encode()
        for length in range(2, len(utf8)):
            yield utf8[:length], b""


@functools.cache
def normalizer_model(lowercase: bool) -> bytes:
    """Compiles `normal_form` into the flatbuffer of `tf_text.FastBertNormalizer`.

    Takes about a second. The table's fields are those of tensorflow/text's
    `fast_bert_normalizer_model.fbs`.
    """
    pool, pool_offsets, values = bytearray(), {b"": 0}, {}
    for utf8, replacement in _utf8_replacements(lowercase):
        if replacement not in pool_offsets:
            pool_offsets[replacement] = len(pool)
            pool += replacement
        offset = pool_offsets[replacement] << _LENGTH_BITS
        values[utf8] = _REPLACED | offset | len(replacement)
    value_of_nul = values.pop(b"\0")  # The trie ends its keys with NUL.

    builder = flatbuffers.Builder(1 << 19)
    trie = builder.CreateNumpyVector(double_array_trie(values))
    pool = builder.CreateByteVector(bytes(pool))
    builder.StartObject(4)
    builder.PrependBoolSlot(0, lowercase, False)
    builder.PrependUOffsetTRelativeSlot(1, trie, 0)
    builder.PrependInt32Slot(2, value_of_nul, 0)
    builder.PrependUOffsetTRelativeSlot(3, pool, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


# --- The trie --------------------------------------------------------------------

# A node's children by label. The child with the label 0 is not a node but the value
# of the key that ends there.
_VALUE = 0
_PAGE = 256  # All children of a node lie on one page, as labels are single bytes.


def double_array_trie(values: Mapping[bytes, int]) -> np.ndarray:
    """Packs a trie into the array of units that the darts-clone library reads.

    The children of a node lie at `base ^ label`, where the base is the node's own
    index XOR the offset in its unit. A unit has its label in bits 0-7, whether a
    value is among its children in bit 8, and its offset from bit 10 on. A value's
    unit is the value with bit 31 set.

    Args:
        values: From non-empty keys without NUL to values below 2^31.

    Returns:
        The units, uint32. Whole pages, as a reader looks up any label anywhere.
    """
    root: dict = {}
    for key, value in values.items():
        node = root
        for label in key:
            node = node.setdefault(label, {})
        node[_VALUE] = value

    families: dict[tuple, int] = {}
    _share(root, families)
    families = list(families)
    bases, num_units = _place([[label for label, _ in family] for family in families])
    units = np.zeros(num_units, np.uint32)
    units[0] = bases[-1] << 10
    for base, family in zip(bases, families):
        for label, child in family:
            index = base ^ label
            if label == _VALUE:
                units[index] = 1 << 31 | child
            else:
                has_value = families[child][0][0] == _VALUE
                offset = index ^ bases[child]
                units[index] = offset << 10 | has_value << 8 | label
    return units


def _share(node: Mapping, families: dict[tuple, int]) -> int:
    """Numbers the sets of children below `node`, equal ones once; the root is last.

    Sharing halves the trie: the many characters that are deleted have the same
    child, and the cut-off beginnings of all rare scripts look alike.
    """
    family = tuple(
        (label, child if label == _VALUE else _share(child, families))
        for label, child in sorted(node.items())
    )
    return families.setdefault(family, len(families))


def _place(families: Sequence[Sequence[int]]) -> tuple[list[int], int]:
    """Finds a base for each set of labels, so that no two children share a unit.

    Nor do two families share a base: a reader recognises a child by its label
    alone. Large families come first, on one of the last few pages; the many of a
    single child then fill the holes on all pages.

    Returns:
        The bases, and the number of units in use.
    """
    index_of = np.arange(_PAGE)[:, None] ^ np.arange(_PAGE)  # [base, label]
    free = np.empty((0, _PAGE), bool)  # Units, by page.
    vacant = np.empty((0, _PAGE), bool)  # Bases, by page.
    bases = [0] * len(families)
    first_page = 0
    for number in sorted(range(len(families)), key=lambda n: -len(families[n])):
        indices = index_of[:, families[number]]
        single = len(families[number]) == 1
        for page in itertools.count(first_page if single else max(0, len(free) - 4)):
            if page == len(free):
                free = np.vstack([free, np.ones(_PAGE, bool)])
                vacant = np.vstack([vacant, np.ones(_PAGE, bool)])
                free[0, 0] = False  # The root.
            fits = vacant[page] & free[page, indices].all(axis=1)
            if fits.any():
                break
            if single:
                first_page = page + 1
        base = int(fits.argmax())
        free[page, indices[base]] = False
        vacant[page, base] = False
        bases[number] = page * _PAGE + base
    return bases, free.size
