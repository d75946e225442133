# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Macros for packages, commands and tests."""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")

def requirements(packages):
    """The library `requirements` of packages in requirements.lock."""
    py_library(
        name = "requirements",
        visibility = ["//visibility:public"],
        deps = ["@pypi//" + package for package in packages],
    )

def library(name = None, srcs = None, deps = []):
    """The modules and data files of a package.

    Args:
        name: Name of the target; by default that of the folder.
        srcs: Modules; by default all in the folder.
        deps: Libraries that the modules import.
    """
    py_library(
        name = name or native.package_name().split("/")[-1],
        srcs = native.glob(["*.py"]) if srcs == None else srcs,
        data = native.glob(["*.html", "*.json", "*.pyi", "*.txt", "py.typed"], allow_empty = True),
        visibility = ["//visibility:public"],
        deps = deps + ["//:requirements"],
    )

def commands(exclude):
    """A program for each module of a package: `bazel run //package:name -- --help`.

    Args:
        exclude: Modules that are no commands.
    """
    package = native.package_name()
    for module in native.glob(["*.py"], exclude = exclude):
        name = module[:-len(".py")]
        py_binary(
            name = name,
            srcs = ["//bazel:run_module.py"],
            args = [package.replace("/", ".") + "." + name],
            legacy_create_init = 0,
            main = "//bazel:run_module.py",
            visibility = ["//visibility:public"],
            deps = ["//" + package],
        )

def pytest_tests():
    """A test target for each `*_test.py` of a package, run by pytest.

    Slow tests run with `bazel test --test_arg=--slow`.
    """
    for test in native.glob(["*_test.py"]):
        py_test(
            name = test[:-len(".py")],
            srcs = [test, "//bazel:pytest_main.py"],
            args = ["$(rootpath %s)" % test],
            data = ["//:documents", "//:pyproject.toml"],
            legacy_create_init = 0,
            main = "//bazel:pytest_main.py",
            deps = ["//benchmarks", "//bert_tf", "//experiments", "//tasks", "//tests:conftest", "//tests/toy"],
        )
