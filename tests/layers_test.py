# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports between packages; the contents of the wheel."""

import graphlib
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
CHECKOUT = structure.Checkout(
    ROOT, ("bert_tf", "tasks", "experiments", "benchmarks", "tests")
)
PACKAGES = sorted(CHECKOUT.index.keys() - {"bert_tf"})

# From the bottom up: a module imports from its own package and from the lines above
# its own only.
LAYERS = """
    lazy storage
    cli families keras_private text_files
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


def package(module: str) -> str:
    """Returns the package of `bert_tf` that a module or name is in, or ""."""
    return next((p for p in PACKAGES if f"{module}.".startswith(f"{p}.")), "")


# --- Rules -----------------------------------------------------------------------
# Each returns whether `module` must not import `name`, which `source` defines.


def goes_up(module: str, name: str, source: str) -> bool:
    if not module.startswith(("bert_tf.", "tasks.")) or source in ("", "bert_tf"):
        return False
    if source.startswith(("tests", "benchmarks", "experiments")):
        return True
    importer, imported = map(structure.package_of, (module, source))
    return importer != imported and LEVEL[imported] >= LEVEL[importer]


def is_of_another_task_or_test(module: str, name: str, source: str) -> bool:
    """Tests share tools in tests/toy only."""
    is_task = module.startswith("tasks.") and source.startswith("tasks.")
    return source != module and (is_task or source.endswith("_test"))


def bypasses_the_interface(module: str, name: str, source: str) -> bool:
    """A unit test in tests/data may import any module of bert_tf/data."""
    used = package(name)
    own = package(module) or package(module.replace("tests.", "bert_tf.", 1))
    if used in ("", own) or used == name or module == "bert_tf":
        return False
    return name.removeprefix(f"{used}.").split(".")[0] not in CHECKOUT.index[used]


def is_no_keras(module: str, name: str, source: str) -> bool:
    """TensorFlow and JAX in `backend` only: all else runs on every backend."""
    allowed = {"bert_tf", "keras", *sys.stdlib_module_names}
    if module == "bert_tf.modeling.backend":
        allowed |= {"jax", "tensorflow"}
    is_allowed = name.partition(".")[0] in allowed
    return package(module) == "bert_tf.modeling" and not is_allowed


PAGE = (ROOT / "docs/adding_a_task.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `(bert_tf\.\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
STABLE = {f"{x}.{n}" for x, names in ROWS for n in re.findall(r"`(\w+)`", names)}


def is_not_stable(module: str, name: str, source: str) -> bool:
    """Experiments use what docs/adding_a_task.md promises to users."""
    is_used = module.startswith("experiments.") and name.startswith("bert_tf.")
    parts = name.split(".")[:3]
    return is_used and len(parts) == 3 and ".".join(parts) not in STABLE


RULES = (goes_up, is_of_another_task_or_test, bypasses_the_interface, is_no_keras)
RULES += (is_not_stable,)


@pytest.mark.parametrize("rule", RULES)
def test_imports(rule):
    wrong = {
        f"{file.relative_to(ROOT)}:{entry.line} imports {entry.name}"
        for module, file in CHECKOUT.modules.items()
        for entry in CHECKOUT.imports(module)
        if rule(module, entry.name, CHECKOUT.module_of(entry.name))
    }
    assert not wrong


def test_every_module_is_in_a_layer():
    modules = [m for m in CHECKOUT.modules if m.startswith(("bert_tf.", "tasks."))]
    assert set(map(structure.package_of, modules)) == LEVEL.keys()


def test_modules_do_not_import_each_other_in_cycles():
    graphlib.TopologicalSorter(CHECKOUT.graph()).prepare()  # Raises CycleError.


@pytest.mark.parametrize("name", ["bert_tf", *PACKAGES])
def test_listed_names_exist(name):
    module = importlib.import_module(name)
    assert dir(module) == sorted(CHECKOUT.index[name])
    assert not [n for n in CHECKOUT.index[name] if not hasattr(module, n)]


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
    for module in CHECKOUT.modules:
        if package(module) != name:
            names = (
                entry.name.removeprefix(name) for entry in CHECKOUT.imports(module)
            )
            used |= {rest.split(".")[1] for rest in names if rest.startswith(".")}
    assert not CHECKOUT.index[name].keys() - used


def test_requirements_are_the_dependencies_and_extras():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    listed = [line for line in lines if line and not line.startswith("#")]
    assert listed == project["dependencies"] + extras["hub"] + extras["serving"]


@pytest.mark.slow
def test_wheel_holds_all_modules_and_data_files(tmp_path):
    source, packages = tmp_path / "source", ("bert_tf", "tasks", "experiments")
    documents = ("pyproject.toml", "README.md", "LICENSE")
    for name in packages:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for path in map(ROOT.joinpath, documents):
        shutil.copy(path, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    build += ["--no-build-isolation", f"--wheel-dir={tmp_path}", str(source)]
    expected = {
        re.sub("^(?=tasks|experiments)", "bert_tf/", str(file.relative_to(source)))
        for name in packages
        for file in (source / name).rglob("*.*")
    }

    subprocess.run(build, check=True)

    (wheel,) = tmp_path.glob("bert_tf-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert expected == {name for name in names if ".dist-info/" not in name}
    assert "bert_tf/py.typed" in expected


# --- Optional modules ------------------------------------------------------------

# Modules that few need, and that others import at first use.
OPTIONAL = (
    "bert_tf.checkpoints.google",
    "bert_tf.checkpoints.keras_hub",
    "bert_tf.checkpoints.model_card",
    "bert_tf.training.initialization",
    "bert_tf.training.report",
)

IMPORT = """
import importlib, os, sys
import keras, tensorflow, tensorflow_text
import bert_tf
optional, modules = ([*filter(None, line.split())] for line in sys.stdin)
for name in optional:
    if not (child := os.fork()):  # The slow imports are shared.
        sys.modules[name] = None
        for module in modules:
            if module != name:
                importlib.import_module(module)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, name
"""


@pytest.mark.slow
def test_optional_modules_can_be_removed():
    """Without such a module, all others are imported; only its uses are errors."""
    ours = [m for m in CHECKOUT.modules if m.startswith(("bert_tf.", "tasks."))]
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        input="\n".join(" ".join(names) for names in (OPTIONAL, sorted(ours))),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
