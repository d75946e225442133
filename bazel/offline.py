# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prepares a workspace in which Debian's Bazel 4.2.3 runs without a network.

    .venv-test/bin/python bazel/offline.py /tmp/bazel
    cd /tmp/bazel/workspace && bazel test //...

Bazel 4 does not know MODULE.bazel. The workspace has symbolic links to this checkout, a
WORKSPACE file, and a .bazelrc. Stubs replace the external repositories: the rules are
Bazel's native ones, and every package of `@pypi` is empty, because programs run with
the Python that runs this script and import what is installed there.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Bazel's own BUILD files load these.
NATIVE_RULES = {
    "rules_cc": [
        *("cc_binary", "cc_library", "cc_test", "cc_toolchain", "cc_toolchain_suite"),
    ],
    "rules_java": [
        *("java_binary", "java_import", "java_library", "java_runtime"),
        "java_toolchain",
    ],
    "rules_python": ["py_binary", "py_library", "py_test"],
}
PYTHON_TOOLCHAIN = f"""
load("@bazel_tools//tools/python:toolchain.bzl", "py_runtime_pair")

py_runtime(
    name = "python",
    interpreter_path = "{sys.executable}",
    python_version = "PY3",
)

py_runtime_pair(name = "pair", py3_runtime = ":python")

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
)
"""
# Bazel refers to these even if no coverage is collected.
COVERAGE_TOOLS = """
filegroup(name = "coverage_report_generator", visibility = ["//visibility:public"])

filegroup(name = "lcov_merger", visibility = ["//visibility:public"])
"""
EMPTY_LIBRARY = """
py_library(name = "{name}", visibility = ["//visibility:public"])
"""
BAZELRC = """
startup --host_jvm_args=-Xmx1g --output_user_root={folder}/output
build --jobs=2 --spawn_strategy=local --extra_toolchains=@rules_python//:toolchain
test --test_output=errors --test_timeout=900
"""


def main(folder: pathlib.Path) -> None:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "MODULE.bazel":
            (workspace / path.name).symlink_to(path)
    for repository, rules in NATIVE_RULES.items():
        language = repository.removeprefix("rules_")
        definitions = "".join(f"{rule} = native.{rule}\n" for rule in rules)
        write(folder / repository / language / "defs.bzl", definitions)
        write(folder / repository / language / "BUILD", "")
        write(folder / repository / "BUILD", "")
    write(folder / "rules_python/BUILD", PYTHON_TOOLCHAIN)
    write(folder / "remote_coverage_tools/BUILD", COVERAGE_TOOLS)
    for package in sorted(packages()):
        library = (
            f'py_library(name = "{package}", visibility = ["//visibility:public"])'
        )
        write(folder / "pypi" / package / "BUILD", library)
    repositories = [*NATIVE_RULES, "remote_coverage_tools", "pypi"]
    for repository in repositories:
        write(folder / repository / "WORKSPACE", f'workspace(name = "{repository}")')
    overrides = [
        f'local_repository(name = "{name}", path = "{folder / name}")\n'
        for name in repositories
    ]
    write(workspace / "WORKSPACE", "".join(overrides))
    write(workspace / ".bazelrc", BAZELRC.format(folder=folder))


def packages() -> set[str]:
    """Returns the packages of `@pypi`, which the top BUILD file lists."""
    build = (ROOT / "BUILD").read_text(encoding="utf-8")
    return set(re.findall(r'^    "(\w+)",$', build, re.MULTILINE))


def write(path: pathlib.Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
