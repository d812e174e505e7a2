# SPDX-License-Identifier: BSD-3-Clause
"""Processes without the machinery of `subprocess`, for the path of every container start."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum

ELFMAG = b"\x7fELF"  # <elf.h>: how what the kernel starts begins, unless it is a script
HELD = "KEDGE_SIGNALS_HELD"  # a variable, from the start of a kedge by a kedge to the moment when that one listens
_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


def replace_process(path: str | int, argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """execve(2): become another program, by its path or an open file; raises OSError when that fails."""
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)  # Python ignores them, and what is ignored stays so in a new program
    os.execve(path, list(argv), environ)


def fork_process() -> int:
    """fork(2): 0 in the child, the child's number in the parent; raises LimitReached."""
    try:
        return os.fork()
    except OSError as problem:
        raise _refuse_process(problem.errno or 0) from problem


def _refuse_process(number: int) -> Exception:
    from kedge.errors import LimitReached  # late: only for an error

    return LimitReached(
        f"cannot start another process: {os.strerror(number)}",
        hint="end other programs, or raise the limit: 'ulimit -u' shows the user's, the batch system has the job's",
    )


def run_detached(work: Callable[[], None]) -> None:
    """Run `work` in a process that is nobody's child here: no wait of a later program ever meets it.

    `work` normally ends by becoming another program.
    """
    if fork_detached():
        try:
            work()
        finally:
            os._exit(0)


def fork_detached() -> bool:
    """A process that is nobody's child here: True in it, False in the caller. The one in between is waited for."""
    middle = fork_process()
    if middle == 0:
        number = 0
        try:
            if os.fork() == 0:
                return True
        except OSError as problem:
            number = problem.errno or 0
        os._exit(number)
    number = os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1])
    if number > 0:
        raise _refuse_process(number)
    return False


def list_private() -> list[int]:
    """The open files that a new program would not have: a process that becomes none should let go of them itself."""
    return [file for file, is_kept in _list_files() if not is_kept]


def list_inherited() -> list[int]:
    """The open files beside the standard streams that this process was started with, or means a new program to have."""
    return [file for file, is_kept in _list_files() if is_kept]


def list_inherited_directories() -> list[int]:
    """Return inherited descriptors of directories: each is a way into the tree it lies in."""
    return [file for file in list_inherited() if stat.S_ISDIR(os.fstat(file).st_mode)]


def _list_files() -> list[tuple[int, bool]]:
    files: list[tuple[int, bool]] = []
    try:
        names = os.listdir("/proc/self/fd")  # noqa: PTH208 - pathlib costs more than all of this module
    except OSError:
        return files  # no /proc, or one where this process is not
    for name in names:
        try:
            if int(name) > 2:
                files.append((int(name), os.get_inheritable(int(name))))
        except OSError:
            continue  # that of the listing itself
    return files


def close_all(files: list[int]) -> None:
    """Close them, also those that are closed already."""
    for file in files:
        try:
            os.close(file)
        except OSError:
            continue


def start_of(pid: int) -> int:
    """The start time of a process; 0 when unknown, -1 when it is dead but not yet waited for."""
    fields = _read_stat(pid)
    try:
        return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
    except (ValueError, IndexError):
        return 0


def parent_of(pid: int) -> int:
    """The parent of a process, 0 when it is in another process-id namespace; -1 when the process is gone."""
    fields = _read_stat(pid)
    return int(fields[1]) if len(fields) > 1 else -1


def _read_stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat behind the name, which may hold anything."""
    try:
        file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(file, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(file)


def run_attached(
    argv: Sequence[str], environ: Mapping[str, str], *, quiet: bool = False, is_kedge: bool = False
) -> int:
    """Run a program to its end; its status as a shell shows it. What it prints goes to standard error, or nowhere.

    Signals that come while another kedge starts wait until it listens: SIGINT would be a traceback of Python's.
    """
    # Whoever wants us to end means the child, which cleans up; we wait for that, as a shell does.
    held = HeldSignals()
    try:
        child = fork_process()
    except BaseException:
        held.release()
        raise
    if child == 0:
        try:
            if is_kedge:
                environ = {**environ, HELD: "1"}
            else:
                held.release()
            if quiet:
                os.dup2(os.open(os.devnull, os.O_RDWR), 2)
            os.dup2(2, 1)  # standard output belongs to the program that will run in the container
            os.execve(argv[0], list(argv), environ)
        finally:
            os._exit(127)
    try:
        return held.pass_to(child)
    finally:
        held.release()


def listen_again() -> None:
    """In a kedge that was started with its signals held back: they come now."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (*_ENDING, _signal.SIGCHLD))


class HeldSignals:
    """The signals that ask a process to end, held back from here on, and passed to a child while it runs.

    A handler of Python runs between two steps of the program: a signal that comes just before the wait for a child
    begins would not end that wait. One that is held back stays until it is asked for.
    """

    def __init__(self) -> None:
        from kedge.system.undivided import settle_signals  # late: few starts of containers have such a child

        settle_signals()
        ending = {number for number in _ENDING if _signal.getsignal(number) != _signal.SIG_IGN}
        self._child_action = _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # ignored, it would never come
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, {*ending, _signal.SIGCHLD})
        self._awaited = (ending - self._mask) | {_signal.SIGCHLD}

    def pass_to(self, child: int) -> int:
        """Wait for the child's end; its status as a shell shows it."""
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            number = _signal.sigwait(self._awaited)
            if number != _signal.SIGCHLD:
                os.kill(child, number)

    def release(self) -> None:
        """Restore signals as before; what is still held back comes now."""
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask)
        if self._child_action is not None:
            _signal.signal(_signal.SIGCHLD, self._child_action)
