# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Text files to a directory of records: `prepare_corpus`.

The text is divided into parts, which are independent jobs (see `bert_tf.data.jobs`), so
the same command resumes after an interruption. `write_part` writes the records of a
part, and counts problems in its text.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import math
import os
import random
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import cli, storage, text, text_files
from bert_tf.data.documents import (
    Document,
    TextRange,
    group_parts,
    list_texts,
    preview,
    read_paragraphs,
    split_document,
    split_texts,
)
from bert_tf.data.jobs import JobOptions, remove_results, run_jobs
from bert_tf.data.layout import TextConfig
from bert_tf.data.pairs import PairConfig, draw_all_pairs, find_sentences, pack
from bert_tf.data.records import record_writer
from bert_tf.lazy import lazy_import
from bert_tf.text import Vocabulary, guess_lowercase

tf = lazy_import("tensorflow")

_OTHER_RANGES = 32  # For random segments if one document fills a part.
# Of more documents, or if more of them are held out on average, the share is exact
# enough: the rest of the text is not scanned.
_MANY_DOCUMENTS, _MANY_HELD_OUT = 2000, 20
_FEW_DOCUMENTS = 10  # Of fewer documents, none may be held out.
# Scripts of South and Southeast Asia, and kana: their vowel signs count as accents.
_MARKED = re.compile("[\u0900-\u109f\u1780-\u17ff\u3040-\u30ff]")
_BATCH_SENTENCES = 1 << 13  # Per call of the tokenizer, about 1 MB of text.
_BLOCK_CHARACTERS = 1 << 24  # Most parts of a text are one block.
_OTHER_SENTENCES = 1 << 12  # Borrowed if one document fills a block.
_MAX_PAIRS_PER_ROW = 8  # Shapes are static: more would enlarge the inputs of all rows.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusConfig(TextConfig, PairConfig, JobOptions):
    """Options of `python -m bert_tf.corpus` and `prepare_corpus`."""

    vocabulary: str = cli.option(help="WordPiece vocabulary, one token per line.")
    output: str = cli.option(help="Directory for the records and manifest.json.")
    dupe_factor: int = cli.option(
        1,
        help="How often to draw other pairs from each document, for as many epochs.",
        minimum=1,
        common=True,
    )
    pack: bool = cli.option(
        True, help="Pack several pairs into a row; attention does not cross pairs."
    )
    held_out_share: float = cli.option(
        0.01,
        help="Share of validation documents. A hash of its text selects a document.",
        minimum=0,
        maximum=0.5,
        common=True,
    )
    validation_input: str = cli.option(
        "", help="Text files for validation, in place of --held_out_share.", common=True
    )
    seed: int = cli.option(0, help="Seed of all random choices.", minimum=0)


_Texts = Mapping[str, Sequence[TextRange]]  # By split.


