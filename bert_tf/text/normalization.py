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
import itertools
import re
import sys
import unicodedata
from collections.abc import Sequence

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


# --- All characters --------------------------------------------------------------

# Unified ideographs stay the same, too. Other planes have no characters.
_UNIFIED = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")
_PLANES = (
    range(0xD800),
    range(0xF900, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE1000),
)
_CHARACTERS = _UNIFIED.sub("", "".join(chr(c) for plane in _PLANES for c in plane))
_CHARACTERS = _CHARACTERS.replace("~", "")  # It stays the same.

# The library tokenizers deletes private-use characters, and does not know a part of a
# CJK block.
_PRIVATE_USE = (
    range(0xE000, 0xF900),
    range(0xF0000, 0xFFFFE),
    range(0x100000, 0x10FFFE),
)
_SKIPPED = {chr(code) for code in range(0x2B820, 0x2B920)}


@functools.cache
def assigned_characters() -> list[str]:
    """Returns the assigned ones of `_CHARACTERS`."""
    return [char for char in _CHARACTERS if unicodedata.category(char) != "Cn"]


@functools.cache
def single_character_words() -> tuple[set[str], set[str]]:
    """Returns the characters of `is_single_character_word`: punctuation, ideographs."""
    punctuation = {*filter(is_punctuation, assigned_characters()), "~"}
    planes = (range(0x3400, 0xA000), range(0xF900, 0xFB00), range(0x20000, 0x30000))
    text = "".join(chr(code) for plane in planes for code in plane)
    return punctuation, {*_IDEOGRAPH.findall(text)}


def google_forms(lowercase: bool, strip_accents: bool | None = None) -> dict[str, str]:
    """Returns `normalize_character` of each character that it changes."""
    arguments = lowercase, strip_accents
    forms = {c: normalize_character(c, *arguments) for c in assigned_characters()}
    return {char: form for char, form in forms.items() if form != char}


