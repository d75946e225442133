# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a directory of records: from text files to `manifest.json`.

The parts of the text are independent jobs, see `bert_tf.data.jobs`. So the same command
resumes after an interruption.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import itertools
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf import cli, storage, text_files
from bert_tf.data import documents, parts
from bert_tf.data.documents import TextRange
from bert_tf.data.jobs import remove_results, run_jobs
from bert_tf.data.parts import CorpusConfig, Part
from bert_tf.text import Vocabulary, guess_lowercase

_OTHER_RANGES = 32  # For random segments if one document fills a part.
# Of more documents, or if more of them are held out on average, the share is exact
# enough: the rest of the text is not scanned.
_MANY_DOCUMENTS, _MANY_HELD_OUT = 2000, 20
_FEW_DOCUMENTS = 10  # Of fewer documents, none may be held out.
# Scripts of South and Southeast Asia, and kana: their vowel signs count as accents.
_MARKED = re.compile("[\u0900-\u109f\u1780-\u17ff\u3040-\u30ff]")

_Texts = Mapping[str, Sequence[TextRange]]  # By split.


def prepare_corpus(options: CorpusConfig) -> dict[str, Any]:
    """Writes records of text files and reports problems in the text; resumes.

    Returns:
        The manifest.

    Raises:
        ValueError: No file matches, a file is not UTF-8, the text has fewer than two
            documents, the vocabulary is invalid or does not fit `lowercase`, or the
            directory holds other results or is in use by another process.
        OSError: A file cannot be read or written, or a worker process was killed.
    """
    vocabulary = Vocabulary.from_file(options.vocabulary)
    _ = vocabulary.mask_id  # Raises ValueError if there is none.
    _check_casing(options, vocabulary)
    validation: list[TextRange] = []
    if options.validation_input:
        validation = documents.list_texts(options, options.validation_input)
    exclude = (options.vocabulary, *(text.path for text in validation))
    train = documents.list_texts(options, exclude=exclude)
    storage.make_directory(options.output)
    with storage.exclusive(options.output):
        return _prepare(options, vocabulary, {"train": train, "validation": validation})


def _prepare(
    options: CorpusConfig, vocabulary: Vocabulary, texts: _Texts
) -> dict[str, Any]:
    """Writes records in a directory that no other process writes to."""
    started = time.monotonic()
    output = options.output
    manifest_path = os.path.join(output, "manifest.json")
    settings = _settings(options, vocabulary, texts)
    settings_path = os.path.join(output, "settings.json")
    if storage.exists(settings_path):
        cli.check_unchanged(output, text_files.read_json(settings_path), settings)
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return text_files.read_json(manifest_path)
    print(documents.preview(itertools.chain(*texts.values())))
    jobs = _parts(options, texts)
    text_files.write_json(settings_path, settings)
    vocabulary.write(os.path.join(output, "vocab.txt"))
    # The jobs get the vocabulary itself, so that workers do not read the file.
    write = functools.partial(parts.write_part, options, vocabulary)
    prefix = os.path.join(output, "part-")
    results = list(run_jobs(write, jobs, prefix, options))
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
    """Divides the text into parts.

    Raises:
        ValueError: The text has fewer than two documents.
    """
    share = 0 if texts["validation"] else options.held_out_share
    train, held_out = _scan(texts["train"], share, options)
    train = documents.group_parts(train)
    validation = documents.group_parts(texts["validation"])
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
    least one of ten documents is held out.

    Returns:
        The ranges without those that have no documents, as far as they were read; and
        the largest `content_share` of documents to hold out.

    Raises:
        ValueError: The text has fewer than two documents.
    """
    ranges, found = documents.split_texts(files), []
    shares: set[float] = set()
    enough = max(_MANY_DOCUMENTS, _MANY_HELD_OUT / share if share else 0)
    for index, text in enumerate(ranges):
        is_empty = True
        for paragraphs in text.paragraphs():
            is_empty = False
            shares.add(parts.content_share(paragraphs, options.seed))
            if len(shares) > enough:
                return [*found, *ranges[index:]], share or -1
        found += [] if is_empty else [text]
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
    options: CorpusConfig,
    vocabulary: Vocabulary,
    results: Sequence[dict[str, Any]],
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
    warnings, length = parts.text_warnings(total), options.max_sequence_length
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
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "warnings": warnings,
    }
