# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The WordPiece vocabulary: read, check, write, and learn from text.

    python -m bert_tf.vocab --input='text/*' --output=vocab.txt

In: text files, as `bert_tf.documents` reads them. Out: `vocab.txt`, one token a line,
a token's id is its place: first [PAD] [UNK] [CLS] [SEP] [MASK], then single characters,
then pieces of words by frequency. "##" begins what continues a word. The same text
gives the same vocabulary.

The pieces are learnt by the trainer of the `tokenizers` library (byte pair encoding:
the most frequent pair of neighbours becomes a piece, again and again), on words that
are normalised and split by BERT's rules, those of `bert_tf.normalization`.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tqdm

from bert_tf import config, documents, normalization, storage

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
CONTINUATION = "##"


# --- A vocabulary ----------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokens of a `vocab.txt`; a token's id is its place.

    Raises:
        ValueError: A token is empty or stands there twice, or a special token is
            missing; the message names the tokens and their lines.
    """

    tokens: tuple[str, ...]

    def __post_init__(self):
        lines: dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            if not token:
                raise ValueError(
                    "A vocabulary has one token on every line. "
                    f"Received: an empty line {line}"
                )
            if token in lines:
                raise ValueError(
                    f"A vocabulary lists every token once. Received: {token!r} in line "
                    f"{lines[token]} and line {line}"
                )
            lines[token] = line
        missing = [token for token in SPECIAL_TOKENS if token not in lines]
        if missing:
            raise ValueError(
                f"A vocabulary needs the tokens {' '.join(SPECIAL_TOKENS)}. "
                f"Missing: {' '.join(missing)}"
            )

    @classmethod
    def from_file(cls, path: str | os.PathLike) -> Vocabulary:
        """Reads one token per line, UTF-8.

        Raises:
            ValueError: The file is missing or breaks a rule; the message names the
                file and the line.
        """
        path = os.fspath(path)
        try:
            tokens = tuple(documents.read_lines(path))
        except FileNotFoundError as error:
            raise ValueError(
                f"{path}: no such vocabulary. Learn one with `python -m bert_tf.vocab`."
            ) from error
        try:
            return cls(tokens)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def write(self, path: str | os.PathLike) -> None:
        """Writes the file that `from_file` reads, in place of what is there."""
        text = "".join(f"{token}\n" for token in self.tokens)
        storage.write_text(os.fspath(path), text)

    @property
    def size(self) -> int:
        return len(self.tokens)

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
        return tuple(self.ids(SPECIAL_TOKENS))

    def ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of `tokens`; that of [UNK] for one that is not in the vocabulary."""
        return [self._ids.get(token, self.unk_id) for token in tokens]

    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the tokens: equal exactly when the ids mean the same."""
        return hashlib.sha256("\n".join(self.tokens).encode()).hexdigest()

    @functools.cached_property
    def is_continuation(self) -> np.ndarray:
        """Whether each token continues a word, bool [V]."""
        return np.array([token.startswith(CONTINUATION) for token in self.tokens])

    def __repr__(self) -> str:
        return f"Vocabulary({self.size} tokens, {self.fingerprint[:12]})"


# --- Learning --------------------------------------------------------------------

# Characters are taken into the vocabulary, the most frequent first, until they cover
# this share of the text. A word with any other is [UNK].
_CHARACTER_COVERAGE = 0.9999

# A pair of pieces that occurs once is no evidence for a piece.
_MIN_FREQUENCY = 2


def learn_vocabulary(
    paths: Sequence[str], size: int, lowercase: bool = True
) -> Vocabulary:
    """Learns a WordPiece vocabulary from text files.

    Reads the text twice: the characters are counted first. Memory grows with the
    number of different words, not with the text.

    Args:
        paths: Text files, see `bert_tf.documents`.
        size: The number of tokens wanted. There are fewer if the text is too small.
        lowercase: Learn an uncased vocabulary: lower-case, without accents.

    Raises:
        ValueError: The files hold no text, or are not UTF-8 (file and line are named).
    """
    import tokenizers

    table = normalization.word_table(lowercase)
    characters = _frequent_characters(
        _sentences(paths, lowercase, "Counting characters"), table, size // 2
    )
    if not characters:
        raise ValueError(f"There is no text in {', '.join(paths)}.")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=_MIN_FREQUENCY,
        # Tokens that the trainer finds by itself come in an order that differs between
        # runs, and so do its choices between pairs of equal frequency. Given in
        # advance, all characters have their place, and the result is always the same.
        special_tokens=[*SPECIAL_TOKENS, *_character_tokens(characters)],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=UNK))
    learner.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    sentences = _sentences(paths, lowercase, "Counting words")
    words = (sentence.translate(table) for sentence in sentences)
    learner.train_from_iterator(words, trainer)
    ids = learner.get_vocab()
    return Vocabulary(tuple(sorted(ids, key=ids.__getitem__)))


def _frequent_characters(
    sentences: Iterable[str], table: Mapping[int, str], max_tokens: int
) -> list[str]:
    """Returns the characters to begin with, in the order of their code points."""
    raw_counts: collections.Counter[str] = collections.Counter()
    for sentence in sentences:
        raw_counts.update(sentence)
    counts: collections.Counter[str] = collections.Counter()
    for raw, count in raw_counts.items():
        for char in raw.translate(table).replace(" ", ""):
            counts[char] += count

    characters: list[str] = []
    uncovered = counts.total()
    tolerated = uncovered * (1 - _CHARACTER_COVERAGE)
    # The code point decides between equal counts.
    for char, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        max_tokens -= len(_character_tokens([char]))
        if uncovered <= tolerated or max_tokens < 0:
            break
        characters.append(char)
        uncovered -= count
    return sorted(characters)


def _character_tokens(characters: Sequence[str]) -> list[str]:
    """The tokens that characters need: one, and if it can continue a word two."""
    return [
        *characters,
        *(CONTINUATION + c for c in characters if not normalization.stands_alone(c)),
    ]


def _sentences(
    paths: Sequence[str], lowercase: bool, description: str
) -> Iterator[str]:
    """Yields all sentences, with a progress bar over the bytes of the files."""
    sizes = [storage.stat(path)[0] for path in paths]
    with tqdm.tqdm(
        total=sum(sizes), desc=description, unit="B", unit_scale=True
    ) as bar:
        for path, done in zip(paths, itertools.accumulate(sizes)):
            for document in documents.read_documents(path):
                # Whole sentences: whether a sigma is final depends on its neighbours.
                yield from map(str.lower, document) if lowercase else document
                # About a byte for every character; put right at the end of the file.
                bar.update(min(sum(map(len, document)), done - bar.n))
            bar.update(done - bar.n)


# --- Command ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyConfig(config.Options):
    """Flags of `python -m bert_tf.vocab`."""

    input: str = config.option(
        help="Text files to learn from: glob patterns, separated by commas. UTF-8, "
        "gzip or not; WikiExtractor's tags are not part of the text."
    )
    output: str = config.option(help="File to write, for example vocab.txt.")
    vocabulary_size: int = config.option(
        30522, help="Number of tokens. The original uncased BERT has 30522.", minimum=10
    )
    lowercase: bool = config.option(
        True, help="Lower-case and strip accents: an uncased vocabulary."
    )


def main(options: VocabularyConfig) -> None:
    """Learns a vocabulary and writes it.

    Raises:
        ValueError: `input` matches no file or holds no text, a file is not UTF-8, or
            `output` exists.
    """
    output = options.output
    if storage.exists(output):
        raise ValueError(
            f"--output={output} exists, and what was made with it needs it. Delete it "
            "or name another file."
        )
    paths = documents.expand(options.input)
    storage.make_directory(os.path.dirname(output) or ".")
    start = time.monotonic()
    vocabulary = learn_vocabulary(paths, options.vocabulary_size, options.lowercase)
    vocabulary.write(output)
    megabytes = sum(storage.stat(path)[0] for path in paths) / 1e6
    summary = (
        f"{output}: {vocabulary.size:,} tokens from {megabytes:.1f} MB of text in "
        f"{time.monotonic() - start:.0f} s."
    )
    if vocabulary.size < options.vocabulary_size:
        summary += (
            f" The text has no more pieces that occur {_MIN_FREQUENCY} times; "
            f"--vocabulary_size={options.vocabulary_size} needs more text."
        )
    print(summary)


if __name__ == "__main__":
    config.run(main, VocabularyConfig)
