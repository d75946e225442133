# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports between packages; the contents of the wheel."""

import importlib
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from benchmarks import structure

ROOT = pathlib.Path(__file__).parents[1]
CHECKOUT = structure.Checkout(ROOT, ("bert_tf", "tasks", "benchmarks", "tests"))
PACKAGES = sorted(name for name in CHECKOUT.index if name != "bert_tf")

# From the bottom up: a module imports from its own package and from the lines above
# its own only.
LAYERS = """
    lazy storage
    cli families keras_private
    text modeling
    data heads
    checkpoints
    training serving
    finetuning
    vocab corpus pretrain evaluate convert export serve client tasks __main__
"""
LEVEL = {
    node: level
    for level, line in enumerate(LAYERS.strip().splitlines())
    for node in line.split()
}


def imports(*folders: str) -> list[tuple[str, str, structure.Import]]:
    """Returns (module, "file:line", import) for all modules in `folders`."""
    return [
        (module, f"{file.relative_to(ROOT)}:{entry.line}", entry)
        for module, file in CHECKOUT.modules.items()
        if module.partition(".")[0] in folders
        for entry in CHECKOUT.imports(module)
    ]


def package(module: str) -> str:
    """Returns the package of `bert_tf` that a module is in, or an empty string."""
    return next((p for p in PACKAGES if f"{module}.".startswith(f"{p}.")), "")


def fail_if(violations: list[str]) -> None:
    if violations:
        pytest.fail("\n".join(sorted(set(violations))), pytrace=False)


def test_every_module_is_in_a_layer():
    nodes = {
        structure.node(module)
        for module in CHECKOUT.modules
        if module.startswith(("bert_tf.", "tasks."))
    }
    assert nodes == LEVEL.keys()


def test_imports_go_down():
    wrong = []
    for module, place, entry in imports("bert_tf", "tasks"):
        importer, imported = structure.node(module), structure.node(entry.module)
        if "bert_tf" in (module, imported) or entry.module not in CHECKOUT.modules:
            continue
        top = entry.module.partition(".")[0]
        if top in ("tests", "benchmarks"):
            wrong.append(f"{place} imports {entry.module}")
        elif importer != imported and LEVEL[imported] >= LEVEL[importer]:
            wrong.append(f"{place} ({importer}) imports {entry.module}")
    fail_if(wrong)


def test_modules_do_not_import_each_other_in_cycles():
    graph = {module: CHECKOUT.dependencies(module) for module in CHECKOUT.modules}
    assert structure.cycles(graph) == []


def test_tasks_do_not_import_each_other():
    fail_if(
        [
            f"{place} imports {entry.module}"
            for module, place, entry in imports("tasks")
            if entry.module.startswith("tasks.") and entry.module != module
        ]
    )


def test_tests_share_helpers_in_toy_only():
    fail_if(
        [
            f"{place} imports {entry.source}"
            for module, place, entry in imports("tests")
            if entry.source.endswith("_test") and entry.source != module
        ]
    )


def test_packages_are_used_through_their_interface():
    """A unit test in tests/data may import any module of bert_tf/data."""
    wrong = []
    for module, place, entry in imports("bert_tf", "tasks", "benchmarks", "tests"):
        used = package(entry.source)
        own = package(module) or package(module.replace("tests.", "bert_tf.", 1))
        if not used or used == own or module == "bert_tf":
            continue
        if entry.source != used:
            wrong.append(f"{place} imports {entry.source}, a module inside {used}")
        elif entry.name and entry.name not in CHECKOUT.index[used]:
            wrong.append(f"{place}: {used} does not list {entry.name}")
    fail_if(wrong)


@pytest.mark.parametrize("name", ["bert_tf", *PACKAGES])
def test_listed_names_exist(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(CHECKOUT.index[name])
    fail_if([f"{name}.{n}" for n in CHECKOUT.index[name] if not hasattr(module, n)])


@pytest.mark.skipif(
    not (ROOT / "BUILD").exists(), reason="Bazel's runfiles lack the other tests."
)
@pytest.mark.parametrize("name", PACKAGES)
def test_listed_names_are_used_outside_of_the_package(name):
    """A name that the top-level package or a page of the docs shows counts as used."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    used = set(re.findall(r"\w+", "\n".join(re.findall(r"`+[^`]+`+", text))))
    used |= CHECKOUT.index["bert_tf"].keys()
    for module, _, entry in imports("bert_tf", "tasks", "benchmarks", "tests"):
        if entry.source == name and package(module) != name:
            used.add(entry.name)
    fail_if([f"{name}.{unused}" for unused in CHECKOUT.index[name].keys() - used])


def test_modeling_imports_keras_only():
    """TensorFlow and JAX in `backend` only: all else runs on every backend."""
    wrong = []
    for module, place, entry in imports("bert_tf"):
        top = entry.source.partition(".")[0]
        allowed = {"bert_tf", "keras", *sys.stdlib_module_names}
        if module == "bert_tf.modeling.backend":
            allowed |= {"jax", "tensorflow"}
        if package(module) == "bert_tf.modeling" and top not in allowed:
            wrong.append(f"{place} imports {entry.source}")
    fail_if(wrong)


def test_pretraining_needs_neither_text_nor_serving_packages():
    """Both exclude tensorflow-tpu, with which pre-training runs on TPUs."""
    fail_if(
        [
            f"{module} imports {entry.source}"
            for module in CHECKOUT.closure(["bert_tf.pretrain"])
            for entry in CHECKOUT.imports(module)
            if entry.source.startswith(("tensorflow_text", "tensorflow_serving"))
            and not entry.for_types
        ]
    )


def test_requirements_are_the_dependencies_and_extras():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert listed == project["dependencies"] + extras["hub"] + extras["serving"]


@pytest.mark.slow
def test_wheel_holds_all_modules_and_data_files(tmp_path):
    source, packages = tmp_path / "source", ("bert_tf", "tasks")
    documents = ("pyproject.toml", "README.md", "LICENSE")
    for name in packages:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for path in map(ROOT.joinpath, documents):
        shutil.copy(path, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    build += ["--no-build-isolation", f"--wheel-dir={tmp_path}", str(source)]
    expected = {
        re.sub("^tasks/", "bert_tf/tasks/", str(file.relative_to(source)))
        for name in packages
        for file in (source / name).rglob("*.*")
    }

    subprocess.run(build, check=True)

    (wheel,) = tmp_path.glob("bert_tf-*.whl")
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    assert expected == {name for name in names if ".dist-info/" not in name}
    assert "bert_tf/py.typed" in expected
    (metadata,) = (name for name in names if name.endswith("/METADATA"))
    text = archive.read(metadata).decode()
    requirements = re.findall(r"^Requires-Dist: ([^;\n]*)(.*)$", text, re.MULTILINE)
    with_extras = {name for name, marker in requirements if "extra" in marker}
    assert any(name.startswith("keras-nlp") for name in with_extras)
    assert any(name.startswith("tensorflow-serving-api") for name in with_extras)
    assert "tensorflow==2.21.*" in {n for n, marker in requirements if not marker}
