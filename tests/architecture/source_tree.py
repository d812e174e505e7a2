# SPDX-License-Identifier: BSD-3-Clause
"""Reads the package's source once, with `ast`: which module imports what, late and type-only imports included.

All rules share one walk: a million nodes, sorted by kind.
"""

from __future__ import annotations

import ast
import functools
import gc
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.requirements import REPOSITORY

SOURCE = REPOSITORY / "src"
PACKAGE = SOURCE / "kedge"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported thing: a dotted name and the line that imports it."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    nodes: dict[type[ast.AST], list[Any]] = field(repr=False)
    imports: tuple[Import, ...] = field(repr=False)

    @property
    def shown(self) -> str:
        """The path as error messages print it."""
        return str(self.path.relative_to(REPOSITORY))

    def find(self, *kinds: type[ast.AST]) -> Iterator[Any]:
        """Its nodes of these kinds, one kind after the other."""
        for kind in kinds:
            yield from self.nodes.get(kind, ())

    def list_texts(self) -> Iterator[ast.Constant]:
        """Its texts that are no docstrings; the fixed parts of f-strings one by one."""
        documented = self.find(ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        first = [node.body[0] for node in documented if node.body]
        silent = {id(node.value) for node in first if isinstance(node, ast.Expr)}
        for node in self.find(ast.Constant):
            if isinstance(node.value, str) and id(node) not in silent:
                yield node


def parse_module(name: str, path: Path, text: str, is_package: bool, known: set[str]) -> Module:
    """One module, and its nodes by kind."""
    tree = ast.parse(text, str(path))
    nodes: dict[type[ast.AST], list[Any]] = defaultdict(list)
    for node in walk_tree(tree):
        nodes[type(node)].append(node)
    return Module(name, path, text, tree, nodes, tuple(_imports_of(nodes, name, is_package, known)))


def walk_tree(tree: ast.AST) -> Iterator[ast.AST]:
    """What `ast.walk` gives, in a third of its time: in the order of the source, and without the contexts of names."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        below: list[ast.AST] = []
        for field_name in node._fields:
            value = getattr(node, field_name, None)
            if isinstance(value, list):
                below += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and field_name != "ctx":
                below.append(value)
        waiting += reversed(below)


@functools.cache
def read_modules() -> dict[str, Module]:
    """Every module of the package by dotted name."""
    modules: dict[str, Module] = {}
    paths = sorted(PACKAGE.rglob("*.py"))
    names = {path: _dotted(path) for path in paths}
    known = set(names.values())
    gc.disable()  # it would look through all of them again and again
    for path in paths:
        modules[names[path]] = parse_module(names[path], path, path.read_text(), path.name == "__init__.py", known)
    gc.freeze()
    gc.enable()
    return modules


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(nodes: dict[type[ast.AST], list[Any]], module: str, is_package: bool, known: set[str]) -> list[Import]:
    found = [Import(alias.name, node.lineno) for node in nodes.get(ast.Import, ()) for alias in node.names]
    for node in nodes.get(ast.ImportFrom, ()):
        base = _absolute(node, module, is_package)
        for alias in node.names:
            deeper = f"{base}.{alias.name}"
            found.append(Import(deeper if deeper in known else base, node.lineno))
    for node in nodes.get(ast.Call, ()):
        if _called(node) == "import_module":
            found += [Import(a.value, node.lineno) for a in node.args[:1] if isinstance(a, ast.Constant)]
    return found


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    drop = node.level - 1 if is_package else node.level
    base = parts[: len(parts) - drop]
    return ".".join([*base, *([node.module] if node.module else [])])


def _called(node: ast.Call) -> str:
    target = node.func
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def dotted_call(node: ast.Call) -> str:
    """`os.fork` for `os.fork()`, `print` for `print()`, `` where the name is computed."""
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    return ".".join(reversed([*parts, target.id])) if isinstance(target, ast.Name) else ""
