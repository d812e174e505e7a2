# SPDX-License-Identifier: BSD-3-Clause
"""Calls and results as files: `call` is the function, `arguments[.INDEX]` what it gets, `result[.INDEX]` what came."""

from __future__ import annotations

import io
import pickle
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kedge.errors import JobFailed, UsageError
from kedge.frozen import frozen
from kedge.posix.files import explained
from kedge.remote_call.capture import Capture, has_source, is_importable

_PROTOCOL = 4  # which Python 3.4 reads
RUNNER = "runner.py"
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@frozen
class Answer:
    """What a task brought back: values, or the exception it raised."""

    values: tuple[Any, ...] = ()
    problem: BaseException | None = None


class RemoteTraceback(Exception):
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


def write_call(folder: Path, function: Callable[..., Any], tasks: Sequence[Sequence[Arguments]]) -> list[str]:
    """Write a call with one task or, for an array, many; returns the folders of the user that it needs to see."""
    capture = Capture(_pack)
    module, name = capture.add_callable(function)
    packed = [_pack(capture, list(calls), f"an argument of '{name}'") for calls in tasks]
    call = {
        "module": module,
        "name": name,
        "definitions": capture.definitions,
        "folders": capture.folders,
        "python": sys.version_info[:2],
    }
    with explained(folder):
        folder.mkdir(parents=True, mode=0o700)
        (folder / "call").write_bytes(pickle.dumps(call, _PROTOCOL))
        for index, each in enumerate(packed):
            (folder / name_file("arguments", index if len(packed) > 1 else None)).write_bytes(each)
        shutil.copyfile(Path(__file__).with_name(RUNNER), folder / RUNNER)
    return capture.folders


def name_file(kind: str, index: int | None) -> str:
    """`result`, or `result.3` of an array's task."""
    return kind if index is None else f"{kind}.{index}"


def read_answer(path: Path) -> Answer | None:
    """What a task brought back; None while there is nothing."""
    try:
        data = path.read_bytes()
    except OSError:  # not there, or a file system that is not well for a moment
        return None
    try:
        told = pickle.loads(data)
        if "values" not in told:
            return Answer(problem=_make_problem(told))
        return Answer(values=tuple(pickle.loads(each) for each in told["values"]))
    except Exception as problem:
        error = JobFailed(
            f"the function ended well, but its result cannot be read here: {problem}",
            context={"file": str(path)},
            hint="return plain values, or install here what the result is made of",
        )
        return Answer(problem=error)


def _make_problem(told: dict[str, Any]) -> BaseException:
    try:
        problem: BaseException = pickle.loads(told["problem"])
    except Exception:  # its class is not here, or it could not travel
        problem = JobFailed(f"the function raised {told['kind']}", hint="its traceback stands below")
    problem.__cause__ = RemoteTraceback(str(told["traceback"]))
    return problem


def _pack(capture: Capture, value: object, what: str) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, capture).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as problem:
        raise UsageError(f"{what} cannot be sent to a job: {problem}", hint="send plain values or file names") from None
    return file.getvalue()
