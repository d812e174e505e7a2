# SPDX-License-Identifier: BSD-3-Clause
"""What a function needs to be made again elsewhere: its module's name, or its source and what that mentions."""

from __future__ import annotations
import __future__

import ast
import inspect
import symtable
import sys
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kedge.errors import UsageError

# kind (module, source, alias or value), name, and the module's name, the source, the other name or the pickled value
Definition = tuple[str, str, str | bytes]
_COMPREHENSIONS = ("listcomp", "setcomp", "dictcomp", "genexpr")  # functions that run where they stand
_PLAIN = (str, bytes, int, float, complex, type(None))


class Capture:
    """Collects definitions in an order in which each stands after those it needs."""

    def __init__(self, pack: Callable[[Capture, object, str], bytes]) -> None:
        self.definitions: list[Definition] = []
        self._pack = pack
        self.folders: list[str] = []  # where modules of the user lie
        self._known: dict[str, Any] = {}  # what each name stands for

    def add_callable(self, function: Callable[..., Any]) -> tuple[str, str]:
        """Capture a function or class; returns the module and the name to call it by."""
        if isinstance(function, types.MethodType) or not hasattr(function, "__qualname__"):
            raise UsageError(
                f"{function!r} cannot be sent to a job: it is no function of a module",
                hint="write a plain function that calls it",
            )
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UsageError(
                f"'{function.__name__}' cannot be sent to a job: what it returns has only begun to run",
                hint="write a function that runs it to its end, and returns a list or the value",
            )
        if is_importable(function):
            self.add_folder(function.__module__)
            return function.__module__, function.__qualname__
        self.add_source(function)
        return "__main__", function.__name__ if "<locals>" in function.__qualname__ else function.__qualname__

    def add_source(self, thing: Any) -> None:
        """Capture something of `__main__`, or of a function's inside, by its source."""
        thing = _find_outermost(thing)
        name = thing.__name__
        if not self._is_new(name, thing):
            return
        plain = inspect.unwrap(thing)
        known = {**_find_globals(plain), **_read_closure(plain)}
        source = read_source(thing)
        if known.get("annotations") is __future__.annotations:
            source = f"from __future__ import annotations\n{source}"
        first, later = _find_names(source)
        self._add_names(first - {name}, known)
        self.definitions.append(("source", name, source))
        self._add_names(later - first - {name}, known)  # behind it: a class may mention those that inherit from it

    def _add_names(self, names: set[str], known: dict[str, Any]) -> None:
        for name in sorted(names & known.keys()):
            self.add_mentioned(name, known[name])

    def add_mentioned(self, name: str, value: Any) -> None:
        """Capture what a source mentions."""
        if isinstance(value, types.ModuleType):
            if self._is_new(name, value):
                self.add_folder(value.__name__)
                self.definitions.append(("module", name, value.__name__))
        elif has_source(value) and not is_importable(value):
            self.add_source(value)
            if value.__name__ != name and self._is_new(name, value):
                self.definitions.append(("alias", name, value.__name__))
        elif self._is_new(name, value):
            self.definitions.append(("value", name, self._pack(self, value, f"the value '{name}'")))

    def add_folder(self, module: str) -> None:
        """Remember where a module of the user lies; what is installed is the image's business."""
        top = sys.modules.get(module.partition(".")[0])
        file = getattr(top, "__file__", None)
        if not file or "site-packages" in file or "dist-packages" in file or _is_standard(module):
            return
        path = Path(file).resolve()
        folder = str(path.parent.parent if path.name == "__init__.py" else path.parent)
        if folder not in self.folders:
            self.folders.append(folder)

    def _is_new(self, name: str, value: Any) -> bool:
        """Whether a name is still to be defined; all of them share one module on the other side."""
        if name not in self._known:
            self._known[name] = value
            return True
        before = self._known[name]
        is_same = before is value or (type(before) is type(value) and isinstance(value, _PLAIN) and before == value)
        if not is_same:
            raise UsageError(
                f"the name '{name}' has two different values in the call",
                hint="give one of them another name; a decorator keeps names apart with functools.wraps",
            )
        return False


def has_source(value: Any) -> bool:
    """Whether a value is a function or class, or one that a decorator wrapped and says so."""
    wrapped = getattr(value, "__wrapped__", None) if callable(value) else None
    return isinstance(value, types.FunctionType | type) or isinstance(wrapped, types.FunctionType)


def is_importable(thing: Any) -> bool:
    """Whether another Python finds it by its module's name."""
    module = sys.modules.get(getattr(thing, "__module__", "") or "")
    if module is None or module.__name__ in ("__main__", "__mp_main__"):
        return False
    if getattr(module, "__file__", None) is None and not _is_standard(module.__name__):
        return False
    found: Any = module
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def _is_standard(module: str) -> bool:
    """Whether every Python has it."""
    return module.partition(".")[0] in sys.stdlib_module_names


def read_source(thing: Any) -> str:
    """Return the source of a function or class as it is: without the decorators that made another thing of it."""
    if getattr(thing, "__name__", "") == "<lambda>":
        raise UsageError("a lambda has no source of its own to send to a job", hint="write it as a function with 'def'")
    try:
        source = textwrap.dedent(inspect.getsource(thing))
        node = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError) as problem:
        raise UsageError(
            f"the source of '{thing.__name__}' was not found, and a job needs it: {problem}",
            hint="put it into a module beside your code and import it from there",
        ) from None
    if isinstance(thing, types.FunctionType) and not hasattr(thing, "__wrapped__"):
        return "".join(source.splitlines(keepends=True)[node.lineno - 1 :])
    return source


def _find_names(source: str) -> tuple[set[str], set[str]]:
    """Global names that are looked up when the source is executed, and those when its functions are called."""
    first: set[str] = set()
    later: set[str] = set()
    tables = [(symtable.symtable(source, "<source>", "exec"), first)]
    while tables:
        table, names = tables.pop()
        if table.get_type() == "function" and table.get_name() not in _COMPREHENSIONS:
            names = later
        names.update(each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global())
        tables += [(child, names) for child in table.get_children()]
    return first, later


def _find_outermost(thing: Any) -> Any:
    """The class that a class or function stands in, which is what has a name in its module."""
    name, dot, _ = thing.__qualname__.partition(".")
    return (
        getattr(sys.modules[thing.__module__], name) if dot and name and "<locals>" not in thing.__qualname__ else thing
    )


def _find_globals(thing: Any) -> dict[str, Any]:
    found: dict[str, Any] = getattr(thing, "__globals__", None) or vars(sys.modules[thing.__module__])
    return found


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