def _tokenizers_forms(
    lowercase: bool, strip_accents: bool | None
) -> tuple[dict[str, str], set[str], set[str]]:
    """Returns `google_forms`, punctuation and ideographs of the library tokenizers.

    Its Unicode tables differ from Python's.
    """
    from tokenizers import normalizers, pre_tokenizers  # Not for Google's rules.

    # One call for a whole text is much faster. "~" stays as it is.
    normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=False, strip_accents=strip_accents, lowercase=lowercase
    )
    forms = normalizer.normalize_str("~".join(_CHARACTERS)).split("~")
    forms = dict(zip(_CHARACTERS, forms, strict=True))
    kept = "x".join(char for char in assigned_characters() if forms[char])
    parts = pre_tokenizers.BertPreTokenizer().pre_tokenize_str(kept)
    punctuation = {part for part, _ in parts if len(part) == 1} - {"x"} | {"~"}
    private = dict.fromkeys(map(chr, itertools.chain(*_PRIVATE_USE)), "")
    return forms | private, punctuation, single_character_words()[1] - _SKIPPED


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
        tensorflow/text.
        """
        pool, values = bytearray(), {}
        for form in {"": None, **dict.fromkeys(self.forms.values())}:
            replacement = form.encode()
            offset = len(pool) * bool(replacement) << _LENGTH_BITS
            values[form] = _REPLACED | offset | len(replacement)
            pool += replacement
        numbers = {form: number for number, form in enumerate(values, 1)}
        table = np.zeros(sys.maxunicode + 1, np.int64)
        codes = np.fromiter(map(ord, self.forms), np.int64, len(self.forms))
        table[codes] = [numbers[form] for form in self.forms.values()]
        # NUL terminates the keys of the trie.
        value_of_nul = values[self.forms["\0"]] if "\0" in self.forms else 0
        table[0] = 0

        builder = flatbuffers.Builder(1 << 19)
        trie = builder.CreateNumpyVector(_double_array_trie(table, [*values.values()]))
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
    """Returns the character rules of a tokenizer. Takes about 0.2 seconds."""
    split_by_tf_text = {*itertools.chain(*single_character_words())}
    if library == "google":
        forms = google_forms(lowercase, strip_accents)
        punctuation, ideographs = single_character_words()
    else:
        forms, punctuation, ideographs = _tokenizers_forms(lowercase, strip_accents)
    wrong = split_by_tf_text - punctuation
    wrong = sorted(wrong - ideographs if split_chinese else wrong)
    escapes = {ord(c): chr(_FIRST_ESCAPE + i) for i, c in enumerate(wrong)}
    # The ICU version of a server may be older than ours and miss some punctuation, so
    # non-ASCII punctuation gets spaces. Sorted, so that all processes build one model.
    others = (char for char in sorted(punctuation) if not char.isascii())
    marks = escapes | {ord(char): f" {char} " for char in others}
    changes = {char: form for char, form in forms.items() if form != char}
    changes = {chr(code): chr(code) for code in marks} | changes
    changes |= {c: form.translate(marks) for c, form in changes.items() if form}
    return CharacterRules(changes, escapes)


# --- Model -----------------------------------------------------------------------

# A value of the trie: the flag "replaced", the offset of the replacement in the string
# pool, and its length in bytes in the lowest six bits.
_REPLACED = 1 << 30
_LENGTH_BITS = 6

_PAGE_SIZE = 256  # Labels are single bytes, so each node with children has a page.


def _double_array_trie(table: np.ndarray, values: Sequence[int]) -> np.ndarray:
    """Builds a double-array trie in the format of the darts-clone library.

    The keys are the UTF-8 bytes of characters, without NUL. Bytes that start no
    character, and truncated characters, are keys with the first value.

    The children of a node are at `base ^ label`, where `base` is the index of the node
    XOR the offset in its unit. A unit has its label in bits 0-7, a flag in bit 8
    that is set if the node has a value, and its offset from bit 10. The value of a node
    is its child with the label 0, a unit with bit 31 set.

    The first pages hold the root and the units of `values`, for nodes without other
    children. Every other set of children has a page. Nodes share equal sets, because
    the truncated characters of all rare scripts have equal subtrees.

    Args:
        table: For each code point, 0 or the number of its value, from 1.
        values: The values, below 2^31.

    Returns:
        The units, uint32. The size is a multiple of 256, because a lookup may read any
        unit of a page.
    """
    first = np.zeros(-(-(len(values) + 1) // _PAGE_SIZE) * _PAGE_SIZE, np.int64)
    first[1 : len(values) + 1] = np.array(values) | 1 << 31
    pages = [first]

    def place(children: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Returns N nodes with the first value and the children [N, labels].

        A node is its base << 10, and a flag; a child may be 0 for none.
        """
        numbers: dict[bytes, int] = {}  # Of different rows; faster than `np.unique`.
        rows = [numbers.setdefault(row.tobytes(), len(numbers)) for row in children]
        children = np.frombuffer(b"".join(numbers), np.int64).reshape(len(numbers), -1)
        base = sum(map(len, pages)) + _PAGE_SIZE * np.arange(len(children))
        units = np.zeros([len(children), _PAGE_SIZE], np.int64)
        units[:, labels] = children ^ (base[:, np.newaxis] + labels) << 10 | labels
        units[:, labels] *= children != 0
        units[:, 0] = first[1]
        pages.append(units.ravel())
        return (base << 10 | 1 << 8)[rows]

    leaves = np.where(table, table << 10 | 1 << 8, 0)
    continuation = np.arange(0x80, 0xC0)
    # Nodes of all bytes but the last, then but the last two, then the first bytes.
    last = place(leaves.reshape(-1, 64), continuation)
    nodes = np.full(256, 1 << 10 | 1 << 8)
    nodes[:128] = leaves[:128]
    nodes[0xC2:0xE0] = last[2:32]
    last[:32] = 0  # Shorter keys than those of two bytes and more.
    middle = place(last.reshape(-1, 64), continuation)
    nodes[0xE0:0xF0] = middle[:16]
    middle = np.append(middle, np.zeros(-len(middle) % 64, np.int64))
    middle[:16] = 0
    nodes[0xF0:0xF5] = place(middle.reshape(-1, 64), continuation)
    root = place(nodes[np.newaxis], np.arange(256))
    units = np.concatenate(pages)
    units[root >> 10] = 0  # The root has no value.
    units[0] = root[0] >> 10 << 10
    return units.astype(np.uint32)
