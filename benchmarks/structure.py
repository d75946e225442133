# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the structure of a checkout: lines and imports.

    python -m benchmarks.structure

Prints a Markdown table. Code lines exclude blank lines, comments and docstrings. The
import graph of packages has one node for each package in `bert_tf`, for each module
beside them, and for `tasks`. Imports for type checkers and of the foundation do not
count.

Linters of imports do not see lazy ones: `lazy_import("tensorflow")`, and names that a
package lists in its `__init__.pyi`. So the tests of the layers use this module.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import pathlib
import tokenize
from collections.abc import Iterable, Iterator, Set

from bert_tf import cli

# Modules that any other may import.
FOUNDATION = {"cli", "keras_private", "lazy", "storage"}

# The only imports that go up: `from_checkpoint` of these classes, inside the function.
# They are not part of the graph.
UPWARD = {
    "bert_tf.modeling.backbone": "checkpoints",
    "bert_tf.text.tokenizer": "checkpoints",
}

_LAZY = ("lazy_import", "import_module")
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructureConfig(cli.Options):
    """Flags of `python -m benchmarks.structure`."""

    path: str = cli.option(".", help="Checkout to measure.")


def main(options: StructureConfig) -> None:
    print("| | |\n|---|---|")
    for row in measure(Checkout(options.path)).items():
        print(f"| {' | '.join(row)} |")


@dataclasses.dataclass(frozen=True)
class Import:
    """A name that a module imports, anywhere in its file.

    Attributes:
        line: Line of the import, or of the access to an attribute of a package.
        name: Dotted name, such as "tensorflow" or "bert_tf.data.read_table".
        is_run: Whether not only type checkers import it.
    """

    line: int
    name: str
    is_run: bool = True


class Checkout:
    """The Python modules of one checkout.

    Args:
        path: Root of the checkout.
        folders: Top-level packages to read.

    Attributes:
        modules: Dotted name -> file. A package has the file of its `__init__.py`.
        index: Package -> {name: where it is defined}, from its `__init__.pyi`.
    """

    def __init__(
        self, path: str | pathlib.Path, folders: Iterable[str] = ("bert_tf", "tasks")
    ):
        self.root = pathlib.Path(path)
        files = [f for x in folders for f in sorted((self.root / x).rglob("*.py"))]
        names = [
            ".".join(f.relative_to(self.root).with_suffix("").parts) for f in files
        ]
        names = [name.removesuffix(".__init__") for name in names]
        self.modules = dict(zip(names, files))
        stubs = {name: file.with_suffix(".pyi") for name, file in self.modules.items()}
        self.index = {
            name: {local: source for _, local, source in _names(stub)}
            for name, stub in stubs.items()
            if stub.exists()
        }
        self.imports = functools.cache(self._imports)

    def _imports(self, module: str) -> list[Import]:
        tree = _parse(self.modules[module])
        types_only = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            for child in node.body
            for inner in ast.walk(child)
        }
        found, packages = [], {}
        for node, local, name in _names(self.modules[module]):
            found.append(Import(node.lineno, name, id(node) not in types_only))
            if name in self.index:
                packages[local] = name
        for node in ast.walk(tree):
            first, *attributes = _attributes(node)
            if attributes and first in packages:
                name = ".".join([packages[first], *attributes])
                found.append(Import(node.lineno, name))
        upward = UPWARD.get(module)
        return [entry for entry in found if package_of(entry.name) != upward]

    def module_of(self, name: str) -> str:
        """Returns the module that defines a dotted name; empty if it is elsewhere."""
        module, last = name, ""
        while module and module not in self.modules:
            module, _, last = module.rpartition(".")
        listed = self.index.get(module, {})
        return self.module_of(listed[last]) if last in listed else module

    def graph(self) -> dict[str, set[str]]:
        """Returns the modules that each module, other than an `__init__`, needs."""
        modules = {m for m, file in self.modules.items() if file.stem != "__init__"}
        return {
            module: {self.module_of(x.name) for x in self.imports(module) if x.is_run}
            & modules - {module}
            for module in modules
        }


@functools.cache
def _parse(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _names(file: pathlib.Path) -> Iterator[tuple[ast.AST, str, str]]:
    """Yields (statement, local name, dotted name) of all imports in a file."""
    for node in ast.walk(_parse(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.asname or alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node, alias.asname or alias.name, f"{node.module}.{alias.name}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).rpartition(".")[2] in _LAZY
            and isinstance(node.args[0], ast.Constant)
        ):
            yield node, "", node.args[0].value


def _attributes(node: ast.AST) -> list[str]:
    """Returns ["a", "b", "c"] for `a.b.c`, and [""] for any other expression."""
    if isinstance(node, ast.Attribute):
        return [*_attributes(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


# --- Measures --------------------------------------------------------------------


def measure(checkout: Checkout) -> dict[str, str]:
    """Returns the rows of the table."""
    graph = checkout.graph()
    packages: dict[str, set[str]] = {}
    for module, targets in graph.items():
        others = {*map(package_of, targets)} - {package_of(module)} - FOUNDATION
        packages.setdefault(package_of(module), set()).update(others)

    def arrows(names: Set[str]) -> int:
        return sum(len(packages[name] & names) for name in names)

    def code(folder: str) -> int:
        return sum(map(code_lines, (checkout.root / folder).rglob("*.py")))

    library = {name for name in packages if f"bert_tf.{name}" in checkout.index}
    lines = list(map(code_lines, checkout.modules.values()))
    return {
        "code lines of bert_tf and tasks": f"{sum(lines):,}",
        "of tests; of benchmarks": f"{code('tests'):,}; {code('benchmarks'):,}",
        "modules; code lines of the longest": f"{len(graph)}; {max(lines)}",
        "imports between packages; with commands and tasks": (
            f"{arrows(library)}; {arrows(packages.keys() - FOUNDATION)}"
        ),
    }


def package_of(module: str) -> str:
    """Returns the node of a module in the graph of packages."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "bert_tf" and rest else top


def code_lines(file: pathlib.Path) -> int:
    """Counts lines other than blank lines, comments and docstrings."""
    numbers: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    with file.open("rb") as source:
        for token in tokenize.tokenize(source.readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                if [x.type for x in statement] != [tokenize.STRING]:
                    for x in statement:
                        numbers.update(range(x.start[0], x.end[0] + 1))
                statement = []
            elif token.type not in _NO_CODE and token.type != tokenize.ENCODING:
                statement.append(token)
    return len(numbers)


if __name__ == "__main__":
    cli.run(main, StructureConfig)
