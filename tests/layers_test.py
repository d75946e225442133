# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""The structure of the project: what `BUILD` says is what the modules import."""

import ast
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from bert_tf import lazy

ROOT = pathlib.Path(__file__).parents[1]

# From the bottom up: a module imports only what stands in lines above its own.
LAYERS = """
    lazy config fusion gradients client normalization packing pairs spans glue storage
    dropout documents jobs activations losses
    attention residual
    formats.names vocab beam keras_model optimization distribution flops memory
    comparison conll tables
    model
    text checkpoint input_pipeline windows taggers train_step squad
    formats.foreign inference monitoring pretrain_options token_store passages words
    formats.google formats.hugging_face formats.keras_hub lint shards signatures
    formats.model_garden
    convert corpus saved_model task servable rest_json heads
    batching export pretrain rest sweep
    finetune model_server features
    serve
    demo
"""

# The distribution that an import comes from, where the names differ.
DISTRIBUTIONS = {
    "absl": "absl_py",
    "google": "protobuf",
    "grpc": "grpcio",
    "keras_hub": "keras_nlp",
    "sklearn": "scikit_learn",
    "tensorflow_serving": "tensorflow_serving_api",
}


def sources() -> list[pathlib.Path]:
    folders = ("bert_tf", "tasks", "tests", "benchmarks")
    return sorted(file for f in folders for file in (ROOT / f).rglob("*.py"))


def imports(source: pathlib.Path) -> set[str]:
    """Dotted names of everything that a file imports when it runs, wherever in it."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for_types_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    names = set()
    for node in set(ast.walk(tree)) - for_types_only:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module == "bert_tf.lazy":  # Its stand-ins have their names.
                    names.add(getattr(lazy, alias.name).__name__)
                inner = f"{node.module}.{alias.name}"
                path = ROOT / inner.replace(".", "/")
                is_module = path.is_dir() or path.with_suffix(".py").is_file()
                names.add(inner if is_module else node.module)
    return names


def label(module: str) -> str | None:
    """The Bazel label that provides a module; None for the standard library."""
    top, _, rest = module.partition(".")
    if (ROOT / top).is_dir():
        own = {"bert_tf": "", "tasks": "tasks_", "tests": "", "benchmarks": ""}[top]
        return f":{own}{rest.replace('.', '_')}" if rest else f":{top}"
    if top in sys.stdlib_module_names:
        return None
    return f"@pypi//{DISTRIBUTIONS.get(top, top)}"


def targets() -> dict[str, dict]:
    """Every target of BUILD: its rule, sources and deps."""
    found: dict[str, dict] = {}

    def rule(kind):
        def add(name, **attributes):
            assert name not in found, f"two targets are called {name}"
            found[name] = {"kind": kind, **attributes}

        return add

    scope = {kind: rule(kind) for kind in ("py_library", "py_binary", "py_test")}
    scope |= {"load": lambda *_: None, "package": lambda **_: None}
    exec(compile((ROOT / "BUILD").read_text(), "BUILD", "exec"), scope)
    return found


TARGETS = targets()


def test_every_source_has_a_target():
    covered = {src for target in TARGETS.values() for src in target["srcs"]}
    assert covered == {str(source.relative_to(ROOT)) for source in sources()}


@pytest.mark.parametrize("name", TARGETS)
def test_deps_are_the_imports(name):
    target = TARGETS[name]
    expected = set()
    for source in target["srcs"]:
        expected |= {label(module) for module in imports(ROOT / source)}
        if source.startswith("bert_tf/"):
            # Python runs the __init__.py of all its packages first.
            packages = pathlib.PurePath(source).parents[:-1]
            expected |= {label(".".join(package.parts)) for package in packages}
    expected -= {None, f":{name}"}
    assert set(target.get("deps", [])) == expected


def test_commands_are_binaries_and_tests_are_tests():
    for source in sources():
        path = str(source.relative_to(ROOT))
        is_command = 'if __name__ == "__main__":' in source.read_text(encoding="utf-8")
        kinds = {t["kind"] for t in TARGETS.values() if path in t["srcs"]}
        if path.endswith("_test.py"):
            assert kinds == {"py_test"}, path
        elif is_command and not path.startswith("benchmarks/"):
            assert "py_binary" in kinds, path


def test_imports_go_down():
    level = {
        module: number
        for number, line in enumerate(LAYERS.strip().splitlines())
        for module in line.split()
    }
    modules = {
        ".".join(source.relative_to(ROOT / "bert_tf").with_suffix("").parts): source
        for source in sources()
        if source.is_relative_to(ROOT / "bert_tf") and source.stem != "__init__"
    }
    assert level.keys() == modules.keys()
    for importer, source in modules.items():
        for name in imports(source):
            package, _, module = name.partition(".")
            assert package not in ("tasks", "tests", "benchmarks"), source
            if package == "bert_tf" and module:
                assert level[module] < level[importer], f"{importer} -> {module}"


def test_tasks_do_not_import_each_other():
    for source in (ROOT / "tasks").glob("*.py"):
        assert not any(name.startswith("tasks") for name in imports(source)), source


def test_model_knows_keras_only():
    # The last three know TensorFlow too, where it is the backend.
    seen, waiting = {"config", "gradients", "fusion", "dropout"}, ["model"]
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for name in imports(ROOT / f"bert_tf/{module}.py"):
            package, _, inner = name.partition(".")
            assert label(name) in {None, "@pypi//keras"} or package == "bert_tf", module
            if package == "bert_tf" and inner and inner not in seen:
                waiting.append(inner)


def test_pre_training_needs_neither_text_nor_serving_packages():
    """So that it runs beside tensorflow-tpu, which excludes both."""
    seen, waiting = set(), ["pretrain"]
    while waiting:
        module = waiting.pop()
        path = ROOT / "bert_tf" / module.replace(".", "/")
        for name in imports(path.with_suffix(".py")):
            assert not name.startswith(("tensorflow_text", "tensorflow_serving")), (
                module
            )
            package, _, inner = name.partition(".")
            if package == "bert_tf" and inner and inner not in seen:
                seen.add(inner)
                waiting.append(inner)


@pytest.mark.slow
def test_wheel_holds_all_modules_and_their_data(tmp_path):
    source, packages = tmp_path / "source", ("bert_tf", "tasks")
    for name in packages:
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "requirements.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    build += ["--no-build-isolation", f"--wheel-dir={tmp_path}", str(source)]
    expected = {
        str(file.relative_to(source))
        for name in packages
        for file in (source / name).rglob("*.*")
    }

    subprocess.run(build, check=True)

    (wheel,) = tmp_path.glob("bert_tf-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert expected == {name for name in names if ".dist-info/" not in name}
