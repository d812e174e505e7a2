# SPDX-License-Identifier: BSD-3-Clause
"""Starts the program by way of a small program in memory (`posix.memory_program`), where the user owns the interpreter.

The container's program could otherwise change that interpreter through /proc. The program in memory can neither search
PATH nor explain a failure. So the file is chosen and checked here: where the kernel is likely to refuse it, a second
process stays to say why.
"""

from __future__ import annotations

import errno
import os

from kedge.container.mounting import refuse_text
from kedge.system.elf import ElfDamage, ElfFile
from kedge.system.memory_program import StartAttempt, hand_over, is_own_program
from kedge.system.spawn import ELFMAG

_GLANCE = 4096
_MUCH = 64 << 10  # bytes of arguments and variables, of which the kernel may take no more
_SHELL = "/bin/sh"


class ExecFromMemory:
    """`start_program` calls it with the paths along PATH, arguments and variables; returns why nothing was started."""

    def __init__(self, *, explains: bool) -> None:
        self._explains = explains  # always, and not only where the kernel is likely to refuse

    def __call__(self, paths: list[str], arguments: list[str], environ: dict[str, str]) -> OSError:
        """Become the first program that may be executed."""
        number, place = errno.ENOENT, None
        for path in paths:
            if _is_executable(path):
                break
            if os.path.lexists(path):
                number, place = errno.EACCES if os.path.exists(path) else errno.ENOENT, path
        else:
            return OSError(number, os.strerror(number), place)
        start = _read_start(path)
        try:
            attempts = [StartAttempt(path, [path, *arguments], environ)]
            if start and start[:2] != b"#!" and not start.startswith(ELFMAG):  # the shell's business, as in every shell
                attempts.append(StartAttempt(_SHELL, [_SHELL, path, *arguments], environ))
        except ValueError:
            return refuse_text()
        is_doubtful = self._explains or attempts[0].size > _MUCH or not _looks_fit(start)
        problem = hand_over(attempts, "" if is_doubtful else _complain(path))
        problem.filename = path
        return problem


def explain_exposure() -> Exception:
    """The error where an image could get hold of the interpreter's file, and is to be contained."""
    from kedge.errors import CannotStart  # late: only for an error

    return CannotStart(
        f"--contain cannot protect {os.path.realpath('/proc/self/exe')}, the Python that runs kedge: this host does "
        "not allow starting programs from memory",
        hint="install kedge with the system's Python, set vm.memfd_noexec to 0 or 1, or leave out --contain",
    )


def _complain(path: str) -> str:
    """The message for a program that looked fine and was not started."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in path)
    return f"kedge: cannot start {shown} in the container: the kernel refused it\n"


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _read_start(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_GLANCE)
    except OSError:
        return b""


def _looks_fit(start: bytes) -> bool:
    """Whether the kernel is likely to start a file that begins so: its interpreter or dynamic loader is there."""
    if start[:2] == b"#!":
        words = start[2:].split(b"\n")[0].split()
        return bool(words) and _is_executable(os.fsdecode(words[0]))
    if not start.startswith(ELFMAG):
        return bool(start) and _is_executable(_SHELL)
    try:
        file = ElfFile(lambda size, offset: start[offset : offset + size])
        loader = file.read_interpreter(file.read_segments())
    except ElfDamage:  # or what it names lies behind what was read
        return False
    return is_own_program(file) and (not loader or _is_executable(loader))
