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
import functools
import pathlib
import tokenize
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchmarks import measure
from bert_tf import cli

# Modules that any other may import.
FOUNDATION = {"cli", "families", "keras_private", "lazy", "storage", "text_files"}

# The only modules that import upwards: `from_checkpoint` of their classes imports
# `checkpoints` when it is called. These imports are not part of the graph.
UPWARD = {"bert_tf.modeling.backbone", "bert_tf.text.tokenizer"}

_LAZY = ("lazy_import", "import_module")


def main(_: cli.Options) -> None:
    measure.print_table("|", structure(Checkout(".")))


class Import(NamedTuple):
    """A name that a module imports, anywhere in its file.

    Attributes:
        line: Line of the import, or of the access to an attribute of a package.
        local: Name in the module; empty for lazy imports and attributes.
        name: Dotted name, such as "tensorflow" or "bert_tf.data.read_table".
    """

    line: int
    local: str
    name: str


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
        self.modules, self.index = {}, {}
        for file in (f for x in folders for f in sorted((self.root / x).rglob("*.py"))):
            parts = file.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            self.modules[name] = file
            if (stub := file.with_suffix(".pyi")).exists():
                self.index[name] = {x.local: x.name for x in _names(_parse(stub))}
        self.imports = functools.cache(self._imports)

    def _imports(self, module: str) -> list[Import]:
        tree = _parse(self.modules[module])
        is_package = self.modules[module].stem == "__init__"
        found = [*_names(tree, module if is_package else module.rpartition(".")[0])]
        packages = {x.local: x.name for x in found if x.name in self.index}
        for node in ast.walk(tree):
            first, *attributes = _attributes(node)
            if attributes and first in packages:
                name = ".".join([packages[first], *attributes])
                found.append(Import(node.lineno, "", name))
        upward = {"checkpoints"} if module in UPWARD else set()
        return [entry for entry in found if package_of(entry.name) not in upward]

    def module_of(self, name: str) -> str:
        """Returns the module that defines a dotted name; empty if it is elsewhere."""
        module, last = name, ""
        while module and module not in self.modules:
            module, _, last = module.rpartition(".")
        listed = self.index.get(module, {})
        return self.module_of(listed[last]) if last in listed else module

    def graph(self) -> dict[str, set[str]]:
        """Returns the modules that each module, other than an `__init__`, needs.

        Imports for type checkers do not count.
        """
        modules = {m for m, file in self.modules.items() if file.stem != "__init__"}
        found = {}
        for module in modules:
            types_only = {
                line
                for node in ast.walk(_parse(self.modules[module]))
                if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
                for line in range(node.lineno, node.end_lineno + 1)
            }
            needed = (x for x in self.imports(module) if x.line not in types_only)
            found[module] = {self.module_of(x.name) for x in needed} & modules
            found[module].discard(module)
        return found


@functools.cache
def _parse(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _names(tree: ast.Module, package: str = "") -> Iterator[Import]:
    """Yields the imports of a file in `package`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            source = ""
            if isinstance(node, ast.ImportFrom):
                parts = (package if node.level else "", node.module)
                source = "".join(f"{part}." for part in parts if part)
            for alias in node.names:
                name = source + alias.name
                yield Import(node.lineno, alias.asname or alias.name, name)
        elif (
            isinstance(node, ast.Call)
            and _attributes(node.func)[-1] in _LAZY
            and isinstance(node.args[0], ast.Constant)
        ):
            yield Import(node.lineno, "", node.args[0].value)


def _attributes(node: ast.AST) -> list[str]:
    """Returns ["a", "b", "c"] for `a.b.c`, and [""] for any other expression."""
    if isinstance(node, ast.Attribute):
        return [*_attributes(node.value), node.attr]
    return [node.id if isinstance(node, ast.Name) else ""]


# --- Measures --------------------------------------------------------------------


def structure(checkout: Checkout) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table."""

    def code(folder: str) -> int:
        return sum(map(code_lines, (checkout.root / folder).rglob("*.py")))

    lines, graph = [*map(code_lines, checkout.modules.values())], checkout.graph()
    yield "code lines of bert_tf and tasks", f"{sum(lines):,}"
    yield "of tests; of benchmarks", f"{code('tests'):,}; {code('benchmarks'):,}"
    yield "modules; code lines of the longest", f"{len(graph)}; {max(lines)}"
    arrows = {
        tuple(map(package_of, (m, x))) for m, needed in graph.items() for x in needed
    }
    arrows = {(a, b) for a, b in arrows if a != b and not FOUNDATION & {a, b}}
    library = {name.removeprefix("bert_tf.") for name in checkout.index}
    inside = sum(library.issuperset(arrow) for arrow in arrows)
    title = "imports between packages; with commands and tasks"
    yield title, f"{inside}; {len(arrows)}"


def package_of(module: str) -> str:
    """Returns the node of a module in the graph of packages."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "bert_tf" and rest else top


_ENDS = (tokenize.ENCODING, tokenize.NEWLINE, tokenize.ENDMARKER)  # Of statements.
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)


def code_lines(file: pathlib.Path) -> int:
    """Counts lines other than blank lines, comments and docstrings."""
    with file.open("rb") as source:
        tokens = tokenize.tokenize(source.readline)
        tokens = [token for token in tokens if token.type not in _NO_CODE]
    numbers: set[int] = set()
    for before, token, after in zip(tokens, tokens[1:], tokens[2:]):
        is_alone = before.type in _ENDS and after.type in _ENDS
        if token.type not in _ENDS and not (is_alone and token.type == tokenize.STRING):
            numbers.update(range(token.start[0], token.end[0] + 1))
    return len(numbers)


if __name__ == "__main__":
    cli.run(main, cli.Options)
