# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The installation of quickstart.py, and the systems that it refuses."""

import os
import runpy
import shutil
import subprocess
import venv

import pytest

import bert_tf
import quickstart

CONFIG = """:env:.timeout='60'
global.index-url='https://mirror.example/simple'
global.extra-index-url='file:///a file:///b'
"""


@pytest.mark.parametrize(
    ("failing", "names"),
    [
        (None, ["uv of pip", "uv"]),
        ("uv of pip", ["uv of pip", "keras of pip"]),
        ("uv", ["uv of pip", "uv", "keras of pip"]),
    ],
)
def test_pip_installs_only_where_uv_fails(monkeypatch, failing, names):
    commands = []

    def run(command, **kwargs):
        done = subprocess.CompletedProcess(command, 0, stdout=CONFIG)
        if command[-2:] == ["config", "list"]:
            return done
        name = "uv" if command[2] == "uv" else f"{command[-1]} of pip"
        commands.append((name, command))
        done.returncode = int(name == failing)
        return done

    monkeypatch.setattr(venv, "create", lambda folder, **kwargs: None)
    monkeypatch.setattr(subprocess, "run", run)
    quickstart.install("folder", "keras")
    assert [name for name, _ in commands] == names
    if "uv" in names:  # It does not read the configuration of pip.
        indexes = "--default-index=https://mirror.example/simple"
        indexes = [indexes, "--index=file:///a", "--index=file:///b"]
        assert [a for a in commands[1][1] if "index=" in a] == indexes


def test_environment_whose_python_is_gone_is_rebuilt(tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(quickstart, "install", lambda folder, *_: built.append(folder))
    for python in (None, "python3", "gone"):
        if python:
            (tmp_path / "bin").mkdir(exist_ok=True)
            (tmp_path / "bin/python").unlink(missing_ok=True)
            (tmp_path / "bin/python").symlink_to(shutil.which(python) or python)
        quickstart.environment(tmp_path, quickstart.HERE / "requirements.txt")
    assert len(built) == 2


def test_windows_is_refused_in_one_line(monkeypatch):
    init = bert_tf.__file__
    monkeypatch.setattr(os, "name", "nt")
    with pytest.raises(ImportError, match=r"^bert_tf needs Linux or macOS.*wsl"):
        runpy.run_path(init)
    with pytest.raises(SystemExit, match=r"^error: tensorflow-text has no wheels"):
        quickstart.main(["demo"])
