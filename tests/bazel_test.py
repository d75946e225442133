# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BUILD files list the packages' imports; a target passes only if its tests do."""

import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import structure

ROOT = pathlib.Path(__file__).parents[1]
CHECKOUT = structure.Checkout(ROOT, ("bert_tf",))
FOLDERS = sorted(file.parent for file in ROOT.glob("bert_tf/*/BUILD"))


def requirements(name: str, pattern: str = r"^([\w.-]+)[=<>]") -> set[str]:
    """Returns the names in a requirements file, as Bazel spells them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    names = re.findall(pattern, text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "_", n).lower() for n in names}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_packages_list_their_imports(folder):
    modules = [m for m, file in CHECKOUT.modules.items() if file.parent == folder]
    nodes = {
        structure.package_of(CHECKOUT.module_of(entry.name))
        for module in modules
        for entry in CHECKOUT.imports(module)
    }
    others = {other.name for other in FOLDERS if other != folder}
    deps = {f"//bert_tf/{name}" for name in nodes & others} | {"//bert_tf:foundation"}
    listed = re.findall(r'"(//\S+?)"', (folder / "BUILD").read_text(encoding="utf-8"))
    assert set(listed) - {"//bazel:defs.bzl"} == deps


@pytest.mark.skipif(not FOLDERS, reason="Bazel's runfiles have no BUILD files.")
def test_foundation_is_what_packages_import_from_beside_them():
    text = (ROOT / "bert_tf/BUILD").read_text(encoding="utf-8")
    (listed,) = re.findall(r"FOUNDATION = \[(.*?)\]", text, re.DOTALL)
    modules = {f"{name}.py" for name in structure.FOUNDATION}
    assert set(re.findall(r'"(\S+?)"', listed)) == modules | {"__init__.py"}


@pytest.mark.skipif(not FOLDERS, reason="Bazel's runfiles have no BUILD files.")
def test_requirements_are_those_of_pip():
    listed = requirements("BUILD", r'^    "(\w+)",$')
    wanted = requirements("requirements.txt") | requirements("requirements-dev.txt")
    programs = {"kubernetes_validate", "mkdocs", "pytest_xdist", "ruff"}
    assert listed == wanted - programs
    assert listed <= requirements("requirements.lock")


@pytest.mark.slow
def test_pytest_main_returns_the_status_of_the_tests(tmp_path):
    text = "import pytest\n@pytest.mark.slow\ndef test_a(): assert False"
    (tmp_path / "a_test.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = "-m \'not slow\'"\n'
    )
    main = [sys.executable, str(ROOT / "bazel/pytest_main.py"), "a_test.py"]
    for arguments, status in (([], 0), (["--slow"], 1)):
        done = subprocess.run([*main, *arguments], cwd=tmp_path, capture_output=True)
        assert done.returncode == status, done.stdout
