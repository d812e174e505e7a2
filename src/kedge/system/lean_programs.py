# SPDX-License-Identifier: BSD-3-Clause
"""Starts a program without `subprocess`, whose import costs a submission more than the program does."""

from __future__ import annotations

import os

from kedge.base.frozen import frozen
from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.files import explained
from kedge.system.programs import find_program
from kedge.system.spawn import list_inherited

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any
else:
    import _signal  # `signal` itself imports enum


@frozen
class Finished:
    """How a program ended and what it said."""

    argv: tuple[str, ...]
    status: int  # as a shell shows it: 128 + N after signal N
    output: bytes
    errors: bytes

    @property
    def text(self) -> str:
        """The output as text; bytes that are no UTF-8 are shown as question marks."""
        return self.output.decode(errors="replace")


def require_program(name: str) -> str:
    """The path of a program; raises ProgramMissing."""
    path = find_program(name)
    if path is None:
        searched = os.environ.get("PATH", "")
        is_open = any(not folder.startswith("/") for folder in searched.split(":"))
        raise ProgramMissing(
            f"the program '{name}' is not installed on this host",
            context={"PATH": searched},
            hint="kedge skips empty and relative entries of PATH: they mean the current directory" if is_open else None,
        )
    return path


def run_into_files_here(argv: Sequence[str], output: Path, errors: Path, environment: Mapping[str, str]) -> Finished:
    """`process.run_into_files` in the current directory, which posix_spawn(3) cannot change."""
    path = require_program(argv[0])
    interrupt: BaseException | None = None
    with explained(output), output.open("wb") as out, errors.open("wb") as err:
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, out.fileno(), 1),
            (os.POSIX_SPAWN_DUP2, err.fileno(), 2),
            *((os.POSIX_SPAWN_CLOSE, file) for file in list_inherited()),  # a daemon would keep our caller's pipes open
        ]
        # an interrupt between the start and the wait would lose the program
        mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT,))
        try:
            child = _spawn_apart(path, argv, environment, files, mask)
        except OSError as problem:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
            raise ProgramFailed(f"'{argv[0]}' could not be started: {problem.strerror}") from problem
        code: int | None = None
        while code is None:
            try:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            except KeyboardInterrupt as problem:
                interrupt = problem
    if interrupt is not None:
        raise interrupt
    return Finished(tuple(argv), code if code >= 0 else 128 - code, output.read_bytes(), errors.read_bytes())


def _spawn_apart(
    path: str, argv: Sequence[str], environment: Mapping[str, str], files: Sequence[Any], mask: Any
) -> int:
    """Start it where Ctrl-C at our terminal does not reach it: in a session of its own."""

    def spawn(**apart: Any) -> int:
        default = (_signal.SIGPIPE, _signal.SIGXFSZ)  # Python ignores them
        words = [path, *argv[1:]]
        return os.posix_spawn(path, words, environment, file_actions=files, setsigmask=mask, setsigdef=default, **apart)

    try:
        return spawn(setsid=True)
    except NotImplementedError:  # a Python that was built with a C library before 2.26
        return spawn(setpgroup=0)
