# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs the whole pipeline in a few minutes, without a download.

    python -m bert_tf.demo

Collects the documentation of Python and of packages that this project requires (each
topic and each docstring is a document), learns a vocabulary, writes records, pre-trains
a small BERT for `--minutes`, exports a SavedModel and fills in masks over gRPC. Each
step prints its command. Rerun the same command to continue after an interruption.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import functools
import importlib.util
import inspect
import pathlib
import pydoc_data.topics
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from typing import Any

from bert_tf import cli, client, data, serving, storage

# Requirements with much prose in their docstrings.
_PACKAGES = ("keras", "numpy", "scipy", "sklearn")

_PROBE = 40  # Steps that measure the speed of this machine.
# With fewer steps, the model predicts frequent words only.
_MIN_STEPS = 700

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

    output: str = cli.option("demo", help="Folder for all files.")
    size: str = cli.option("tiny", help="Architecture: tiny, mini, small, ...")
    vocabulary_size: int = cli.option(4000, help="Size of the vocabulary.", minimum=200)
    minutes: float = cli.option(
        1.5,
        help="Minutes of pre-training on this machine; more if it is too slow for "
        f"{_MIN_STEPS} steps.",
        minimum=0.01,
    )


def main(options: DemoConfig) -> None:
    """Runs the pipeline and prints what the served model predicts.

    Raises:
        ValueError: The folder holds results of other options.
    """
    folder = pathlib.Path(options.output)
    text, vocabulary = folder / "text.txt", folder / "vocab.txt"
    records, model, served = folder / "records", folder / "model", folder / "serving"
    folder.mkdir(parents=True, exist_ok=True)
    with storage.exclusive(folder):
        plan = _plan(folder / "plan.json", options)
        if any(folder.glob("*.txt")):
            _print(f"Continuing with what {folder} has. Remove it to start over.")
        if not text.exists():
            _print("\n=== Collecting the documentation of Python and of packages")
            storage.write_text(str(text), "\n\n".join(_documents()))
        if not vocabulary.exists():
            size = options.vocabulary_size
            _run("vocab", input=text, output=vocabulary, vocabulary_size=size)
        if not (records / "manifest.json").exists():
            flags = {"max_sequence_length": 64, "held_out_share": 0.02}
            _run("corpus", input=text, vocabulary=vocabulary, output=records, **flags)
        flags = {"recipe": "short", "records": records, "size": options.size}
        if "steps" not in plan:
            plan["steps"] = _measure(flags, folder / "speed", options.minutes)
            storage.write_json(folder / "plan.json", plan)
        if not (model / "metrics.json").exists():
            steps = plan["steps"]
            flags |= {"steps": steps, "warmup_steps": steps // 20}
            _run("pretrain", output=model, **flags, validate_every=max(1, steps // 10))
        if not (served / "demo").exists():
            _run("export", model_dir=model, output=served, name="demo")
    _fill_masks(served / "demo")
    print(
        f"The model is in {model}, the SavedModel in {served / 'demo'}. Serve it with\n"
        "  python -m bert_tf.serve --model_name=demo "
        f"--model_base_path={served / 'demo'}"
    )


def _plan(path: pathlib.Path, options: DemoConfig) -> dict[str, Any]:
    """Returns the options of the first run, and the number of steps once it is known.

    Raises:
        ValueError: The options differ from those of the first run.
    """
    wanted = options.to_dict()
    del wanted["output"]
    if not path.exists():
        storage.write_json(path, wanted)
    plan = storage.read_json(path)
    for name, value in wanted.items():
        if plan[name] != value:
            raise ValueError(
                f"{path.parent} holds a demo with --{name}={plan[name]}. Received: "
                f"{name}={value}. Use another --output, or remove the folder to start "
                "over."
            )
    return plan


def _measure(flags: dict[str, Any], folder: pathlib.Path, minutes: float) -> int:
    """Returns the number of training steps that this machine does in `minutes`."""
    shutil.rmtree(folder, ignore_errors=True)
    _print("\n=== Measuring the speed of this machine")
    # The first half compiles the step.
    probe = {"steps": _PROBE, "warmup_steps": 2, "validate_every": _PROBE // 2}
    _run("pretrain", output=folder, **flags, **probe)
    row = data.read_table(folder / "history.csv")[-1]
    seconds = float(row["tokens"]) / _PROBE / float(row["tokens_per_second"])
    shutil.rmtree(folder)
    steps = max(round(60 * minutes / seconds), _MIN_STEPS)
    _print(
        f"\nA step takes {1000 * seconds:.0f} ms here: {steps:,} steps in about "
        f"{steps * seconds / 60:.1f} minutes (--minutes={minutes:g}, at least "
        f"{_MIN_STEPS} steps)."
    )
    return steps


def _fill_masks(model: pathlib.Path) -> None:
    _print("\n=== Filling in masks over gRPC")
    with serving.DevServer({"demo": model}) as server:
        inputs = {"text": list(_MASKED)}
        outputs = client.predict(inputs, "demo", address=server.address)
    for sentence, tokens, scores in zip(
        _MASKED, outputs["tokens"][:, 0], outputs["scores"][:, 0], strict=True
    ):
        guesses = (f"{t.decode()} {s:.0%}" for t, s in zip(tokens, scores, strict=True))
        print(f"  {sentence}\n    {', '.join(guesses)}")


# Flushes, because the commands write to the same file.
_print = functools.partial(print, flush=True)


def _run(command: str, **flags: Any) -> None:
    """Prints and runs a command of this project."""
    line = [f"bert_tf.{command}", *(f"--{k}={v}" for k, v in flags.items())]
    _print(f"\n=== python -m {shlex.join(line)}")
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
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    files = [
        file
        for package in (library, *map(_folder, _PACKAGES))
        for file in sorted(package.rglob("*.py"))
        if not any(
            part.startswith(("test", "site-packages"))
            for part in file.relative_to(package).parts
        )
    ]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for documents in pool.map(_docstrings, files, chunksize=64):
            yield from documents


def _folder(package: str) -> pathlib.Path:
    return pathlib.Path(importlib.util.find_spec(package).origin).parent


def _docstrings(file: pathlib.Path) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # A template, or a test of the parser.
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(tree) if isinstance(node, documented))
    return list(filter(None, map(ast.get_docstring, nodes)))


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
