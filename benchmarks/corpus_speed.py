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
import pathlib
import tempfile
from collections.abc import Iterator

from benchmarks import measure
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

_OURS = (
    *("-m", "bert_tf.corpus", "--input={input}", "--output={output}"),
    *("--vocabulary={vocabulary}", "--max_sequence_length={max_sequence_length}"),
    "--document_separator=blank_line",
)
_GOOGLE = (
    *("{google_bert}", "--input_file={input}", "--output_file={output}"),
    *("--vocab_file={vocabulary}", "--max_seq_length={max_sequence_length}"),
    *("--max_predictions_per_seq={predictions}", "--dupe_factor=1"),
)


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


def main(options: BenchmarkConfig) -> None:
    """Prints the table.

    Raises:
        ValueError: A path does not exist, or a program failed.
    """
    measure.print_table(
        "program|text|processor time|MB/s per core|without start-up|MB/s in all"
        "|peak memory",
        _rows(options),
    )


def _rows(options: BenchmarkConfig) -> Iterator[tuple]:
    sizes = [int(float(size) * 1e6) for size in options.sizes.split(",")]
    programs = {
        "bert_tf.corpus, one core": [*_OURS, "--num_workers=1"],
        "bert_tf.corpus": [*_OURS, "--num_workers=0"],
    }
    if options.google_bert:
        programs["google-research/bert"] = ["-c", _GOOGLE_SCRIPT, *_GOOGLE]
    values = {**options.to_dict(), "predictions": options.max_sequence_length * 3 // 20}
    with tempfile.TemporaryDirectory() as folder:
        texts = [pathlib.Path(folder) / f"{size}.txt" for size in sizes]
        for text, size in zip(texts, sizes, strict=True):
            _write_text(text, size, options.text)
        for name, arguments in programs.items():
            before = None
            for text in texts:
                values |= {"input": text, "output": f"{tempfile.mkdtemp(dir=folder)}/a"}
                cost = measure.run_command(*(x.format_map(values) for x in arguments))
                size, cpu = text.stat().st_size / 1e6, cost.cpu
                added = before and (size - before[0]) / (cpu - before[1])
                yield (
                    name,
                    f"{size:.0f} MB",
                    f"{cpu:.1f} s",
                    f"{size / cpu:.2f}",
                    f"{added:.2f}" if added else "",
                    f"{size / cost.seconds:.2f}",
                    f"{cost.memory:,.0f} MB",
                )
                before = size, cpu


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


if __name__ == "__main__":
    cli.run(main, BenchmarkConfig)
