# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes a directory of records: from text files to `manifest.json`.

The parts of the text are independent jobs. A job writes its result, a JSON value, to a
file. Jobs with such a file are not run again, so the same command resumes after an
interruption. The jobs run on all cores of this machine, or with the same results on a
cluster with Apache Beam::

    pip install '.[beam]'  # In an environment of its own.
    python -m bert_tf.corpus ... --runner=FlinkRunner --beam_options=--flink_master=...

All machines must see the same paths: `gs://` or a shared mount. bert_tf must be
installed on them, for example in the container image of
`--beam_options=--sdk_container_image=...`.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import multiprocessing
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import tqdm

from bert_tf import lazy, storage
from bert_tf.data import documents
from bert_tf.data.records import CorpusConfig, Part, text_warnings, write_part
from bert_tf.text import Vocabulary, guess_lowercase

_PART_BYTES = 1 << 23  # Text per job.
# Scripts of South and Southeast Asia, and kana: their vowel signs count as accents.
_MARKED = re.compile("[\u0900-\u109f\u1780-\u17ff\u3040-\u30ff]")


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
    files = storage.expand_globs(options.input)
    vocabulary = Vocabulary.from_file(options.vocabulary)
    _ = vocabulary.mask_id  # Raises ValueError if there is none.
    _check_casing(options, vocabulary)
    storage.make_directory(options.output)
    with storage.exclusive(options.output):
        return _prepare(options, files, vocabulary)


def _prepare(
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Writes records in a directory that no other process writes to."""
    started = time.monotonic()
    output = options.output
    manifest_path = os.path.join(output, "manifest.json")
    settings = _settings(options, files, vocabulary)
    settings_path = os.path.join(output, "settings.json")
    if storage.exists(settings_path):
        storage.check_unchanged(output, storage.read_json(settings_path), settings)
    storage.write_json(settings_path, settings)
    if storage.exists(manifest_path):
        print(f"{output} is already complete.")
        return storage.read_json(manifest_path)
    vocabulary.write(os.path.join(output, "vocab.txt"))
    results = run_jobs(write_part, _parts(options, files), options)
    manifest = _manifest(options, vocabulary, files, results)
    manifest["seconds"] = round(time.monotonic() - started, 1)
    for warning in manifest["warnings"]:
        print(f"warning: {warning}")
    storage.write_json(manifest_path, manifest)
    for pattern in ("part-*.json", f"{storage.TEMPORARY_PREFIX}*"):
        for path in storage.glob(pattern, output):
            storage.remove(path)
    return manifest


def _check_casing(options: CorpusConfig, vocabulary: Vocabulary) -> None:
    """Prints how the text is normalized and why, and whether that loses letters.

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
    options: CorpusConfig, files: Sequence[str], vocabulary: Vocabulary
) -> dict[str, object]:
    """Returns everything that determines the records."""
    settings = options.to_dict()
    for name in ("output", "num_workers", "runner", "beam_options"):
        del settings[name]
    stats = [(path, *storage.stat(path)) for path in files]
    digest = hashlib.sha256(repr(stats).encode()).hexdigest()
    total = sum(size for _, size, _ in stats)
    settings["input"] = f"{len(files)} files, {total:,} bytes, state {digest[:12]}"
    settings["vocabulary"] = vocabulary.fingerprint
    return settings


def _parts(options: CorpusConfig, files: Sequence[str]) -> list[Part]:
    """Divides the text into parts of about `_PART_BYTES`."""
    groups: list[list[tuple[str, int, int]]] = []
    size, separator = _PART_BYTES, options.document_separator
    for path in files:
        length, _ = storage.stat(path)
        for start, end in documents.byte_ranges(path, _PART_BYTES, separator):
            if size >= _PART_BYTES:
                groups.append([])
                size = 0
            groups[-1].append((path, start, end))
            size += min(end, length) - start
    prefix = os.path.join(options.output, "part-")
    return [
        Part(f"{prefix}{index:05d}", index, len(groups), ranges, options)
        for index, ranges in enumerate(groups)
    ]