def prepare_corpus(options: CorpusConfig) -> dict[str, Any]:
    """Writes records of text files and reports problems in the text; resumes.

    Returns:
        The manifest.

    Raises:
        ValueError: No file matches, a file is not UTF-8, the text has fewer than two
            documents for next sentence prediction, the vocabulary is invalid or does
            not fit `lowercase`, or the directory holds other results or is in use by
            another process.
        OSError: A file cannot be read or written, or a worker process was killed.
    """
    vocabulary = Vocabulary.from_file(options.vocabulary)
    _ = vocabulary.mask_id  # Raises ValueError if there is none.
    _check_casing(options, vocabulary)
    validation: list[TextRange] = []
    if options.validation_input:
        validation = list_texts(options, options.validation_input)
    exclude = (options.vocabulary, *(file.path for file in validation))
    texts = {"train": list_texts(options, exclude=exclude), "validation": validation}
    started, output = time.monotonic(), options.output
    settings = _settings(options, vocabulary, texts)
    settings_path, manifest_path, vocabulary_path, prefix = (
        os.path.join(output, name)
        for name in ("settings.json", "manifest.json", "vocab.txt", "part-")
    )
    others = manifest_path, os.path.join(output, "config.json")
    storage.make_directory(output)
    with storage.exclusive(output):
        if storage.exists(settings_path):
            cli.check_unchanged(output, text_files.read_json(settings_path), settings)
        elif any(map(storage.exists, others)) or (
            storage.exists(vocabulary_path)
            and Vocabulary.from_file(vocabulary_path).tokens != vocabulary.tokens
        ):
            raise ValueError(f"--output={output} has other files. Choose a new folder.")
        if storage.exists(manifest_path):
            print(f"{output} is already complete.")
            return text_files.read_json(manifest_path)
        print(preview([*texts["train"], *validation]))
        parts = _parts(options, texts)
        text_files.write_json(settings_path, settings)
        if not storage.exists(vocabulary_path):  # It may be the user's own.
            vocabulary.write(vocabulary_path)
        # The jobs get the vocabulary itself, so that workers do not read the file.
        write = functools.partial(write_part, options, vocabulary)
        results = list(run_jobs(write, parts, prefix, options))
        manifest = _manifest(options, vocabulary, results)
        manifest["seconds"] = round(time.monotonic() - started, 1)
        for warning in manifest["warnings"]:
            print(f"warning: {warning}")
        text_files.write_json(manifest_path, manifest)
        remove_results(prefix)
        for path in storage.glob(f"{storage.TEMPORARY_PREFIX}*", output):
            storage.remove(path)
    return manifest


def _check_casing(options: CorpusConfig, vocabulary: Vocabulary) -> None:
    """Prints how the text is normalized and why. Warns if vowel signs are stripped.

    Raises:
        ValueError: Lowercasing would lose tokens of the vocabulary.
    """
    is_uncased, reason = guess_lowercase(vocabulary)
    if options.lowercase and not is_uncased:
        raise ValueError(
            f"--lowercase does not fit --vocabulary={options.vocabulary}. {reason} "
            "Pass --lowercase=false to keep case and accents, or learn a vocabulary "
            "with the same --lowercase."
        )
    kept = "lowercased, without accents" if options.lowercase else "not lowercased"
    print(f"The text is {kept} (--lowercase={options.lowercase}). {reason}")
    marked = len(_MARKED.findall("".join(vocabulary.tokens)))
    if options.lowercase and marked > vocabulary.size / 10:
        print("warning: --lowercase strips vowel signs, too. Pass --lowercase=false.")


def _settings(
    options: CorpusConfig, vocabulary: Vocabulary, texts: _Texts
) -> dict[str, object]:
    """Returns everything that determines the records."""
    settings = options.to_dict()
    for name in ("output", "num_workers", "runner", "beam_options"):
        del settings[name]
    for name, files in zip(("input", "validation_input"), texts.values()):
        stats = [(file.path, *file.stat) for file in files]
        digest = hashlib.sha256(repr(stats).encode()).hexdigest()
        total = sum(file.size for file in files)
        settings[name] = f"{len(files)} files, {total:,} bytes, state {digest[:12]}"
    settings["vocabulary"] = vocabulary.fingerprint
    return settings


def _parts(options: CorpusConfig, texts: _Texts) -> list[Part]:
    """Divides the text into parts; see `_scan`."""
    share = 0 if texts["validation"] else options.held_out_share
    train, held_out = _scan(texts["train"], share, options)
    train, validation = group_parts(train), group_parts(texts["validation"])
    num_parts = len(train) + len(validation)
    found: list[Part] = []
    for source, limit in ((train, held_out), (validation, 1.0)):
        for number, own in enumerate(source):
            following = (*source[number + 1 :], *source[:number], *train)
            others = itertools.islice(itertools.chain(*following), _OTHER_RANGES)
            found.append(Part(len(found), num_parts, own, [*others], limit))
    return found


