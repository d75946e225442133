# Copyright 2026 The bert_tf Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the structure of a checkout: lines and imports.

    python -m benchmarks.structure
    python -m benchmarks.structure --path=/other/checkout,.

Prints one Markdown table with a column per checkout. Code lines exclude blank lines,
comments and docstrings. A lazy import counts like any other: a name that a package
offers in its `__init__.pyi` counts as an import of the module that defines it. Imports
for type checkers and of the foundation do not count. The import graph of packages has
one node for each package in `bert_tf`, for each module beside them, and for `tasks`.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import pathlib
import tokenize
from collections.abc import Iterable, Iterator, Set

from bert_tf import cli

# Modules that any other may import.
FOUNDATION = {"cli", "keras_private", "lazy", "storage"}

# The only imports that go up: `from_checkpoint` of these classes, inside the function.
# They are not part of the graph.
UPWARD = {
    "bert_tf.modeling.backbone": "bert_tf.checkpoints",
    "bert_tf.text.tokenizer": "bert_tf.checkpoints",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class StructureConfig(cli.Options):
    """Flags of `python -m benchmarks.structure`."""

    path: str = cli.option(".", help="Checkouts to measure, separated by commas.")


def main(options: StructureConfig) -> None:
    paths = options.path.split(",")
    columns = [measure(Checkout(path)) for path in paths]
    print(f"| | {' | '.join(paths)} |")
    print(f"|---|{'---|' * len(paths)}")
    for row in columns[0]:
        print(f"| {row} | {' | '.join(column[row] for column in columns)} |")


# --- Imports ---------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Import:
    """One name that a module imports.

    Attributes:
        line: Line of the import statement, or of the attribute access for names of an
            imported package.
        source: The module or package that the statement names.
        name: The name taken from `source`; empty if it is `source` itself.
        module: The module that defines the name. It differs from `source` where
            `source` is a package whose index lists the name.
        for_types: Whether only type checkers run the statement.
    """

    line: int
    source: str
    name: str
    module: str
    for_types: bool = False


class Checkout:
    """The Python modules of one checkout.

    Args:
        path: Root of the checkout.
        folders: Top-level packages to read.

    Attributes:
        modules: Dotted name -> file. A package has the file of its `__init__.py`.
        index: Package -> {name: module}, the names that a package lists in its
            `__init__.pyi`.
    """

    def __init__(
        self, path: str | pathlib.Path, folders: Iterable[str] = ("bert_tf", "tasks")
    ):
        self.root = pathlib.Path(path)
        self.modules = {
            _dotted_name(file.relative_to(self.root)): file
            for folder in folders
            for file in sorted((self.root / folder).rglob("*.py"))
        }
        self.index = {
            name: listed
            for name, file in self.modules.items()
            if (listed := _listed_names(name, file))
        }
        self.imports = functools.cache(self._imports)

    def is_package(self, name: str) -> bool:
        return name in self.modules and self.modules[name].name == "__init__.py"

    def _imports(self, module: str) -> list[Import]:
        """Returns everything that a module imports, anywhere in its file."""
        tree = _parse(self.modules[module])
        for_types = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If)
            and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for child in node.body
            for inner in ast.walk(child)
        }
        found, packages = [], {}
        for node in ast.walk(tree):
            types_only = id(node) in for_types
            for source, name, local in _imported_names(node):
                entry = self._resolve(node.lineno, source, name, types_only)
                found.append(entry)
                if self.is_package(entry.module):
                    packages[local] = entry.module
        for node in ast.walk(tree):
            chain = _attribute_chain(node)
            if len(chain) > 1 and chain[0] in packages:
                package, name = packages[chain[0]], chain[1]
                for deeper in chain[2:]:
                    if not self.is_package(f"{package}.{name}"):
                        break
                    package, name = f"{package}.{name}", deeper
                found.append(self._resolve(node.lineno, package, name, False))
        return [entry for entry in found if entry.source != UPWARD.get(module)]

    def _resolve(self, line: int, source: str, name: str, for_types: bool) -> Import:
        inner = f"{source}.{name}"
        if self.is_package(inner):
            return Import(line, inner, "", inner, for_types)
        if name in self.index.get(source, {}):
            module = self.index[source][name]
            return Import(line, source, name, module, for_types)
        if inner in self.modules:
            return Import(line, inner, "", inner, for_types)
        return Import(line, source, name, source, for_types)

    def dependencies(self, module: str) -> set[str]:
        """Returns the modules of the checkout that a module needs to run."""
        return {
            name
            for entry in self.imports(module)
            if not entry.for_types
            for name in (entry.source, entry.module)
            if name in self.modules and not self.is_package(name) and name != module
        }

    def closure(self, start: Iterable[str]) -> set[str]:
        """Returns `start` and all modules that it imports, directly or indirectly."""
        seen, waiting = set(), list(start)
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting.extend(self.dependencies(module))
        return seen