def _manifest(
    options: CorpusConfig,
    vocabulary: Vocabulary,
    files: Sequence[str],
    results: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Returns the statistics of the records and the settings that readers need.

    Raises:
        ValueError: The text has too few documents.
    """
    splits = {"train": collections.Counter(), "validation": collections.Counter()}
    record_files: dict[str, int] = {}
    for result in results:
        record_files |= result["files"]  # Sizes in bytes, to find damaged files.
        for split, counts in result["splits"].items():
            splits[split].update(counts)
    total = splits["train"] + splits["validation"]
    if total["documents"] < 2:
        raise ValueError(
            "Next sentence prediction requires at least two documents. "
            f"Got {total['documents']} in {len(files)} files (input={options.input!r}, "
            f"document_separator={options.document_separator!r}). Remove "
            f"{options.output}, and add text or pass --document_separator=blank_line."
        )
    warnings, length = text_warnings(total), options.max_sequence_length
    if options.held_out_share and not splits["validation"]["rows"]:
        reason = f"because there are only {total['documents']}"
        warnings.append(f"No documents are held out for validation, {reason}.")
    return {
        "documents": total["documents"],
        "tokens": total["tokens"],
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
        "vocabulary_fingerprint": vocabulary.fingerprint,
        "warnings": warnings,
    }


# --- Jobs ------------------------------------------------------------------------


def run_jobs(
    function: Callable[[Any], Any], jobs: Sequence[Any], options: CorpusConfig
) -> list[Any]:
    """Returns `function(job)` for every job, in order.

    Args:
        function: A module-level function that maps a job to a JSON value.
        jobs: Picklable objects with the `path` of the result.
        options: Where the jobs run. A single worker is this process.

    Raises:
        ValueError: Apache Beam is not installed.
        OSError: A worker process ended early.
    """
    run = functools.partial(_run_unless_done, function)
    if options.runner != "local":
        _run_with_beam(run, jobs, options)
        return list(map(run, jobs))  # Reads the results.
    is_linux = hasattr(os, "sched_getaffinity")
    num_cores = len(os.sched_getaffinity(0)) if is_linux else os.cpu_count()
    num_workers = min(options.num_workers or num_cores, len(jobs))
    with contextlib.ExitStack() as stack:
        results: Iterator[Any] = map(run, jobs)
        if num_workers > 1:
            # Not fork: a forked TensorFlow can wait forever for threads that exist only
            # in the parent.
            pool = concurrent.futures.ProcessPoolExecutor(
                num_workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
            )
            stack.callback(pool.shutdown, cancel_futures=True)
            # The workers inherit the mask: only this process handles Ctrl-C.
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            results = pool.map(run, jobs)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            return list(  # On terminals with a progress bar.
                tqdm.tqdm(results, "Preparing", len(jobs), unit=" parts", disable=None)
            )
        except BrokenProcessPool:
            raise OSError(
                "A worker process ended early. If the machine ran out of memory, use a "
                "smaller --num_workers. In a script, call this below "
                '`if __name__ == "__main__":`, or with num_workers=1. Rerun the same '
                "command to resume."
            ) from None


def _run_with_beam(
    run: Callable[[Any], Any], jobs: Sequence[Any], options: CorpusConfig
) -> None:
    """Calls `run(job)` for every job. The runner's web interface shows the progress."""
    try:  # An optional dependency.
        import apache_beam
        from apache_beam.options.pipeline_options import PipelineOptions
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--runner={options.runner} requires Apache Beam: "
            "pip install '.[beam]' (in an environment of its own)."
        ) from error
    flags = [f"--runner={options.runner}", *shlex.split(options.beam_options)]
    with apache_beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        created = pipeline | apache_beam.Create(list(jobs), reshuffle=True)
        _ = created | apache_beam.Map(run)


def _run_unless_done(function: Callable[[Any], Any], job: Any) -> Any:
    """Returns `function(job)`, read from the result file if it exists."""
    result_path = job.path + ".json"
    if storage.exists(result_path):
        return storage.read_json(result_path)
    result = function(job)
    storage.write_json(result_path, result)
    return result


def _start_worker() -> None:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # Leave accelerators to training.
    lazy.hide_tensorflow_logs()
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """Exits this process when its parent was killed, which pools do not notice."""
    multiprocessing.parent_process().join()
    os._exit(1)
