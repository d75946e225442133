# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BUILD files list what the modules import; a target passes only if its tests do."""

import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import structure

ROOT = pathlib.Path(__file__).parents[1]
CHECKOUT = structure.Checkout(ROOT)
# Packages that are not called like their modules.
PACKAGES = {
    "absl": "absl_py",
    "google": "protobuf",
    "grpc": "grpcio",
    "sklearn": "scikit_learn",
    "tensorflow_serving": "tensorflow_serving_api",
}


def targets() -> dict[str, dict]:
    """Returns {label: attributes} of the libraries and commands, without `foundation`.

    The attribute `files` has the paths of their modules.
    """
    found = {}
    for file in sorted([*ROOT.glob("bert_tf/**/BUILD"), *ROOT.glob("tasks/BUILD")]):
        package = file.parent.relative_to(ROOT).as_posix()

        def library(name="", srcs=None, *, file=file, package=package, **attributes):
            if srcs is None:
                attributes["files"] = sorted(file.parent.glob("*.py"))
                found[f"//{package}{name and f':{name}'}"] = attributes

        def command(name, *, file=file, package=package, **attributes):
            attributes["files"] = [file.parent / f"{name}.py"]
            found[f"//{package}:{name}"] = attributes

        rules = {"load": lambda *_: None, "library": library, "command": command}
        exec(file.read_text(encoding="utf-8"), rules)
    return found


TARGETS = targets()


def label(module: str) -> str:
    node = structure.node(module)
    if node in ("bert_tf", "tasks") or (ROOT / "bert_tf" / node).is_dir():
        return f"//{node}" if node in ("bert_tf", "tasks") else f"//bert_tf/{node}"
    return f"//bert_tf:{'foundation' if node in structure.FOUNDATION else node}"


def normalized(package: str) -> str:
    return re.sub(r"[-_.]+", "_", package).lower()


@pytest.mark.skipif(not TARGETS, reason="Bazel's runfiles have no BUILD files.")
def test_every_module_has_a_target():
    files = {file for target in TARGETS.values() for file in target["files"]}
    others = {
        module
        for module, file in CHECKOUT.modules.items()
        if file not in files and file.name != "__init__.py"
    }
    assert others == {f"bert_tf.{name}" for name in structure.FOUNDATION}


@pytest.mark.skipif(not TARGETS, reason="Bazel's runfiles have no BUILD files.")
def test_tests_depend_on_all_commands_and_tasks():
    listed = (ROOT / "tests/BUILD").read_text(encoding="utf-8")
    commands = {label for label in TARGETS if ":" in label}
    assert set(re.findall(r'"(//(?:bert_tf|tasks):\w+)"', listed)) == commands


@pytest.mark.parametrize("target", TARGETS)
def test_targets_list_their_imports(target):
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    locked = set(map(normalized, re.findall(r"^([\w.-]+)==", lock, re.MULTILINE)))
    deps, pypi = {"//bert_tf:foundation"}, set()
    for module, file in CHECKOUT.modules.items():
        if file in TARGETS[target]["files"]:
            for entry in CHECKOUT.imports(module):
                if entry.source in CHECKOUT.modules:
                    deps.add(label(entry.module))
                else:
                    top = entry.source.partition(".")[0]
                    pypi.add(PACKAGES.get(top, top))
    deps -= {target, "//bert_tf"}
    listed = TARGETS[target]
    # Tasks share one list, and the demo runs commands.
    if target.startswith(("//tasks", "//bert_tf:demo")):
        assert set(listed["deps"]) >= deps
    else:
        assert set(listed["deps"]) == deps
    assert set(listed.get("pypi", [])) >= pypi & locked


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [
        ("def test_a(): pass", [], 0),
        ("def test_a(): assert False", [], 1),
        ("x = 1", [], 5),
        ("import no_such_module", [], 2),
        ("@pytest.mark.slow\ndef test_a(): assert False", [], 0),
        ("@pytest.mark.slow\ndef test_a(): assert False", ["--slow"], 1),
    ],
)
def test_pytest_main_returns_the_status_of_the_tests(text, arguments, status, tmp_path):
    (tmp_path / "a_test.py").write_text(f"import pytest\n{text}\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nmarkers = ["slow"]\naddopts = "-m \'not slow\'"\n'
    )
    main = [sys.executable, str(ROOT / "bazel/pytest_main.py"), "a_test.py"]
    done = subprocess.run(
        [*main, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout
