# SPDX-License-Identifier: BSD-3-Clause
"""Calls and results as files: `call` is the function, `arguments[.INDEX]` what it gets, `result[.INDEX]` what came.

Reading a pickle can run anything, so both sides read only what the other wrote. The job's command has the digests of
what was submitted, and a result begins with a seal (HMAC-SHA256) by a key that only this process and the call have.
"""

from __future__ import annotations
import __future__

import ast
import errno
import hashlib
import hmac
import inspect
import io
import os
import pickle
import secrets
import symtable
import sys
import textwrap
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen
from kedge.errors import JobFailed, UsageError
from kedge.system.files import explained
from kedge.system.private_files import read_own_file

_PROTOCOL = 4  # which Python 3.4 reads
_RUNNER = "runner.py"
_SEAL = hashlib.sha256().digest_size
_MOST = 1 << 32  # bytes of a result, which is read into memory
# Started as `python3 -I -c BOOT FOLDER DIGEST DIGEST`: modules of the current directory are not for it, which the path
# begins with for -c, and has by empty and relative entries of PYTHONPATH (`:/x`). Python 3.13 imports before the first
# word of BOOT runs, so nothing of either is there at first, and what is absolute is added.
_BOOT = (
    "import os, site, sys; "
    "sys.path[:0] = [each for each in os.environ.get('PYTHONPATH', '').split(':') if each[:1] == '/']; "
    "own = site.getusersitepackages(); "
    "is_kept = sys.prefix == sys.base_prefix and not os.environ.get('PYTHONNOUSERSITE') and os.path.isdir(own); "
    "is_kept and site.addsitedir(own); "
    "import hashlib; "
    "code = open(sys.argv[1] + '/runner.py', 'rb').read(); "
    "hashlib.sha256(code).hexdigest() == sys.argv[2] or "
    "sys.exit('kedge: ' + sys.argv[1] + '/runner.py is not what was submitted, and is not run'); "
    "exec(compile(code, sys.argv[1] + '/runner.py', 'exec'))"
)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@frozen
class PackedCall:
    """A call that was written: what its job runs, and what is needed to believe its results."""

    words: tuple[str, ...]  # behind the name of the Python
    folders: tuple[str, ...]  # of the user, which it needs to see
    key: bytes


@frozen
class Answer:
    """What a task brought back: values, or the exception it raised."""

    values: tuple[Any, ...] = ()
    problem: BaseException | None = None


class _RemoteTraceback(Exception):
    """The traceback of a function that ran elsewhere, as the cause of the exception it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _Pickler(pickle.Pickler):
    """Notices what is defined in `__main__`: the other side has to define it first."""

    def __init__(self, file: io.BytesIO, capture: Capture) -> None:
        super().__init__(file, _PROTOCOL)
        self._capture = capture

    def reducer_override(self, thing: Any) -> Any:
        kind = thing if isinstance(thing, type) else type(thing)
        if kind.__module__ == "__main__":
            self._capture.add_source(kind)
        elif has_source(thing) and thing.__module__ == "__main__":
            self._capture.add_source(thing)
        elif has_source(thing) and is_importable(thing):
            self._capture.add_folder(thing.__module__)
        return NotImplemented


def write_call(folder: Path, function: Callable[..., Any], tasks: Sequence[Sequence[Arguments]]) -> PackedCall:
    """Write a call with one task or, for an array, many."""
    capture = Capture(_pack)
    module, name = capture.add_callable(function)
    packed = [_pack(capture, list(calls), f"an argument of '{name}'") for calls in tasks]
    key = secrets.token_bytes(_SEAL)
    call = {
        "module": module,
        "name": name,
        "definitions": capture.definitions,
        "folders": capture.folders,
        "python": sys.version_info[:2],
        "key": key,
    }
    files = {_RUNNER: Path(__file__).with_name(_RUNNER).read_bytes(), "call": pickle.dumps(call, _PROTOCOL)}
    for index, each in enumerate(packed):
        files[name_file("arguments", index if len(packed) > 1 else None)] = each
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items()).encode()
    with explained(folder):
        folder.mkdir(mode=0o700)
        for name, data in {**files, "sums": sums}.items():
            _write_new(folder / name, data)
    digests = (hashlib.sha256(data).hexdigest() for data in (files[_RUNNER], sums))
    return PackedCall(("-I", "-u", "-c", _BOOT, str(folder), *digests), tuple(capture.folders), key)


def _write_new(path: Path, data: bytes) -> None:
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
        file.write(data)


def name_file(kind: str, index: int | None) -> str:
    """`result`, or `result.3` of an array's task."""
    return kind if index is None else f"{kind}.{index}"


def read_answer(path: Path, key: bytes) -> Answer | None:
    """What a task brought back; None while there is nothing."""
    try:
        data = read_own_file(path, _MOST)
    except OSError as problem:
        is_foreign = problem.errno in (errno.EPERM, errno.ELOOP, errno.EFBIG)
        # else it is not there, or the file system is not well for a moment
        return _refuse(path, problem.strerror or str(problem)) if is_foreign else None
    seal, told = data[:_SEAL], memoryview(data)[_SEAL:]
    wanted = hmac.new(key, path.name.encode() + b"\0", hashlib.sha256)
    wanted.update(told)
    if not hmac.compare_digest(seal, wanted.digest()):
        return _refuse(path, "its seal is not that of this call")
    return _read_told(path, told)


def _refuse(path: Path, reason: str) -> Answer:
    """The answer in place of a result that somebody else wrote; it was not unpickled."""
    error = JobFailed(
        f"kedge does not read the result {path}: {reason}",
        context={"file": str(path)},
        hint="somebody or something other than the job wrote it; submit the call again",
    )
    return Answer(problem=error)


def _read_told(path: Path, data: memoryview) -> Answer:
    try:
        told = pickle.loads(data)
        if "values" not in told:
            return Answer(problem=_make_problem(told))
        return Answer(values=tuple(pickle.loads(each) for each in told["values"]))
    except Exception as problem:
        error = JobFailed(
            f"the function completed, but its result cannot be read here: {problem}",
            context={"file": str(path)},
            hint="return plain values, or install here what the result is made of",
        )
        return Answer(problem=error)


def _make_problem(told: dict[str, Any]) -> BaseException:
    try:
        problem: BaseException = pickle.loads(told["problem"])
    except Exception:  # its class is not here, or it could not travel
        problem = JobFailed(f"the function raised {told['kind']}", hint="its traceback stands below")
    problem.__cause__ = _RemoteTraceback(str(told["traceback"]))
    return problem


def _pack(capture: Capture, value: object, what: str) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, capture).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as problem:
        raise UsageError(f"{what} cannot be sent to a job: {problem}", hint="send plain values or file names") from None
    return file.getvalue()


# What a function needs to be made again elsewhere: its module's name, or its source and what that mentions.

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
