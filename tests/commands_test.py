# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""`--help` of all commands: content, size, and speed of the imports."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
COMMANDS = [
    f"{path.parent.name}.{path.stem}"
    for folder in ("bert_tf", "tasks", "experiments", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
    if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")
]

# Runs each command in a forked process, which saves the start of Python. Prints JSON:
# exit status, output and imported modules.
RUN_ALL = """
import contextlib, io, json, multiprocessing, runpy, sys
from absl import logging
import numpy

def run(command):
    sys.argv = [command, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            runpy.run_module(command, run_name="__main__", alter_sys=True)
            status = 0
        except SystemExit as exit:
            status = exit.code
    return command, (status, output.getvalue(), sorted(sys.modules))

with multiprocessing.get_context("fork").Pool(maxtasksperchild=1) as pool:
    print(json.dumps(dict(pool.imap(run, sys.argv[1].split(), chunksize=1))))
"""
SLOW_TO_IMPORT = {"apache_beam", "keras", "keras_hub", "matplotlib", "scipy", "sklearn"}
SLOW_TO_IMPORT |= {"tensorflow", "torch", "transformers"}


@pytest.fixture(scope="module")
def results():
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, " ".join(COMMANDS)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "100"},
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_no_slow_imports(results, command):
    status, output, modules = results[command]
    assert not status
    assert f"python -m {command}" in output
    assert len(output.splitlines()) <= 40  # Fits on a screen.
    assert not SLOW_TO_IMPORT & set(modules)


@pytest.mark.parametrize("package", ["bert_tf", "tasks", "experiments"])
def test_packages_list_their_commands(package):
    done = subprocess.run(
        [sys.executable, "-m", package], capture_output=True, text=True, cwd=ROOT
    )
    assert not done.returncode, done.stderr
    listed = re.findall(r"^  (\w+) {2,}[A-Z].*\.$", done.stdout, re.MULTILINE)
    own = [name for name in COMMANDS if name.startswith(f"{package}.")]
    assert [f"{package}.{name}" for name in listed] == own


@pytest.mark.parametrize(
    "command", ["bert_tf.corpus", "tasks.tagging", "experiments.masking"]
)
def test_ctrl_c_during_imports_prints_one_line(tmp_path, command):
    interrupt = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "numpy.py").write_text(interrupt)
    done = subprocess.run(
        [sys.executable, "-u", "-m", command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "\nInterrupted.\n")
