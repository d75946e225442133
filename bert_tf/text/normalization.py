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

import dataclasses
import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
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

    def is_word(self, lowercase: bool) -> bool:
        """Returns whether it is one word of text without added tokens, too."""
        kept = "".join(normalize_character(c, lowercase).strip() for c in self.content)
        return kept == self.content and not any(map(is_single_character_word, kept))


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


# Blocks of CJK ideographs, without kana and Hangul, as ranges of regular expressions.
IDEOGRAPHS = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_IDEOGRAPH = re.compile(f"[{IDEOGRAPHS}]")


def is_single_character_word(char: str, split_chinese: bool = True) -> bool:
    """Whether `char` is always a word by itself: punctuation or a CJK ideograph."""
    return is_punctuation(char) or (split_chinese and bool(_IDEOGRAPH.match(char)))


def google_forms(lowercase: bool, strip_accents: bool | None = None) -> dict[str, str]:
    """Returns `normalize_character` of each character. Takes half a second.

    Unassigned, private-use and surrogate characters are left out: they stay the same.
    """
    return {
        char: normalize_character(char, lowercase, strip_accents)
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) not in ("Cn", "Co", "Cs")
    }


def _tokenizers_forms(
    lowercase: bool, strip_accents: bool | None, split_chinese: bool
) -> tuple[dict[str, str], set[str]]:
    """Returns `google_forms` of the library tokenizers, and what it makes a word.

    Its Unicode tables differ from Python's, and it skips a part of a CJK block.
    """
    from tokenizers import normalizers, pre_tokenizers  # Not for Google's rules.

    # Other planes have no characters. "~" separates the others; it stays the same.
    planes = (range(0xD800), range(0xE000, 0x32000), range(0xE0000, 0x110000))
    chars = [chr(code) for plane in planes for code in plane if code != ord("~")]
    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=False, strip_accents=strip_accents, lowercase=lowercase
    )
    forms = normalizer.normalize_str("~".join(chars)).split("~")
    kept = "x".join(char for char, form in zip(chars, forms, strict=True) if form)
    splitter = normalizers.BertNormalizer(
        handle_chinese_chars=split_chinese, strip_accents=False, lowercase=False
    )
    punctuation = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(kept)
    parts = {*splitter.normalize_str(kept).split(), *(part for part, _ in punctuation)}
    return dict(zip(chars, forms)), {part for part in parts if len(part) == 1}


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
        replacements = {c.encode(): form.encode() for c, form in self.forms.items()}
        replacements |= dict.fromkeys(_invalid_utf8(), b"")  # Deletes them.
        pool, pool_offsets, values = bytearray(), {b"": 0}, {}
        for utf8, replacement in replacements.items():
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


@functools.cache
def character_rules(
    lowercase: bool, library: str, strip_accents: bool | None, split_chinese: bool
) -> CharacterRules:
    """Returns the character rules of a tokenizer. Takes about a second."""
    if library == "google":
        forms = google_forms(lowercase, strip_accents)
        words = {c for c in forms if is_single_character_word(c, split_chinese)}
    else:
        forms, words = _tokenizers_forms(lowercase, strip_accents, split_chinese)
    split_by_tf_text = {c for c in forms if is_single_character_word(c)}
    wrong = sorted(split_by_tf_text - words)
    escapes = {ord(c): chr(_FIRST_ESCAPE + i) for i, c in enumerate(wrong)}
    # The ICU version of a server may be older than ours and miss some punctuation, so
    # non-ASCII punctuation gets spaces.
    spaced = (c for c in words if not (c.isascii() or _IDEOGRAPH.match(c)))
    marks = escapes | {ord(c): f" {c} " for c in spaced}
    forms = {char: form.translate(marks) for char, form in forms.items()}
    changes = {char: form for char, form in forms.items() if form != char}
    return CharacterRules(changes, escapes)


# --- Model -----------------------------------------------------------------------

# A value of the trie: the flag "replaced", the offset of the replacement in the string
# pool, and its length in bytes in the lowest six bits.
_REPLACED = 1 << 30
_LENGTH_BITS = 6


def _invalid_utf8() -> Iterator[bytes]:
    """Yields bytes that start no character, and truncated characters."""
    for byte in range(0x80, 0x100):
        yield bytes([byte])
    for code_point in range(0x800, sys.maxunicode + 1, 0x40):
        utf8 = chr(code_point).encode("utf-8", "surrogatepass")
        for length in range(2, len(utf8)):
            yield utf8[:length]


# --- Trie ------------------------------------------------------------------------

# The labels of a trie are bytes. Label 0 holds the value of the key that ends there.
_VALUE_LABEL = 0
_PAGE_SIZE = 256  # Labels are single bytes, so each node with children has a page.


def double_array_trie(values: Mapping[bytes, int]) -> np.ndarray:
    """Builds a double-array trie in the format of the darts-clone library.

    The children of a node are at `base ^ label`, where `base` is the index of the node
    XOR the offset in its unit. A unit has its label in bits 0-7, a flag in bit 8
    that is set if the node has a value, and its offset from bit 10. The unit of a value
    is the value with bit 31 set.

    The first pages hold the root and one unit for each value of nodes without other
    children. Every other set of children has a page. Nodes share equal sets, because
    the truncated characters of all rare scripts have equal subtrees.

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
    leaves = dict.fromkeys(values.values())
    units = [0, *(1 << 31 | value for value in leaves)]
    units += [0] * (-len(units) % _PAGE_SIZE)
    bases = {((_VALUE_LABEL, value),): base for base, value in enumerate(leaves, 1)}

    def place(node: Mapping[int, Any]) -> int:
        """Returns the base of the children of a node."""
        children = tuple(
            (label, place(child) << 10 | (_VALUE_LABEL in child) << 8)
            if label
            else (label, child)
            for label, child in node.items()
        )
        if children not in bases:
            base = bases[children] = len(units)
            units.extend([0] * _PAGE_SIZE)
            for label, child in children:
                unit = child ^ (base + label) << 10 | label
                units[base + label] = unit if label else 1 << 31 | child
        return bases[children]

    units[0] = place(root) << 10
    return np.array(units, np.uint32)
