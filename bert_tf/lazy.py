# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lazy imports, so that `--help` does not wait for TensorFlow.

`lazy_import` returns a proxy for a module that takes seconds to import. `exports`
gives a package the names listed in its `__init__.pyi` and imports each at first use.
Editors and type checkers read the same file.

The package lazy-loader is not used: its `load` puts the proxy into `sys.modules`, which
breaks the import of Keras 3.15.
"""

from __future__ import annotations

import ast
import importlib
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

checkpoints: Callable[[], Any]
"""Returns `bert_tf.checkpoints`, for `from_checkpoint` of models and tokenizers.

`bert_tf.checkpoints` imports `modeling` and `text`, so imports the other way round
would be cycles. Instead `bert_tf/__init__.py`, which Python runs before any module of
the package, sets this function.
"""


class _LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def lazy_import(name: str) -> Any:
    """Returns a proxy that imports the module at the first attribute access.

    Example: `tf = lazy_import("tensorflow")`.
    """
    return _LazyModule(name)


def exports(
    package: str, file: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a package (PEP 562).

    Args:
        package: The package's `__name__`.
        file: The package's `__file__`. The `__init__.pyi` beside it lists the names as
            `from bert_tf.module import name as name`.

    Example: `__getattr__, __dir__, __all__ = exports(__name__, __file__)`.
    """
    stub = pathlib.Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    modules = {
        alias.name: node.module
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:  # The name of a module.
            value = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)  # Not called again for this name.
        return value

    return __getattr__, lambda: sorted(modules), sorted(modules)