def _dotted_name(file: pathlib.PurePath) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def _parse(file: pathlib.Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _listed_names(module: str, file: pathlib.Path) -> dict[str, str]:
    """Returns {name: module that defines it} for the lazy names of `module`."""
    stub = file.with_suffix(".pyi")
    return {
        alias.asname or alias.name: (
            f"{module}.{alias.name}" if node.module == module else node.module
        )
        for node in (_parse(stub).body if stub.exists() else ())
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def _imported_names(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Yields (module, name in it, local name) of what an import statement imports."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            source, _, name = alias.name.rpartition(".")
            if alias.asname or not source:
                local = alias.asname or alias.name
                yield (source, name, local) if source else (name, "", local)
            else:
                yield source, name, ""
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield node.module, alias.name, alias.asname or alias.name
    elif isinstance(node, ast.Call) and node.args:
        function = ast.unparse(node.func).rpartition(".")[2]
        argument = node.args[0]
        if function in ("lazy_import", "import_module", "_Module") and isinstance(
            argument, ast.Constant
        ):
            source, _, name = argument.value.rpartition(".")
            yield (source, name, "") if source else (name, "", "")


def _attribute_chain(node: ast.AST) -> list[str]:
    """Returns ["a", "b", "c"] for `a.b.c`, and [] for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


# --- Measures --------------------------------------------------------------------


def measure(checkout: Checkout) -> dict[str, str]:
    """Returns the rows of the table for one checkout."""
    files = checkout.modules.values()
    graph = {
        module: checkout.dependencies(module)
        for module in checkout.modules
        if not checkout.is_package(module)
    }
    packages: dict[str, set[str]] = {}
    for module, targets in graph.items():
        others = set(map(node, targets)) - {node(module)} - FOUNDATION
        packages.setdefault(node(module), set()).update(others)
    library = {name for name in packages if checkout.is_package(f"bert_tf.{name}")}

    def arrows(nodes: Set[str]) -> int:
        return sum(len(packages[name] & nodes) for name in nodes)

    def code(folder: str) -> int:
        return sum(map(code_lines, (checkout.root / folder).rglob("*.py")))

    return {
        "code lines of bert_tf and tasks": f"{sum(map(code_lines, files)):,}",
        "of tests; of benchmarks": f"{code('tests'):,}; {code('benchmarks'):,}",
        "modules; code lines of the longest": (
            f"{len(graph)}; {max(map(code_lines, files))}"
        ),
        "imports between packages; with commands and tasks": (
            f"{arrows(library)}; {arrows(packages.keys() - FOUNDATION)}"
        ),
        "import cycles of modules": f"{len(cycles(graph))}",
    }


def node(module: str) -> str:
    """Returns the node of a module in the graph of packages."""
    top, _, rest = module.partition(".")
    return rest.partition(".")[0] if top == "bert_tf" and rest else top


def code_lines(file: pathlib.Path) -> int:
    """Counts lines other than blank lines, comments and docstrings."""
    numbers: set[int] = set()
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
    ignored |= {tokenize.DEDENT, tokenize.ENDMARKER}
    text = file.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in ignored:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for scope in ast.walk(_parse(file)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(scope, kinds) and ast.get_docstring(scope) is not None:
            docstring = scope.body[0]
            numbers.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(numbers)


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Returns the groups of nodes that import each other, directly or indirectly."""

    def reachable(start: str) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            for target in graph.get(waiting.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return seen

    reach = {start: reachable(start) for start in graph}
    groups: list[set[str]] = []
    for start, targets in reach.items():
        if start in targets and not any(start in group for group in groups):
            groups.append({name for name in targets if start in reach.get(name, ())})
    return groups


if __name__ == "__main__":
    cli.run(main, StructureConfig)
