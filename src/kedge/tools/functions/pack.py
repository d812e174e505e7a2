# SPDX-License-Identifier: BSD-3-Clause
"""Calls and results as files: `call` is the function, `arguments[.INDEX]` what it gets, `result[.INDEX]` what came.

Reading a pickle can run anything, so both sides read only what the other wrote. The job's command has the digests of
what was submitted, and a result begins with a seal (HMAC-SHA256) by a key that only this process and the call have.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import io
import os
import pickle
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kedge.base.frozen import frozen
from kedge.errors import JobFailed, UsageError
from kedge.system.files import explained
from kedge.system.private_files import read_own_file
from kedge.tools.functions.capture import Capture, has_source, is_importable

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
