# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the whole pipeline in a few minutes, without a download.

    python3 quickstart.py

Collects the documentation of Python and of packages that this project requires (each
topic and each docstring is a document), learns a vocabulary, writes records, pre-trains
a small BERT, exports a SavedModel and fills in masks over gRPC. Each step prints its
command. Rerun the same command to continue after an interruption.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import pathlib
import pydoc_data.topics
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from typing import Any

from bert_tf import cli, client, serving, text_files

# Requirements with much prose in their docstrings.
_PACKAGES = ("keras", "numpy", "scipy", "sklearn")

# Sentences of the same domain that are not in the text. Two layers and 500 steps learn
# which words are near which, but neither facts nor long sentences.
_MASKED = [
    "The function returns a new [MASK] with the same shape.",
    "It returns a [MASK] of strings, one for each line.",
    "The samples are drawn from a normal [MASK].",
    "The axis along [MASK] the sum is computed.",
    "For more [MASK], see the documentation of the class.",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig(cli.Options):
    """Options of `python -m examples.demo`."""

    output: str = cli.option("demo", help="Folder for all files.", local=True)
    steps: int = cli.option(500, help="Steps of pre-training.", minimum=20)


def main(options: DemoConfig) -> None:
    """Runs the pipeline and prints what the served model predicts."""
    folder = pathlib.Path(options.output)
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    records, model, served = folder / "records", folder / "model", folder / "serving"
    folder.mkdir(parents=True, exist_ok=True)
    if not text.exists():
        print("=== Collecting the documentation of Python and of packages", flush=True)
        text_files.write_text(str(text), "\n\n".join(_documents()))
    if not vocabulary.exists():
        _run("vocab", input=text, output=vocabulary, vocabulary_size=4000)
    flags = {"max_sequence_length": 64, "held_out_share": 0.01}
    _run("corpus", input=text, vocabulary=vocabulary, output=records, **flags)
    flags = {"size": "tiny", "steps": options.steps}
    flags |= {"warmup_steps": options.steps // 20}
    flags |= {"validate_every": options.steps // 5}
    if not (model / "metrics.json").exists():
        _run("pretrain", recipe="short", records=records, output=model, **flags)
    if not served.exists():
        _run("export", model_dir=model, output=served, name="demo")
    metrics = text_files.read_json(model / "metrics.json")
    print("\n=== Filling in masks over gRPC")
    print(
        f"Of the masked tokens in held-out text, the model predicts "
        f"{metrics['val_mlm_accuracy']:.0%}; the most frequent token after the\n"
        f"previous one, {metrics['bigram_accuracy']:.0%}; the most frequent token, "
        f"{metrics['unigram_accuracy']:.0%}."
    )
    with serving.DevServer({"demo": served / "demo"}) as server:
        answer = client.predict({"text": _MASKED}, "demo", address=server.address)
    for sentence, tokens, scores in zip(_MASKED, answer["tokens"], answer["scores"]):
        guesses = [f"{t.decode()} {s:.0%}" for t, s in zip(tokens[0], scores[0])]
        print(f"  {sentence}\n    {', '.join(guesses)}")
    print(
        f"Curves, examples and next steps are in {model / 'report.md'}. "
        "Try the model in a browser:\n"
        "  python -m bert_tf.serve --model_name=demo "
        f"--model_base_path={served / 'demo'} --demo"
    )


def _run(command: str, **flags: Any) -> None:
    """Prints and runs a command of this project."""
    line = [f"bert_tf.{command}", *(f"--{k}={v}" for k, v in flags.items())]
    print(f"\n=== python -m {shlex.join(line)}", flush=True)
    if status := subprocess.call([sys.executable, "-m", *line]):
        sys.exit(status)


# --- Text ------------------------------------------------------------------------


def _documents() -> Iterator[str]:
    """Yields documents with one paragraph per line, without repeated paragraphs."""
    seen: set[str] = set()
    for source in _raw_documents():
        paragraphs = [p for p in _prose(source) if p not in seen]
        seen.update(paragraphs)
        if sum(map(len, paragraphs)) > 200:  # Enough for a pair of segments.
            yield "\n".join(paragraphs)


def _raw_documents() -> Iterator[str]:
    yield from pydoc_data.topics.topics.values()
    folders = [pathlib.Path(sysconfig.get_path("stdlib"))]
    for package in _PACKAGES:
        folders.append(pathlib.Path(importlib.util.find_spec(package).origin).parent)
    skipped = re.compile("/(test|site-packages)")
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if not skipped.search(str(file).removeprefix(str(folder))):
                yield from _docstrings(file)


def _docstrings(file: pathlib.Path) -> list[str]:
    source = file.read_text(encoding="utf-8", errors="replace")
    return re.findall(r'"""(.*?)"""', source, re.DOTALL)


def _prose(text: str) -> Iterator[str]:
    """Yields the paragraphs that are prose: no code, tables or signatures."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        line = " ".join(paragraph.split())
        if re.fullmatch(r"[A-Z\"'`*].*[.!?:]", line) and ">>>" not in line:
            words = re.findall(r"[A-Za-z]{2,}", line)
            if len(words) >= 5 and sum(map(len, words)) > 0.6 * len(line):
                yield line


if __name__ == "__main__":
    cli.run(main, DemoConfig)
