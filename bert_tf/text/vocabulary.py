# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The WordPiece vocabulary: the mapping between tokens and ids."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable

import numpy as np

from bert_tf import storage, text_files
from bert_tf.text.normalization import normalize_character

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
CONTINUATION_PREFIX = "##"

# A vocabulary that was learned with other Unicode tables may have a few tokens that no
# text reaches.
_MAX_UNREACHABLE = 0.001


def _id_of(token: str) -> property:
    return property(lambda vocabulary: vocabulary._id(token), doc=f"Id of {token}.")


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens of a `vocab.txt`. The index of a token is its id.

    Tokens must be unique. Empty tokens and tokens with spaces occur in no text. Only
    masked language models need [MASK].

    Raises:
        ValueError: Another special token is missing, and the message names the first;
            or there are only special tokens.
    """

    tokens: tuple[str, ...]

    pad_id = _id_of(PAD)
    unk_id = _id_of(UNK)
    cls_id = _id_of(CLS)
    sep_id = _id_of(SEP)
    mask_id = _id_of(MASK)

    def __post_init__(self):
        for token in (PAD, UNK, CLS, SEP):
            self._id(token)
        if not {*self.tokens} - {*SPECIAL_TOKENS, ""}:
            raise ValueError(
                "The vocabulary has only special tokens: every word would be [UNK]. In "
                "transformers 5, BertTokenizer takes a file as vocab=, not vocab_file=."
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Vocabulary:
        """Reads a UTF-8 file with one token per line.

        As in google-research/bert, spaces around tokens are removed. Blank lines at the
        end are skipped, others keep their id. The last of equal tokens counts; the
        others become empty.

        Raises:
            ValueError: The file is not UTF-8, or its tokens are invalid. The message
                names the file and the line.
            OSError: The file cannot be read.
        """
        if not storage.exists(os.fspath(path)):
            learn = "or learn one for a new model with `python -m bert_tf.vocab`."
            raise FileNotFoundError(f"{path} does not exist. Copy the model's, {learn}")
        tokens = [line.strip() for line in text_files.read_lines(os.fspath(path))]
        while tokens and not tokens[-1]:
            tokens.pop()
        last = {token: index for index, token in enumerate(tokens)}
        tokens = [token * (last[token] == i) for i, token in enumerate(tokens)]
        try:
            return cls(tuple(tokens))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path: str | os.PathLike) -> None:
        """Writes one token per line; replaces an existing file atomically."""
        text = "".join(f"{token}\n" for token in self.tokens)
        text_files.write_text(os.fspath(path), text)

    @property
    def size(self) -> int:
        return len(self.tokens)

    @property
    def special_ids(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(self.ids(SPECIAL_TOKENS)))

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the ids of `tokens`. Unknown tokens get the id of [UNK]."""
        return [self._ids.get(token, self.unk_id) for token in tokens]

    def extends(self, other: Vocabulary) -> bool:
        """Whether all tokens of `other` keep their ids.

        Other tokens may follow, or replace `[unused...]`.
        """
        return self.size >= other.size and all(
            new == old or old.startswith("[unused")
            for new, old in zip(self.tokens, other.tokens)
        )

    def _id(self, token: str) -> int:
        if token not in self._ids:
            raise ValueError(f"The vocabulary has no {token}. The model needs it.")
        return self._ids[token]

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokens. Equal fingerprints mean the same token ids."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Whether each token continues a word ("##"), bool [V]."""
        return np.char.startswith(self.tokens, CONTINUATION_PREFIX)

    def __repr__(self) -> str:
        return f"Vocabulary({self.size} tokens, {self.fingerprint[:12]})"


def guess_lowercase(vocabulary: Vocabulary) -> tuple[bool, str]:
    """Returns whether a vocabulary is uncased, and a note that tells why.

    It is if its tokens stay the same when they are lowercased and lose their accents.
    Korean syllables, voiced kana and Vietnamese letters do not.
    """
    # [unused0] and the like are ignored; the Chinese vocabulary has <S>.
    tokens = (t for t in vocabulary.tokens if not t.startswith(("[", "<")))
    words = [token.removeprefix(CONTINUATION_PREFIX) for token in tokens]
    lost = [w for w in words if w != "".join(normalize_character(c, True) for c in w)]
    examples = ", ".join(lost[:3])
    if len(lost) > _MAX_UNREACHABLE * len(words):
        return False, (
            "Assumed to be cased: lowercasing and stripping accents would lose "
            f"{len(lost):,} of {len(words):,} tokens, e.g. {examples}."
        )
    note = "Assumed to be uncased: the vocabulary has no capital letters and no accents"
    return True, note + (f", except in {examples}." if lost else ".")
