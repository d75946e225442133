# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Hides the log lines that TensorFlow prints while it is imported.

TensorFlow's C++ code writes to file descriptor 2 before it reads its log level, for
example that there is no GPU. So the descriptor points to /dev/null during the import,
unless the machine has a GPU. Set TF_CPP_MIN_LOG_LEVEL=0 to see all lines.
"""

from __future__ import annotations

import contextlib
import glob
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Iterator
from typing import Any


def hide_tensorflow_logs() -> None:
    """Hides the log lines of a later import of TensorFlow, and sets its log level.

    Does nothing if TF_CPP_MIN_LOG_LEVEL asks for more than errors.
    """
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if level in ("2", "3") and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _TensorFlowFinder())


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
    """Finds TensorFlow as Python does, and imports it quietly."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module):
                with _quiet():
                    execute(module)
                    module.config.list_physical_devices()  # Loads CUDA.

            spec.loader.exec_module = exec_module
        return spec


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what is written to file descriptor 2, and two packages from Keras.

    Keras has wrappers for scikit-learn and plots that no command uses. Importing the
    packages took 1.7 of the 4.1 s of processor time of `import tensorflow`.
    """
    hidden = {"matplotlib", "sklearn"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(hidden))  # Their import raises ImportError.
    stderr = os.dup(2)
    if not glob.glob("/dev/nvidia[0-9]*"):
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        for name in hidden:
            del sys.modules[name]
