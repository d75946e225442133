# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""BERT (arXiv 1810.04805) in Keras 3 on TensorFlow, from raw text to serving.

Public names for Keras scripts. Each is imported at first use, so that
`import bert_tf.client` and the `--help` of commands do not wait for TensorFlow.
"""

import signal
import sys


def _exit_quietly(number, frame):
    """Handles Ctrl-C: the command ends with one line and status 130, no traceback."""

    def report(*error):  # `KeyboardInterrupt`, or the error of an import that it broke.
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)

    sys.excepthook = report
    raise KeyboardInterrupt


# Only in `python -m bert_tf.command`, and before the slow imports.
if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith(("bert_tf.", "tasks.")):
    signal.signal(signal.SIGINT, _exit_quietly)

# ruff: noqa: E402
import importlib
import inspect
import os
import platform

import wrapt

from bert_tf import lazy

if os.name == "nt":
    raise ImportError(
        "bert_tf needs Linux or macOS: tensorflow-text has no wheels for Windows. "
        "Use the Windows Subsystem for Linux (wsl --install)."
    )

__version__ = "0.1.0"

# TensorFlow reads this variable when it is imported. Without it, oneDNN's kernels are
# off on x86 processors that have none of AVX512-VNNI, AVX512-BF16 and AMX.
if platform.machine().lower() in ("x86_64", "amd64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

__getattr__, __dir__, __all__ = lazy.exports(__name__, __file__)

# The packages that register classes with Keras, for `keras.saving.load_model`.
_REGISTERING = tuple(
    f"bert_tf.{name}" for name in ("heads", "modeling", "text", "training")
)


class _Registry(dict):
    """Keras' registered classes by name. Imports our classes when Keras looks for one.

    They are not imported together with Keras: some of them may be importing it already.
    """

    def __contains__(self, name):
        if str(name).startswith("bert_tf>") and not super().__contains__(name):
            for package in map(importlib.import_module, _REGISTERING):
                inspect.getmembers(package)  # Imports the modules of all names.
        return super().__contains__(name)


@wrapt.when_imported("keras.src.saving.object_registration")
def _replace_registry(module) -> None:
    module.GLOBAL_CUSTOM_OBJECTS = _Registry(module.GLOBAL_CUSTOM_OBJECTS)
