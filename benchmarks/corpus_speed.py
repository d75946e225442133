# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures speed and memory of corpus preparation, and of google-research/bert.

    python -m benchmarks.corpus_speed --text='wikipedia/*' --vocabulary=vocab.txt \
        --google_bert=bert

Prints a Markdown table for `bert_tf.corpus`, on one core and on all cores, and, if
--google_bert is a clone of google-research/bert, for its `create_pretraining_data.py`
with dupe_factor=1.

The text has one sentence per line and blank lines between documents, as google's script
requires. Processor time is summed over all processes; memory is the peak of the largest
process. "Without start-up" is the speed on the text that a row adds to the row above.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from bert_tf import cli, data

# The script was written for TensorFlow 1.
_GOOGLE_SCRIPT = """
import runpy, sys
import tensorflow.compat.v1 as tf
sys.modules["tensorflow"] = tf
folder = sys.argv.pop(1)
sys.path.insert(0, folder)
runpy.run_path(folder + "/create_pretraining_data.py", run_name="__main__")
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkConfig(cli.Options):
    """Options of `python -m benchmarks.corpus_speed`."""

    text: str = cli.option(help="Text files: comma-separated globs.")
    vocabulary: str = cli.option(help="WordPiece vocabulary, one token per line.")
    google_bert: str = cli.option("", help="Clone of google-research/bert.")
    sizes: str = cli.option(
        "8,66,400", help="Sizes in MB, ascending. The text is repeated as needed."
    )
    max_sequence_length: int = cli.option(128, help="Tokens per record.")


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost of one run: MB of text, processor and wall seconds, peak memory in MB."""

    text: float
    seconds: float
    wall_seconds: float
    memory: float


def main(options: BenchmarkConfig) -> None:
    """Prints the table.

    Raises:
        ValueError: A path does not exist, or a program failed.
    """
    sizes = [int(float(size) * 1e6) for size in options.sizes.split(",")]
    programs = {"bert_tf.corpus, one core": _ours, "bert_tf.corpus": _ours_in_parallel}
    if options.google_bert:
        programs["google-research/bert"] = _google
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = [folder / f"{size}.txt" for size in sizes]
        for text, size in zip(texts, sizes, strict=True):
            _write_text(text, size, options.text)
        print(
            "| program | text | processor time | MB/s per core | without start-up "
            "| MB/s in all | peak memory |\n|---|---|---|---|---|---|---|"
        )
        for program, command in programs.items():
            before = None
            for text in texts:
                cost = _run(command, options, text, folder / "out")
                print(f"| {program} {_row(cost, before)}", flush=True)
                before = cost


def _row(cost: Cost, before: Cost | None) -> str:
    added = ""
    if before:
        speed = (cost.text - before.text) / (cost.seconds - before.seconds)
        added = f"{speed:.2f}"
    return (
        f"| {cost.text:.0f} MB | {cost.seconds:.1f} s | {cost.text / cost.seconds:.2f} "
        f"| {added} | {cost.text / cost.wall_seconds:.2f} "
        f"| {cost.memory:,.0f} MB |"
    )


def _write_text(path: pathlib.Path, size: int, patterns: str) -> None:
    """Writes documents from the files, repeatedly, until `size` bytes are written."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        texts = data.list_texts(data.TextFilesConfig(input=patterns))
        for source in itertools.cycle(texts):
            for document in source.documents():
                text = "\n".join(document) + "\n\n"
                file.write(text)
                written += len(text.encode())
                if written >= size:
                    return


def _ours(options: BenchmarkConfig, text: pathlib.Path, out: str) -> list[str]:
    return [
        *("-m", "bert_tf.corpus"),
        f"--input={text}",
        f"--vocabulary={options.vocabulary}",
        f"--output={out}",
        f"--max_sequence_length={options.max_sequence_length}",
        "--document_separator=blank_line",
        "--num_workers=1",
    ]


def _ours_in_parallel(
    options: BenchmarkConfig, text: pathlib.Path, out: str
) -> list[str]:
    return [*_ours(options, text, out)[:-1], "--num_workers=0"]


def _google(options: BenchmarkConfig, text: pathlib.Path, out: str) -> list[str]:
    return [
        *("-c", _GOOGLE_SCRIPT, options.google_bert),
        f"--input_file={text}",
        f"--vocab_file={options.vocabulary}",
        f"--output_file={out}",
        f"--max_seq_length={options.max_sequence_length}",
        f"--max_predictions_per_seq={round(options.max_sequence_length * 0.15)}",
        "--dupe_factor=1",
    ]


def _run(
    command: Callable[[BenchmarkConfig, pathlib.Path, str], Sequence[str]],
    options: BenchmarkConfig,
    text: pathlib.Path,
    out: pathlib.Path,
) -> Cost:
    place = f"{out}-{command.__name__}-{text.stem}"
    arguments = [sys.executable, *command(options, text, place)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    started = time.monotonic()
    with tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            arguments, env=environment, stdout=messages, stderr=messages
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            tail = messages.read().decode(errors="replace")[-2000:]
            raise ValueError(f"{' '.join(arguments)} failed:\n{tail}")
    # Kilobytes on Linux, bytes on macOS.
    memory = usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    return Cost(
        text=text.stat().st_size / 1e6,
        seconds=usage.ru_utime + usage.ru_stime,
        wall_seconds=time.monotonic() - started,
        memory=memory,
    )


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