def _scan(
    files: Sequence[TextRange], share: float, options: CorpusConfig
) -> tuple[list[TextRange], float]:
    """Reads documents to decide which to hold out.

    A document is held out if its `content_share` is at most `share`. So copies are held
    out together, and more text changes nothing. With few documents, the result may be
    far from the share: then the limit moves until it differs by at most a half, and at
    least one of ten documents is held out. More text may then move documents.

    Returns:
        The ranges without those that have no documents, as far as they were read; and
        the largest `content_share` of documents to hold out, -1 for none.

    Raises:
        ValueError: The text has fewer than two documents for next sentence prediction.
    """
    ranges, found = split_texts(files), []
    shares: set[float] = set()
    enough = max(_MANY_DOCUMENTS, _MANY_HELD_OUT / share if share else 0)
    for index, part in enumerate(ranges):
        is_empty = True
        for paragraphs in part.paragraphs():
            is_empty = False
            shares.add(content_share(paragraphs, options.seed))
            if len(shares) > enough:
                return [*found, *ranges[index:]], share or -1
        found += [] if is_empty else [part]
    if len(shares) < 2 and options.next_sentence_prediction:
        layouts = {file.layout for file in files}
        has_blank_lines = any(layout.separator == "blank_line" for layout in layouts)
        raise ValueError(
            "Next sentence prediction requires at least two documents that differ. "
            f"Got {len(shares)} in {len(files)} files: "
            f"{'; '.join(sorted(map(str, layouts)))}. Add text, or pass "
            f"--document_separator={'line' if has_blank_lines else 'blank_line'}"
        )
    expected = share * len(shares)
    held_out = sum(number <= share for number in shares)
    if len(shares) >= _FEW_DOCUMENTS or expected >= 0.5:
        held_out = max(held_out, math.ceil(expected / 2))
    held_out = min(held_out, max(1, int(1.5 * expected)), len(shares) - 2)
    if not share or held_out <= 0:
        return found, -1
    return found, sorted(shares)[held_out - 1]


