# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rules in which tokenizers of BERT differ, besides vocabulary and casing."""

from __future__ import annotations

import dataclasses
from typing import Any


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
