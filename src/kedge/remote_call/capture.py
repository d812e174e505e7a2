# SPDX-License-Identifier: BSD-3-Clause
"""What a function needs to be made again elsewhere: its module's name, or its source and what that mentions."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kedge.errors import UsageError

# kind (module, source, alias or value), name, and the module's name, the source, the other name or the pickled value
Definition = tuple[str, str, str | bytes]
_BUILTINS = frozenset(dir(builtins))


class Capture:
    """Collects definitions in an order in which each stands after those it needs."""

    def __init__(self, pack: Callable[[Capture, object, str], bytes]) -> None:
        self.definitions: list[Definition] = []
        self._pack = pack
        self.folders: list[str] = []  # where modules of the user lie
        self._seen: set[str] = set()

    def add_callable(self, function: Callable[..., Any]) -> tuple[str, str]:
        """Capture a function or class; returns the module and the name to call it by."""
        if isinstance(function, types.MethodType) or not hasattr(function, "__qualname__"):
            raise UsageError(
                f"{function!r} cannot be sent to a job: it is no function of a module",
                hint="write a plain function that calls it",
            )
        if is_importable(function):
            self.add_folder(function.__module__)
            return function.__module__, function.__qualname__
        self.add_source(function)
        return "__main__", function.__name__

    def add_source(self, thing: Any) -> None:
        """Capture something of `__main__`, or of a function's inside, by its source."""
        name = thing.__name__
        if name in self._seen:
            return
        self._seen.add(name)
        source, tree = read_source(thing)
        known = {**getattr(thing, "__globals__", vars(sys.modules["__main__"])), **_read_closure(thing)}
        for mentioned in sorted(_find_names(tree) - {name}):
            if mentioned in known:
                self.add_mentioned(mentioned, known[mentioned])
        self.definitions.append(("source", name, source))

    def add_mentioned(self, name: str, value: Any) -> None:
        """Capture what a source mentions."""
        if isinstance(value, types.ModuleType):
            self.add_folder(value.__name__)
            self._define("module", name, value.__name__)
        elif isinstance(value, types.FunctionType | type) and not is_importable(value):
            self.add_source(value)
            if value.__name__ != name:
                self._define("alias", name, value.__name__)
        elif name not in self._seen:
            self._seen.add(name)
            self.definitions.append(("value", name, self._pack(self, value, f"the value '{name}'")))

    def add_folder(self, module: str) -> None:
        """Remember where a module of the user lies; what is installed is the image's business."""
        top = sys.modules.get(module.partition(".")[0])
        file = getattr(top, "__file__", None)
        if not file or "site-packages" in file or "dist-packages" in file or is_standard(module):
            return
        path = Path(file).resolve()
        folder = str(path.parent.parent if path.name == "__init__.py" else path.parent)
        if folder not in self.folders:
            self.folders.append(folder)

    def _define(self, kind: str, name: str, text: str) -> None:
        if name not in self._seen:
            self._seen.add(name)
            self.definitions.append((kind, name, text))


def is_importable(thing: Any) -> bool:
    """Whether another Python finds it by its module's name."""
    module = sys.modules.get(getattr(thing, "__module__", "") or "")
    if module is None or module.__name__ in ("__main__", "__mp_main__"):
        return False
    if getattr(module, "__file__", None) is None and not is_standard(module.__name__):
        return False
    found: Any = module
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def is_standard(module: str) -> bool:
    """Whether every Python has it."""
    return module.partition(".")[0] in sys.stdlib_module_names


def read_source(thing: Any) -> tuple[str, ast.Module]:
    """The source of a function or class, and its tree."""
    if getattr(thing, "__name__", "") == "<lambda>":
        raise UsageError("a lambda has no source of its own to send to a job", hint="write it as a function with 'def'")
    try:
        source = textwrap.dedent(inspect.getsource(thing))
        return source, ast.parse(source)
    except (OSError, TypeError, SyntaxError) as problem:
        raise UsageError(
            f"the source of '{thing.__name__}' was not found, and a job needs it: {problem}",
            hint="put it into a module beside your code and import it from there",
        ) from None


def _find_names(tree: ast.Module) -> set[str]:
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - _BUILTINS


def _read_closure(thing: Any) -> dict[str, Any]:
    code, cells = getattr(thing, "__code__", None), getattr(thing, "__closure__", None)
    if code is None or not cells:
        return {}
    found = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet: a function that mentions itself
            continue
    return found
