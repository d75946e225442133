# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hides the log lines that TensorFlow and CUDA print while they are imported.

TensorFlow's C++ code writes to file descriptor 2 before it reads its log level. So the
descriptor points to a temporary file while TensorFlow is imported and looks for
devices. Then lines of other origin are written to standard error. Errors are kept for
`show_errors`, which a command calls when it fails. If the process dies during the
import, the lines are lost: set TF_CPP_MIN_LOG_LEVEL=0 to see all of them at once.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.abc
import importlib.machinery
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

_LOG_LINE = re.compile(
    rb"(?P<level>[IWEF])\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] "
    rb"|\d{4}-\d\d-\d\d [\d:.]+ (?P<old_level>[IWEF]) \w+/"
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|To enable the following instructions: "
)

_errors: list[bytes] = []


def hide_tensorflow_logs() -> None:
    """Filters the log lines of a later import of TensorFlow, and its log level.

    Does nothing if TF_CPP_MIN_LOG_LEVEL asks for more than errors.
    """
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if level in ("2", "3") and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _TensorFlowFinder())


def show_errors() -> None:
    """Writes the hidden errors to standard error."""
    while _errors:
        os.write(2, _errors.pop(0))


def require_tensorflow(feature: str) -> None:
    """Checks that Keras uses its TensorFlow backend, without importing it.

    Raises:
        ValueError: KERAS_BACKEND selects another one.
    """
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if keras := sys.modules.get("keras"):  # keras.json may name another one, too.
        backend = keras.config.backend()
    if backend != "tensorflow":
        raise ValueError(
            f"{feature} needs the TensorFlow backend of Keras. Unset KERAS_BACKEND. "
            f"Received: KERAS_BACKEND={backend}"
        )


class _TensorFlowFinder(importlib.abc.MetaPathFinder):
    """Finds TensorFlow as Python does, and filters its import."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                with _filtered_stderr(), _without_plotting():
                    execute(module)
                    module.config.list_physical_devices()  # Loads CUDA.

            spec.loader.exec_module = exec_module
        return spec


@contextlib.contextmanager
def _without_plotting() -> Iterator[None]:
    """Hides two optional packages from Keras, which TensorFlow imports.

    Keras has wrappers for scikit-learn and plots that no command uses. Importing the
    packages took 1.7 of the 4.1 s of processor time of `import tensorflow`.
    """
    hidden = {"matplotlib", "sklearn"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # Their import raises ImportError.
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def _filtered_stderr() -> Iterator[None]:
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            for line in file:
                match = _LOG_LINE.match(line)
                if not match:
                    os.write(2, line)
                elif b"cuInit" in line and not glob.glob("/dev/nvidia[0-9]*"):
                    continue  # This machine has no GPU.
                elif match["level"] in (b"E", b"F") or match["old_level"] == b"E":
                    _errors.append(line)
