# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""README and docs: commands, flags, links, code and API pages match the code."""

import ast
import dataclasses
import doctest
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

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
import tasks
from benchmarks import structure
from bert_tf import cli, data, finetuning, heads, modeling
from tests.toy.models import model_directory
from tests.toy.records import write_both_splits

ROOT = pathlib.Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
        ROOT / "saved_models/README.md",
    ]
)
COMMANDS = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts): file
    for folder in ("bert_tf", "tasks", "experiments", "benchmarks")
    for file in sorted((ROOT / folder).glob("*.py"))
    if '\nif __name__ == "__main__":' in file.read_text(encoding="utf-8")
}
# docs/adding_a_task.md writes tasks/acceptability.py.
WRITTEN_IN_DOCS = "tasks.acceptability"


def read(page: pathlib.Path) -> str:
    return page.read_text(encoding="utf-8")


def python_blocks(page: pathlib.Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", read(page), re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[tuple[str, list[str]]]:
    """Returns (module, arguments) of each `python -m` of this project in `text`."""
    joined = re.sub(r"\\?\n +(?=--)", " ", text.replace("\\\n", " "))
    found = []
    for module, line in re.findall(
        r"python -m ((?:bert_tf|tasks|experiments|benchmarks)\.\w+)(.*)", joined
    ):
        line = line.partition("`")[0]
        if line.count("'") % 2:  # The end of `ssh --command='...'`.
            line = line.removesuffix("'")
        found.append((module, shlex.split(line, comments=True)))
    return found


SHOWN = [
    pytest.param(module, arguments, id=f"{source.stem}-{module}")
    for source in (*PAGES, *COMMANDS.values())
    for module, arguments in commands(
        read(source)
        if source.suffix == ".md"
        else ast.get_docstring(ast.parse(read(source)))
    )
    if module != WRITTEN_IN_DOCS
]


@pytest.mark.parametrize(("module", "arguments"), SHOWN)
def test_commands_and_their_flags_exist(module, arguments):
    assert module in COMMANDS
    flags = {flag for a in arguments for flag in re.findall(r"^--(\w+)", a)}
    if module == "experiments.search":  # Its flags are those of a task.
        module = arguments[0]
    if module != "bert_tf.client":  # Its flags are the inputs of a model.
        assert flags <= flags_of(module)


def options_of(module: str) -> list[type[cli.Options]]:
    """Returns the options classes of a command and of its modes."""
    classes = [
        getattr(value, "Config", value)
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, type)
    ]
    modes = [finetuning.PredictConfig] if module.startswith("tasks.") else []
    return [c for c in classes if issubclass(c, cli.Options)] + modes


def flags_of(module: str) -> set[str]:
    """Returns the flags that a command defines."""
    names = {"help", "helpfull", "verbosity"}
    for options in options_of(module):
        names |= {f.name.rstrip("_") for f in dataclasses.fields(options)}
        names |= {"recipe"} if options.RECIPES else set()
    return names


def test_flags_in_prose_exist():
    known = set().union(*map(flags_of, COMMANDS), {"strict"})  # mkdocs build --strict
    client = read(COMMANDS["bert_tf.client"]) + read(ROOT / "examples" / "search.py")
    known |= set(re.findall(r'"--(\w+)"', client))
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
        if page != ROOT / "docs/serving.md":  # It has flags of TensorFlow Serving.
            assert {*re.findall(r"`--(\w+)", prose)} <= known, page


def test_links_resolve():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", read(page)):
            if "://" not in target:
                linked = page.parent / target if target else page
                assert linked.exists(), f"{page}: {target}"
                found = not anchor or anchor in anchors(read(linked))
                assert found, f"{page}: {target}#{anchor}"