def _manifest(
    options: CorpusConfig, vocabulary: Vocabulary, results: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Returns the statistics of the records and the settings that readers need.

    Raises:
        ValueError: The text has no words.
    """
    splits = {"train": collections.Counter(), "validation": collections.Counter()}
    record_files: dict[str, int] = {}
    for result in results:
        record_files |= result["files"]  # Sizes in bytes, to find damaged files.
        for split, counts in result["splits"].items():
            splits[split].update(counts)
    total = splits["train"] + splits["validation"]
    total["one_sentence"] *= options.next_sentence_prediction  # Else no problem.
    if not total["tokens"]:
        raise ValueError(f"The text of --input={options.input} has no words.")
    warnings, length = text_warnings(total), options.max_sequence_length
    is_split = options.held_out_share or options.validation_input
    if is_split and not splits["validation"]["rows"]:
        warnings.append(
            f"No documents are held out for validation: there are {total['documents']}."
            " Pass a larger --held_out_share, or --validation_input."
        )
    return {
        **{name: total[name] for name in ("documents", "sentences", "tokens")},
        "unknown_share": total["unknown"] / total["tokens"],
        **{
            f"{split}_{name}": counts[name]
            for split, counts in splits.items()
            for name in ("documents", "pairs", "rows")
        },
        "record_files": record_files,
        "pairs_per_row": max(result["pairs_per_row"] for result in results),
        "padding_share": 1 - total["used"] / (total["rows"] * length),
        "padding_share_unpacked": 1 - total["used"] / (total["pairs"] * length),
        "max_sequence_length": length,
        "lowercase": options.lowercase,
        "next_sentence_prediction": options.next_sentence_prediction,
        "held_out": ", ".join(
            f"--{name}={getattr(options, name)}"
            for name in ("held_out_share", "validation_input", "seed")
        ),
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "warnings": warnings,
    }


# --- A part ----------------------------------------------------------------------
# A part is processed in blocks of documents, which bounds the memory. Random segments
# come from the same block and split, as those of google-research/bert come from the
# input files of one process. A block with one large document borrows others.


@dataclasses.dataclass(frozen=True)
class Part:
    """A job of `write_part`.

    Attributes:
        index: Number of the part, from 0.
        num_parts: Number of parts of the text.
        texts: The text.
        other_texts: Other text, for random segments if one document fills a block.
        held_out: Documents whose `content_share` is at most this are validation data;
            -1 for no document, 1 for all.
    """

    index: int
    num_parts: int
    texts: Sequence[TextRange]
    other_texts: Sequence[TextRange]
    held_out: float

    def split_of(self, share: float) -> str:
        return "validation" if share <= self.held_out else "train"

    def read(
        self, texts: Iterable[TextRange], seed: int
    ) -> Iterator[tuple[str, list[str]]]:
        """Yields the split and the paragraphs of each document of some texts."""
        for paragraphs in read_paragraphs(texts):
            yield self.split_of(content_share(paragraphs, seed)), paragraphs


def content_share(paragraphs: Sequence[str], seed: int) -> float:
    """Returns a number in [0, 1) that depends on the text of a document and a seed."""
    content = f"{seed}\n" + "\n".join(paragraphs)
    digest = hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def write_part(
    options: CorpusConfig, vocabulary: Vocabulary, part: Part
) -> dict[str, Any]:
    """Writes the records of a part in random order, one file for each split.

    The bytes of the files depend on the arguments and the text only.

    Returns:
        "splits": counts of each split, also those of `count_problems`.
        "pairs_per_row": the maximum. "files": name and size in bytes of each file.
    """
    tokenizer = _tokenizer(vocabulary, options.lowercase)
    counts, writers, paths, pairs_per_row = {}, {}, [], 1
    length, max_pairs = options.max_sequence_length, _MAX_PAIRS_PER_ROW
    with contextlib.ExitStack() as stack:
        # The splits of the largest and the smallest share may be the same.
        for split in dict.fromkeys(map(part.split_of, (1, 0))):
            name = f"{split}-{part.index:05d}-of-{part.num_parts:05d}.tfrecord"
            paths.append(os.path.join(options.output, name))
            writers[split] = stack.enter_context(record_writer(paths[-1], vocabulary))
            counts[split] = collections.Counter()
        for number, block in enumerate(_read_blocks(part, options.seed)):
            # One generator for each draw: validation does not depend on --dupe_factor.
            seeds = [f"{options.seed} {part.index} {number}"]
            seeds += [f"{seeds[0]} {draw}" for draw in range(1, options.dupe_factor)]
            rngs = list(map(random.Random, seeds))
            for split, documents in block.items():
                others = _other_documents(part, split, block, options)
                ids, lengths = _tokenize(tokenizer, [*documents, *others])
                problems = count_problems(documents, ids, lengths, vocabulary)
                counts[split].update(problems)
                sizes = [len(document) for document in (*documents, *others)]
                starts = find_sentences(sizes, lengths, length)
                for rng in rngs if split == "train" else rngs[:1]:
                    drawn = draw_all_pairs(ids, *starts, len(documents), rng, options)
                    pairs = list(drawn)
                    rows = list(pack(pairs, length, max_pairs if options.pack else 1))
                    rng.shuffle(rows)
                    writers[split](rows)
                    used = sum(pair.length for pair in pairs)
                    counts[split].update(rows=len(rows), pairs=len(pairs), used=used)
                    pairs_per_row = max([pairs_per_row, *map(len, rows)])
    sizes = {os.path.basename(path): storage.stat(path)[0] for path in paths}
    return {"splits": counts, "pairs_per_row": pairs_per_row, "files": sizes}


def _read_blocks(part: Part, seed: int) -> Iterator[dict[str, list[Document]]]:
    """Yields the documents of each split, in blocks that are in memory together."""
    block: dict[str, list[Document]] = {}
    size = 0
    for split, paragraphs in part.read(part.texts, seed):
        if size >= _BLOCK_CHARACTERS:
            yield block
            block, size = {}, 0
        block.setdefault(split, []).append(split_document(paragraphs))
        size += sum(map(len, paragraphs))
    if block:
        yield block


def _other_documents(
    part: Part, split: str, block: Mapping[str, list[Document]], options: CorpusConfig
) -> list[Document]:
    """Returns documents for random segments if one document is most of its split.

    Those of a validation document may come from the training documents of its block.
    """
    sizes = [sum(map(len, document)) for document in block[split]]
    if 2 * max(sizes) <= sum(sizes) or not options.next_sentence_prediction:
        return []
    candidates: Iterable[Document] = (
        split_document(paragraphs)
        for other, paragraphs in part.read(part.other_texts, options.seed)
        if other == split
    )
    if split == "validation" and "train" in block:
        candidates = block["train"]
    found: list[Document] = []
    size = 0
    for document in candidates:
        if document not in block[split]:
            found.append(document[:_OTHER_SENTENCES])
            size += len(found[-1])
        if size >= _OTHER_SENTENCES:
            break
    return found


@functools.lru_cache(maxsize=1)  # Each process builds its tokenizer once.
def _tokenizer(vocabulary: Vocabulary, lowercase: bool) -> text.Tokenizer:
    return text.Tokenizer(vocabulary, lowercase)


def _tokenize(
    tokenizer: text.Tokenizer, documents: Iterable[Document]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns token ids [tokens] and their number in each sentence [sentences]."""
    sentences = list(itertools.chain.from_iterable(documents))
    starts = range(0, len(sentences), _BATCH_SENTENCES)
    batches = (tokenizer.tokenize(sentences[i : i + _BATCH_SENTENCES]) for i in starts)
    pieces = tf.concat([*batches], axis=0)
    return pieces.flat_values.numpy(), pieces.row_lengths().numpy()


# --- Problems in the text --------------------------------------------------------

# Problems that commonly ruin pre-training, which the training loss shows late or never:
# repeated text, a vocabulary for another language, files decoded with a wrong encoding,
# and documents too short for next sentence prediction. Repeats are found within a block
# of documents.

# Warn if the ratio of two counts exceeds a limit.
_LIMITS = (
    # count, of which, limit, problem
    ("unknown", "tokens", 0.01, "are [UNK]: the vocabulary does not fit"),
    ("garbled", "sentences", 0.01, "contain text like Ã© or â€™: wrong encoding?"),
    ("repeated", "tokens", 0.05, "are in sentences that occurred before"),
    (
        "one_sentence",
        "documents",
        1 / 3,
        "have 1 sentence, whose pairs are all random: wrong --document_separator? If "
        "not, pass --next_sentence_prediction=false.",
    ),
)

# Control characters, the replacement character, and UTF-8 that was decoded as Latin-1
# or Windows-1252: Ã© for é, â€™ for ’.
_GARBLED = re.compile("[\x80-\x84\x86-\x9f\ufffd]|[\xc2\xc3][\xa0-\xbf]|\xe2\u20ac")


def count_problems(
    documents: Sequence[Document],
    ids: np.ndarray,
    lengths: np.ndarray,
    vocabulary: Vocabulary,
) -> dict[str, int]:
    """Counts documents, sentences and tokens, and those with problems.

    Args:
        documents: The documents.
        ids: Token ids of their sentences, and of others after them.
        lengths: Number of tokens of these sentences. A sentence without tokens, or a
            document of such sentences, does not count.
        vocabulary: The vocabulary.
    """
    ends = np.cumsum([len(document) for document in documents])
    lengths = lengths[: ends[-1]]
    ids = ids[: lengths.sum()]
    seen: set[str] = set()
    garbled = repeated = 0
    sentences = itertools.chain.from_iterable(documents)
    for sentence, size in zip(sentences, lengths.tolist(), strict=True):
        garbled += not sentence.isascii() and bool(_GARBLED.search(sentence))
        repeated += size * (sentence in seen)
        seen.add(sentence)
    sizes = np.diff(np.cumsum(lengths > 0)[ends - 1], prepend=0)  # Of documents.
    return {
        "documents": int(np.count_nonzero(sizes)),
        "sentences": int(sizes.sum()),
        "tokens": len(ids),
        "unknown": int(np.count_nonzero(ids == vocabulary.unk_id)),
        "garbled": garbled,
        "repeated": repeated,
        "one_sentence": int(np.count_nonzero(sizes == 1)),
    }


def text_warnings(counts: Mapping[str, int]) -> list[str]:
    """Returns a message for each kind of problem that was counted."""
    return [
        f"{counts[name] / counts[whole]:.1%} of the {whole} {problem}"
        for name, whole, limit, problem in _LIMITS
        if counts[name] > limit * counts[whole]
    ]
