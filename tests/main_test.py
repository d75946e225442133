# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0

import pathlib
import re
import sys

import pytest

import bert_tf
from bert_tf import __main__

ROOT = pathlib.Path(__file__).parents[1]


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["bert-tf", *arguments])
    __main__.main()


def test_help_lists_all_commands_and_tasks(monkeypatch, capsys):
    run(monkeypatch, "--help")
    listed = re.findall(r"^  (\w+) +\w", capsys.readouterr().out, re.MULTILINE)
    expected = {
        path.stem
        for folder in ("bert_tf", "tasks")
        for path in (ROOT / folder).glob("*.py")
        if "\nif __name__ ==" in path.read_text(encoding="utf-8")
    }
    assert set(listed) == expected - {"__main__"}


def test_version(monkeypatch, capsys):
    run(monkeypatch, "--version")
    assert capsys.readouterr().out == f"bert_tf {bert_tf.__version__}\n"


def test_unknown_command_suggests_a_similar_one(monkeypatch):
    with pytest.raises(SystemExit, match=r"Unknown command pretain\. .* pretrain\?"):
        run(monkeypatch, "pretain")


@pytest.mark.parametrize(
    ("package", "command"), [("bert_tf", "client"), ("tasks", "tagging")]
)
def test_command_gets_its_flags(monkeypatch, capsys, package, command):
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, command, "--help")
    assert not stopped.value.code
    assert f"python -m {package}.{command} " in capsys.readouterr().out
