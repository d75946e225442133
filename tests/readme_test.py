# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The README says what is so."""

import pathlib
import re

import pytest

from tests.input_pipeline_test import write_records

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_keras_script_runs(tmp_path, monkeypatch, vocabulary, capsys):
    (script,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    pair = [2, *range(5, 11), 3, *range(11, 17), 3]
    for split in ("train", "validation"):
        rows = [(pair, 8, i % 2) for i in range(24)]
        write_records(tmp_path / "records", vocabulary, rows, split)
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    assert capsys.readouterr().out.rstrip().endswith("(1, 128)")


@pytest.mark.parametrize("command", re.findall(r"python -m ([\w.]+)", README))
def test_commands_exist(command):
    if command != "venv":
        source = ROOT / f"{command.replace('.', '/')}.py"
        assert "__main__" in source.read_text(encoding="utf-8")


def test_flags_exist():
    """Every flag of a command shown in the README is defined by its module."""
    for command, rest in re.findall(
        r"python -m ((?:bert_tf|tasks)\.\w+)((?:[^\n]*\\\n)*[^\n]*)", README
    ):
        sources = [ROOT / f"{command.replace('.', '/')}.py", ROOT / "bert_tf/task.py"]
        text = "".join(source.read_text(encoding="utf-8") for source in sources)
        if command != "bert_tf.client":  # Its flags are the model's inputs.
            for flag in re.findall(r"--(\w+)", rest):
                assert re.search(f"    {flag}_?: ", text), f"{command} --{flag}"
