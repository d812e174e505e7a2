# SPDX-License-Identifier: BSD-3-Clause
"""Reads the package's source once, with `ast`: which module imports what, late and type-only imports included."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass, field
from pathlib import Path

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
    imports: tuple[Import, ...] = field(repr=False)

    @property
    def shown(self) -> str:
        """The path as error messages print it."""
        return str(self.path.relative_to(REPOSITORY))


@functools.cache
def read_modules() -> dict[str, Module]:
    """Every module of the package by dotted name."""
    modules: dict[str, Module] = {}
    paths = sorted(PACKAGE.rglob("*.py"))
    names = {path: _dotted(path) for path in paths}
    for path in paths:
        text = path.read_text()
        tree = ast.parse(text, str(path))
        imports = tuple(_imports_of(tree, names[path], path.name == "__init__.py", set(names.values())))
        modules[names[path]] = Module(names[path], path, text, tree, imports)
    return modules


def _dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(tree: ast.Module, module: str, is_package: bool, known: set[str]) -> list[Import]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package)
            for alias in node.names:
                deeper = f"{base}.{alias.name}"
                found.append(Import(deeper if deeper in known else base, node.lineno))
        elif isinstance(node, ast.Call) and _called(node) == "import_module":
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
