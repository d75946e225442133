# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a command or a task: `bert-tf COMMAND --flag=value ...`.

`python -m bert_tf COMMAND` is the same, and so are `python -m bert_tf.COMMAND` and, for
tasks, `python -m tasks.TASK` in a clone and `python -m bert_tf.tasks.TASK` elsewhere.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import pkgutil
import runpy
import sys

import bert_tf

_COMMANDS = (
    "vocab",
    "corpus",
    "pretrain",
    "convert",
    "export",
    "serve",
    "client",
    "demo",
)


def main() -> None:
    """Runs the module that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    modules = _modules()
    if name in modules:
        del sys.argv[1]
        runpy.run_module(modules[name], run_name="__main__", alter_sys=True)
    elif name == "--version":
        print(f"bert_tf {bert_tf.__version__}")
    elif name in ("-h", "--help", "help"):
        print("Usage: bert-tf COMMAND --flag=value ...\n\nCommands and tasks:")
        for command, module in modules.items():
            print(f"  {command:<20} {_summary(module)}")
        print("\nbert-tf COMMAND --help explains the flags. bert-tf --version")
    else:
        similar = difflib.get_close_matches(name, modules, n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        sys.exit(f"error: Unknown command {name}.{hint} (see bert-tf --help)")


def _modules() -> dict[str, str]:
    """Returns the modules of commands and tasks by name."""
    modules = {name: f"bert_tf.{name}" for name in _COMMANDS}
    # The wheel installs the folder `tasks` of a clone as bert_tf.tasks.
    tasks = importlib.util.find_spec("bert_tf.tasks") or importlib.util.find_spec(
        "tasks"
    )
    for module in pkgutil.iter_modules(tasks.submodule_search_locations):
        modules[module.name] = f"{tasks.name}.{module.name}"
    return modules


def _summary(module: str) -> str:
    """Returns the first line of a module's docstring, without importing it."""
    source = importlib.util.find_spec(module).loader.get_source(module)
    return ast.get_docstring(ast.parse(source)).partition("\n")[0]


if __name__ == "__main__":
    main()