def anchors(text: str) -> set[str]:
    """Returns the anchors of the headings, as GitHub and mkdocs name them."""
    headings = re.findall(r"^#+ (.*)", text, re.MULTILINE)
    words = (re.sub(r"[^\w -]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in words}


def test_site_lists_all_pages():
    listed = re.findall(r"^ +- (\S+\.md)", read(ROOT / "mkdocs.yml"), re.MULTILINE)
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    # docs/site.py adds README.md and the pages that the others link to.
    added = {"index.md", "CONTRIBUTING.md", "benchmarks/results/README.md"}
    assert sorted(listed) == sorted(pages | added)


INDEX = structure.Checkout(ROOT, ["bert_tf"]).index


@pytest.mark.parametrize("package", INDEX)
def test_api_pages_list_the_interface(package):
    page = read(ROOT / f"docs/api/{package.rpartition('.')[2]}.md")
    assert re.findall("^::: (.*)", page, re.MULTILINE) == [package]
    assert set(re.findall("^ +- (.*)", page, re.MULTILINE)) == set(INDEX[package])


@pytest.fixture
def folder(tmp_path, monkeypatch, vocabulary, tiny_config) -> pathlib.Path:
    """The current folder, with what the code of the docs reads."""
    records = tmp_path / "records"
    write_both_splits(records, vocabulary, length=32, pairs_per_row=2)
    path = tmp_path / "models/mini"
    encoder = model_directory(path, tiny_config, vocabulary, {"kind": "encoder"})
    encoder.save_weights(bert_tf.BertBackbone(tiny_config))
    vocabulary.write(tmp_path / "vocab.txt")
    bert_tf.Vocabulary((*vocabulary.tokens, "dog")).write(tmp_path / "domain.txt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(code: str, **names) -> dict:
    """Runs code of the docs; returns its variables."""
    exec(textwrap.dedent(code), names)
    return names


@pytest.mark.slow
def test_keras_scripts_run(folder, vocabulary, capsys):
    extend, script = python_blocks(ROOT / "docs/pretraining.md")
    run(script)
    assert capsys.readouterr().out.rstrip().endswith("(1, 128)")
    run(extend)
    extended = bert_tf.Vocabulary.from_file("extended.txt").tokens
    assert extended == (*vocabulary.tokens, "dog")
    (head,) = python_blocks(README)
    names = run(head)
    served = tf.saved_model.load("saved_models/film/1").signatures["serving_default"]
    answer = served(text=tf.constant(names["texts"]))["score"]
    expected = names["model"](names["texts"])
    np.testing.assert_allclose(answer, expected, atol=1e-6)
    names = run("\n".join(python_blocks(ROOT / "docs/migration.md")))
    logits = names["model"].predict(names["inputs"])
    np.testing.assert_allclose(logits, names["logits"], atol=1e-6)


EXAMPLES = [
    pytest.param(example, id=f"{source.stem}-{number}")
    for source in sorted((ROOT / "bert_tf").rglob("*.py"))
    for number, example in enumerate(
        re.findall(r"^ +```python\n(.*?)^ +```", read(source), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_in_docstrings_run(example, folder, vocabulary):
    names = {
        name: getattr(package, name)
        for package in (modeling, heads, bert_tf)
        for name in package.__all__
    }
    names["config"] = bert_tf.BertConfig.from_size("tiny", vocabulary.size)
    few_steps = example.replace("steps_per_epoch=100", "steps_per_epoch=1")
    run(few_steps, keras=keras, np=np, **names)


@pytest.mark.slow
def test_task_in_docs_trains_and_answers(folder, monkeypatch):
    (script,) = python_blocks(ROOT / "docs/adding_a_task.md")
    assert len(script.splitlines()) <= 80
    (folder / "acceptability.py").write_text(script)
    monkeypatch.setitem(heads.HEADS, "acceptability", None)
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(folder)])
    task = importlib.import_module("tasks.acceptability").Acceptability
    texts = [f"the cat sat{' on' * (i % 2)}" for i in range(12)]
    rows = [{"sentence": text, "label": i % 2} for i, text in enumerate(texts)]
    data.write_table("data.tsv", rows)
    options = dict.fromkeys(("train_file", "dev_file"), "data.tsv")
    options |= {"init_from": "models/mini", "output": "model", "export": "served"}
    options = task.Config(**options, epochs=1, max_sequence_length=16)
    metrics = finetuning.fine_tune(task, options)
    assert "matthews_correlation" in metrics["dev"]
    assert (folder / "model/predictions_dev.tsv").exists()
    assert (folder / "served/1/saved_model.pb").exists()

    # As another process, which has not imported the task.
    del heads.HEADS["acceptability"], sys.modules["tasks.acceptability"]
    loaded = bert_tf.load("model").predict(texts)
    options = {"predict": True, "model": "model", "input": "data.tsv"}
    finetuning.run_task(task, finetuning.PredictConfig(output="new.csv", **options))
    found = [row["prediction"] for row in data.read_table("new.csv")]
    assert found == loaded["label"].tolist()


# Flags that make the commands of the README small enough for a test.
TOY = {
    "bert_tf.vocab": ["--vocabulary_size=200"],
    "bert_tf.corpus": ["--max_sequence_length=32", "--num_workers=1"],
    "bert_tf.pretrain": [
        *("--size=2/32/2", "--batch_size=4", "--steps=2", "--warmup_steps=1")
    ],
    "tasks.classification": ["--epochs=1", "--max_sequence_length=32"],
}


@pytest.mark.slow
def test_commands_in_readme_run(tmp_path):
    make_text_and_tables(tmp_path)
    ports = {}
    for name in ("port", "rest_api_port"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports[name] = free.getsockname()[1]
    blocks = re.findall(r"^```\n(.*?)^```", read(README), re.DOTALL | re.MULTILINE)
    server = None
    options = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    options["env"] = os.environ | {
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    try:
        for module, arguments in commands("\n".join(blocks)):
            if any("=hf://" in argument for argument in arguments):
                continue  # The tests have no network.
            command = [sys.executable, "-m", module, *arguments, *TOY.get(module, [])]
            if module == "bert_tf.serve":
                command += [f"--{name}={port}" for name, port in ports.items()]
                server = subprocess.Popen(command, **options)
                assert "Ready.\n" in iter(server.stdout.readline, "")
            elif module != "bert_tf.client":
                subprocess.run(command, **options, check=True)
            elif server:  # The first lines of the README show the answer.
                command.append(f"--address=127.0.0.1:{ports['port']}")
                answer = subprocess.run(command, **options, check=True).stdout
    finally:
        if server:
            server.terminate()
            assert server.wait(timeout=60) == 0
    assert json.loads(answer)["label"] in ("good", "bad")
    assert (tmp_path / "saved_models/verdict/1").is_dir()


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


@pytest.mark.slow
def test_tour_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = "".join(python_blocks(ROOT / "docs/architecture.md"))
    test = doctest.DocTestParser().get_doctest(examples, {}, "tour", None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    failures = []
    runner.run(test, out=failures.append)
    assert runner.tries
    assert not failures, "".join(failures)
