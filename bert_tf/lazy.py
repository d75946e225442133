# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports of slow packages: lazy, and without the log lines of TensorFlow.

`lazy_import` returns a proxy for a module that takes seconds to import, so that
`--help` does not wait for it. `exports` gives a package the names listed in its
`__init__.pyi` and imports each at first use. Editors and type checkers read the same
file.

The package lazy-loader is not used: its `load` puts the proxy into `sys.modules`, which
breaks the import of Keras 3.15.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any


class _LazyModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


def lazy_import(name: str) -> Any:
    """Returns a proxy that imports the module at the first attribute access.

    Example: `tf = lazy_import("tensorflow")`.
    """
    return _LazyModule(name)


def import_messages(name: str) -> types.ModuleType:
    """Imports a module of generated messages, without importing TensorFlow itself."""
    if "tensorflow" in sys.modules:
        return importlib.import_module(name)
    spec = importlib.machinery.PathFinder.find_spec("tensorflow")
    sys.modules["tensorflow"] = empty = types.ModuleType("tensorflow")
    empty.__path__ = spec.submodule_search_locations
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["tensorflow"]


def import_tensorflow_text() -> types.ModuleType:
    """Imports tensorflow-text, whose ops need the TensorFlow that it was built for.

    Raises:
        ImportError: It is missing, or was built for another version.
    """
    import tensorflow as tf

    try:
        return importlib.import_module("tensorflow_text")
    except (ImportError, tf.errors.NotFoundError) as error:  # An undefined symbol.
        minor = ".".join(tf.__version__.split(".")[:2])
        raise ImportError(
            f"TensorFlow {tf.__version__} needs tensorflow-text {minor}, which is not "
            f"installed. Run: pip install --no-deps 'tensorflow-text=={minor}.*'",
            name="tensorflow_text",
        ) from error


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
    imports = [x for x in ast.parse(stub).body if isinstance(x, ast.ImportFrom)]
    modules = {alias.name: node.module for node in imports for alias in node.names}

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


# --- TensorFlow ------------------------------------------------------------------

# TensorFlow's C++ code writes to file descriptor 2 before it reads its log level, for
# example that there is no GPU. No public setting hides these lines (tensorflow#100442).
# So the descriptor points to /dev/null during the import, unless the machine has a GPU.
# Set TF_CPP_MIN_LOG_LEVEL=0 to see all lines.

# Packages that the import of TensorFlow skips.
_skipped: set[str] = set()


def hide_tensorflow_logs() -> None:
    """Sets TensorFlow's log level, and on CPUs hides the lines of a later import.

    `import bert_tf` calls it. Errors of C++ code are logged only on machines with a
    GPU: on CPUs, oneDNN logs one for each type that it does not support. Errors that
    stop a command are raised.

    Does nothing if TF_CPP_MIN_LOG_LEVEL asks for more than errors.
    """
    has_gpu = bool(glob.glob("/dev/nvidia[0-9]*"))
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2" if has_gpu else "3")
    if not has_gpu and level in ("2", "3") and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _TensorFlowFinder())


def skip_keras_wrappers() -> None:
    """Skips packages for which Keras has wrappers that no command uses.

    Importing them took 1.7 of the 4.1 s of processor time of `import tensorflow`.
    """
    _skipped.update(("matplotlib", "sklearn"))


def require_backend(feature: str, *allowed: str, fix: str = "") -> None:
    """Checks that Keras uses one of the allowed backends, without importing it.

    Raises:
        ValueError: KERAS_BACKEND selects another one.
    """
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if keras := sys.modules.get("keras"):  # keras.json may name another one, too.
        backend = keras.config.backend()
    if backend not in allowed:
        raise ValueError(
            f"{feature} needs Keras with the backend {' or '.join(allowed)}. Set "
            f"KERAS_BACKEND={allowed[0]}{fix and f', or {fix}'}. Received: "
            f"KERAS_BACKEND={backend}"
        )


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, and imports it quietly."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader and sys.stderr:  # None: closed, as in some services.
            spec.loader.exec_module = _quiet()(spec.loader.exec_module)
        return spec


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides lines on file descriptor 2, and packages from Keras."""
    hidden = _skipped - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # Their import raises ImportError.
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
        sys.modules["tensorflow"].config.list_physical_devices()  # Loads CUDA.
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        for name in hidden:
            del sys.modules[name]
