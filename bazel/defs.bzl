# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Macros for packages, commands and tests."""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

def library(name = None, srcs = None, deps = [], pypi = []):
    """The modules and data files of a package.

    Args:
        name: Name of the target; by default that of the folder.
        srcs: Modules; by default all in the folder.
        deps: Libraries that the modules import.
        pypi: Packages in requirements.lock that the modules import.
    """
    py_library(
        name = name or native.package_name().split("/")[-1],
        srcs = native.glob(["*.py"]) if srcs == None else srcs,
        data = native.glob(["*.html", "*.pyi", "*.txt", "py.typed"], allow_empty = True),
        visibility = ["//visibility:public"],
        deps = deps + _labels(pypi),
    )

def command(name, deps, pypi = []):
    """A module that `python -m package.name` runs: `bazel run //package:name -- --help`.

    Args:
        name: Name of the target and of the module, without `.py`.
        deps: Libraries that the module imports.
        pypi: Packages in requirements.lock that the module imports.
    """
    py_binary(
        name = name,
        srcs = [name + ".py", "//bazel:run_module.py"],
        args = [native.package_name().replace("/", ".") + "." + name],
        legacy_create_init = 0,
        main = "//bazel:run_module.py",
        visibility = ["//visibility:public"],
        deps = deps + _labels(pypi),
    )

def pytest_tests(deps, data = []):
    """A test target for each `*_test.py` of a package, run by pytest.

    Slow tests run with `bazel test --test_arg=--slow`.

    Args:
        deps: Libraries that the tests import, besides those of `conftest.py`.
        data: Files that the tests read.
    """
    for test in native.glob(["*_test.py"]):
        py_test(
            name = test[:-len(".py")],
            srcs = [test, "//bazel:pytest_main.py"],
            args = ["$(rootpath %s)" % test],
            data = data + ["//:pyproject.toml"],
            legacy_create_init = 0,
            main = "//bazel:pytest_main.py",
            deps = deps + ["//tests:conftest"],
        )

def _labels(pypi):
    return ["@pypi//" + package for package in pypi]
