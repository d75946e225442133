# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""README and docs say what is so."""

import dataclasses
import importlib
import json
import os
import pathlib
import random
import re
import shlex
import socket
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import cli, serving
from bert_tf.checkpoints import model_directory
from bert_tf.finetuning import run as finetune
from bert_tf.modeling import config as bert_config
from bert_tf.modeling import heads
from bert_tf.modeling.bert import BertBackbone
from tests.toy.records import write_records

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "saved_models/README.md", *(ROOT / "docs").glob("*.md")]


def read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Module and arguments of each `python -m` that a text shows."""
    found = []
    for block in re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if match := re.search(r"python -m (\S+)(.*)", line):
                arguments = shlex.split(match.group(2), comments=True)
                found.append((match.group(1), arguments))
    return found


SHOWN = [
    pytest.param(module, arguments, id=f"{page.stem}-{module}")
    for page in PAGES
    for module, arguments in commands(read(page))
    if module not in ("venv", "tasks.acceptability")  # That one is written there.
]


@pytest.mark.parametrize(("module", "arguments"), SHOWN)
def test_commands_and_their_flags_exist(module, arguments):
    source = ROOT / f"{module.replace('.', '/')}.py"
    assert "__main__" in read(source)
    flags = {flag for a in arguments for flag in re.findall(r"^--(\w+)", a)}
    if module != "bert_tf.client":  # Its flags are the model's inputs.
        assert flags <= names_of_options(importlib.import_module(module))


def names_of_options(module) -> set[str]:
    names = set()
    for value in vars(module).values():
        if isinstance(value, type):
            options = getattr(value, "Config", value)
            if issubclass(options, cli.Options):
                names |= {f.name.rstrip("_") for f in dataclasses.fields(options)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", read(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.slow
def test_keras_script_runs(tmp_path, monkeypatch, vocabulary, capsys):
    (script,) = re.findall(r"```python\n(.*?)```", read(README), re.DOTALL)
    pair = [2, *range(5, 11), 3, *range(11, 17), 3]
    for split in ("train", "validation"):
        rows = [(pair, 8, i % 2) for i in range(48)]  # Packed, as the corpus command's.
        packed = {"length": 32, "pairs_per_row": 2}
        write_records(tmp_path / "records", vocabulary, rows, split, **packed)
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    assert capsys.readouterr().out.rstrip().endswith("(1, 128)")


EXAMPLES = [
    pytest.param(example, id=f"{source.stem}-{number}")
    for source in sorted((ROOT / "bert_tf").rglob("*.py"))
    for number, example in enumerate(
        re.findall(r"^ +```python\n(.*?)^ +```", read(source), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_docstrings_run(example, tmp_path, monkeypatch, vocabulary):
    pair = [2, *range(5, 11), 3, *range(11, 17), 3]
    write_records(tmp_path / "records", vocabulary, [(pair, 8, 0)] * 64)
    vocabulary.write(tmp_path / "vocab.txt")
    monkeypatch.chdir(tmp_path)
    names = {name: getattr(bert_tf, name) for name in bert_tf.__all__}
    architecture = bert_config.BertConfig.from_size("tiny", vocabulary.size)
    exec(
        textwrap.dedent(example).replace("steps_per_epoch=100", "steps_per_epoch=1"),
        {
            **vars(heads),
            **{name: getattr(serving, name) for name in serving.__all__},
            **names,
            "config": architecture,
            "np": np,
        },
    )


@pytest.mark.slow
def test_the_task_that_is_added_answers(
    tmp_path, monkeypatch, vocabulary, tiny_config, capsys
):
    page = read(ROOT / "docs/adding_a_task.md")
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(script.splitlines()) <= 60
    (tmp_path / "acceptability.py").write_text(script)
    monkeypatch.syspath_prepend(tmp_path)
    task = importlib.import_module("acceptability").Acceptability
    for name in ("train", "dev"):
        rows = [f"the cat sat {'on ' * (i % 2)}\t{i % 2}" for i in range(12)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    source = model_directory.ModelDirectory.create(
        tmp_path / "encoder",
        architecture=tiny_config,
        vocabulary=vocabulary,
        lowercase=True,
        head={"kind": "encoder"},
        options={},
    )
    source.save_weights(BertBackbone(tiny_config))
    options = task.Config(
        train_file=str(tmp_path / "train.tsv"),
        dev_file=str(tmp_path / "dev.tsv"),
        init_from=str(source.path),
        output=str(tmp_path / "model"),
        export=str(tmp_path / "served"),
        epochs=1,
        max_sequence_length=16,
    )
    finetune.main(task, options)
    metrics = json.loads((tmp_path / "model/metrics.json").read_text())
    assert "matthews_correlation" in metrics["dev"]
    assert (tmp_path / "model/predictions_dev.tsv").exists()
    served = tf.saved_model.load(str(tmp_path / "served/1"))
    answer = served.signatures["serving_default"](text=tf.constant(["the cat", ""]))
    assert answer["probabilities"].shape == (2, 2)


# What makes the commands of the README small enough for a test.
TOY = {
    "bert_tf.vocab": ["--vocabulary_size=200"],
    "bert_tf.corpus": ["--max_sequence_length=32", "--num_workers=1"],
    "bert_tf.pretrain": [
        *("--size=2/32/2", "--batch_size=4", "--steps=2", "--warmup_steps=1")
    ],
    "tasks.classification": ["--epochs=1", "--max_sequence_length=32"],
}


@pytest.mark.slow
def test_the_tour_runs(tmp_path):
    make_text_and_tables(tmp_path)
    ports = {}
    for name in ("port", "rest_api_port"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[name] = free.getsockname()[1]
    shown = [c for c in commands(read(README)) if c[0] != "venv"]
    outputs = {}
    server = None
    try:
        for module, arguments in shown:
            command = [sys.executable, "-m", module, *arguments, *TOY.get(module, [])]
            if module == "bert_tf.serve":
                command += [f"--{name}={port}" for name, port in ports.items()]
                server = start(command, tmp_path)
                continue
            if module == "bert_tf.client":
                command.append(f"--address=127.0.0.1:{ports['port']}")
            outputs[module] = run(command, tmp_path)
    finally:
        if server:
            server.terminate()
            assert server.wait(timeout=60) == 0
    assert json.loads(outputs["bert_tf.client"])["label"] in ("good", "bad")
    assert (tmp_path / "saved_models/mini/1").is_dir()


def make_text_and_tables(folder: pathlib.Path) -> None:
    rng = random.Random(0)
    words = ["film", "story", "scene", "music", "good", "bad", "the", "was", "and"]

    def sentence():
        return " ".join(rng.choices(words, k=8)).capitalize() + "."

    documents = ["\n".join(sentence() for _ in range(6)) for _ in range(200)]
    (folder / "text").mkdir()
    (folder / "text/a.txt").write_text("\n\n".join(documents))
    for name in ("train", "dev"):
        rows = [f'"{sentence()}",{rng.choice(["good", "bad"])}' for _ in range(40)]
        (folder / f"{name}.csv").write_text("\n".join(["review,verdict", *rows]))


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}


def run(command: list[str], folder: pathlib.Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def start(command: list[str], folder: pathlib.Path) -> subprocess.Popen:
    """Starts a server and waits until it says that it serves."""
    log = folder / "serve.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=file, stderr=file
        )
    end = time.monotonic() + 120
    while "Ready." not in log.read_text() and time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        time.sleep(0.2)
    return process
