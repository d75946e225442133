# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The WordPiece vocabulary: read, check, write, learn."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Iterable

import numpy as np

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens of a `vocab.txt`; a token's id is its place.

    Raises:
        ValueError: A special token is missing or a token stands there twice.
    """

    tokens: tuple[str, ...]

    def __post_init__(self):
        lines: dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            if token in lines:
                raise ValueError(
                    f"A vocabulary lists every token once. Received: {token!r} in line "
                    f"{lines[token]} and line {line}"
                )
            lines[token] = line
        missing = [token for token in SPECIAL_TOKENS if token not in lines]
        if missing:
            raise ValueError(
                f"A vocabulary needs {' '.join(SPECIAL_TOKENS)}. "
                f"Missing: {' '.join(missing)}"
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Vocabulary:
        """Reads one token per line, UTF-8.

        Raises:
            ValueError: The file is missing or breaks a rule; the message names the
                file and the line.
        """
        try:
            data = pathlib.Path(path).read_bytes()
        except FileNotFoundError as error:
            raise ValueError(
                f"{path}: no such vocabulary. Learn one with `python -m bert_tf.vocab`."
            ) from error
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise ValueError(f"{path}, line {line}: not UTF-8.") from error
        # Not splitlines(): some published vocabularies hold U+2028 as a token.
        tokens = [line.removesuffix("\r") for line in text.split("\n")]
        if tokens[-1] == "":
            tokens.pop()
        try:
            return cls(tuple(tokens))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file that `from_file` reads, in place of what is there."""
        path = pathlib.Path(path)
        unfinished = path.with_name(f".unfinished-{os.getpid()}-{path.name}")
        unfinished.write_text("".join(f"{t}\n" for t in self.tokens), "utf-8", newline="\n")
        os.replace(unfinished, path)

    @property
    def size(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    @property
    def pad_id(self) -> int:
        return self._ids[PAD]

    @property
    def unk_id(self) -> int:
        return self._ids[UNK]

    @property
    def cls_id(self) -> int:
        return self._ids[CLS]

    @property
    def sep_id(self) -> int:
        return self._ids[SEP]

    @property
    def mask_id(self) -> int:
        return self._ids[MASK]

    @property
    def special_ids(self) -> tuple[int, ...]:
        return tuple(self._ids[token] for token in SPECIAL_TOKENS)

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the tokens: equal exactly when the ids mean the same."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Whether each token continues a word, bool [V]."""
        return np.array([token.startswith("##") for token in self.tokens])

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of `tokens`; that of [UNK] for one that is not in the vocabulary."""
        return [self._ids.get(token, self.unk_id) for token in tokens]

    def __repr__(self) -> str:
        return f"Vocabulary({self.size} tokens, {self.fingerprint[:12]})"
