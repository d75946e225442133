# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the whole pipeline in five minutes, without a download.

    python -m bert_tf.demo

Collects the documentation of Python and of packages that this project requires (each
topic and each docstring is a document), learns a vocabulary, writes records, pre-trains
a small BERT, exports a SavedModel and fills in masks over gRPC. Each step prints its
command.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import pathlib
import pydoc_data.topics
import re
import sysconfig
import types
import warnings
from collections.abc import Iterator
from typing import Any

import tqdm

from bert_tf import cli, client, corpus, export, pretrain, serving, training, vocab

# Requirements with much prose in their docstrings.
_PACKAGES = ("keras", "numpy", "scipy", "sklearn")

# Sentences of the same domain that are not in the text.
_MASKED = (
    "The function returns a new [MASK] with the same shape.",
    "If the argument is not given, the default value is [MASK].",
    "This method raises a ValueError if the [MASK] is negative.",
    "The number of [MASK] in the list must be a positive integer.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig(cli.Options):
    """Options of `python -m bert_tf.demo`."""

    output: str = cli.option("demo", help="Folder for all files.", local=True)
    size: str = cli.option("tiny", help="Architecture: tiny, mini, small, ...")
    vocabulary_size: int = cli.option(8000, help="Size of the vocabulary.", minimum=200)
    steps: int = cli.option(2000, help="Pre-training steps.", minimum=10)


def main(options: DemoConfig) -> None:
    """Runs the pipeline and prints what the served model predicts."""
    folder = pathlib.Path(options.output)
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    records, model, served = folder / "records", folder / "model", folder / "serving"
    _title("Collecting the documentation of Python and of packages")
    folder.mkdir(parents=True, exist_ok=True)
    documents = list(_documents())
    text.write_text("\n\n".join(documents), encoding="utf-8")
    print(
        f"{len(documents):,} documents, {text.stat().st_size / 1e6:.1f} MB in {text}."
    )
    _run(
        vocab,
        vocab.VocabularyConfig,
        input=text,
        output=vocabulary,
        vocabulary_size=options.vocabulary_size,
    )
    if not (records / "manifest.json").exists():
        _run(
            corpus,
            corpus.CorpusConfig,
            input=text,
            vocabulary=vocabulary,
            output=records,
            max_sequence_length=64,
            held_out_share=0.02,
        )
    recipe = dict(training.PretrainConfig.RECIPES["short"])
    recipe["warmup_steps"] = options.steps // 20
    _run(
        pretrain,
        training.PretrainConfig,
        records=records,
        output=model,
        size=options.size,
        steps=options.steps,
        validate_every=options.steps // 10,
        **recipe,
    )
    _run(export, export.ExportConfig, model_dir=model, output=served, name="demo")
    _title("Filling in masks over gRPC")
    _fill_masks(served / "demo")
    print(
        f"The model is in {model}, its loss curve in {model / 'curve.png'}, the "
        f"SavedModel in {served / 'demo'}. Serve it with\n"
        "  python -m bert_tf.serve --model_name=demo "
        f"--model_base_path={served / 'demo'}"
    )


def _title(text: str) -> None:
    print(f"\n=== {text} ===", flush=True)


def _run(module: types.ModuleType, config: type[cli.Options], **options: Any) -> None:
    """Prints the command line of a command of this project and runs it."""
    flags = " ".join(f"--{name}={value}" for name, value in options.items())
    _title(f"python -m {module.__name__} {flags}")
    paths = {k: str(v) for k, v in options.items() if isinstance(v, pathlib.Path)}
    module.main(config(**options | paths))


def _fill_masks(base_path: pathlib.Path) -> None:
    with serving.DevServer({"demo": base_path}) as server:
        inputs = {"text": list(_MASKED)}
        outputs = client.predict(inputs, "demo", address=server.address)
    for i, sentence in enumerate(_MASKED):
        pairs = zip(outputs["tokens"][i, 0], outputs["scores"][i, 0], strict=True)
        guesses = (f"{token.decode()} {score:.0%}" for token, score in pairs)
        print(f"  {sentence}\n    {', '.join(guesses)}")


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
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    files = [file for file in files if "site-packages" not in file.parts]
    for package in _PACKAGES:
        folder = pathlib.Path(importlib.util.find_spec(package).origin).parent
        files += sorted(folder.rglob("*.py"))
    for file in tqdm.tqdm(files, unit="file", dynamic_ncols=True):
        if not any(part.startswith("test") for part in file.parts):
            yield from _docstrings(file)


def _docstrings(file: pathlib.Path) -> Iterator[str]:
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # A template, or a test of the parser.
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


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
