# SPDX-License-Identifier: BSD-3-Clause
"""The one place that starts other programs: argument lists, never shell strings."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from kedge.errors import ProgramFailed
from kedge.system.files import explained
from kedge.system.lean_programs import Finished, require_program
from kedge.system.outside import Outside, close_options
from kedge.system.programs import find_program
from kedge.system.undivided import Undivided

TYPE_CHECKING = False  # as typing has it, whose import costs every start
if TYPE_CHECKING:
    from typing import IO, Any, BinaryIO

_MOMENT = 0.2  # seconds between two looks whether a program is to be ended
_GRACE = 3.0  # seconds that a program gets to end by itself
_WAKE = signal.SIGURG  # which does nothing where it is not caught
_WAKING = (0.01, 0.03, 0.1, 0.3, *(1.0 for _ in range(60)))  # seconds after each attempt: a busy host may sleep long


def run_program(
    argv: Sequence[str],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = True,
    capture: bool = True,
    descriptors: Sequence[int] = (),
    name: str = "",
    outside: Sequence[Outside] = (),
) -> Finished:
    """Run a program to its end and collect what it prints; raises ProgramMissing or, with `check`, ProgramFailed.

    Without `capture` it has our own standard streams. `descriptors` are open files that it gets. `name` is what
    messages call it. The words of `outside` stand behind `--`.
    """
    argv = close_options(argv, outside)
    path = require_program(argv[0])
    pipe = subprocess.PIPE
    streams: dict[str, Any] = {"given": stdin, "stdin": pipe, "stdout": pipe, "stderr": pipe} if capture else {}
    name = name or argv[0]
    try:
        done = _run_to_end([path, *argv[1:]], timeout=timeout, env=environment, pass_fds=descriptors, **streams)
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"'{name}' gave no answer within {timeout:g} s and was ended") from None
    except OSError as problem:
        raise ProgramFailed(f"'{name}' could not be started: {problem.strerror}") from problem
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    finished = Finished(tuple(argv), status, done.stdout or b"", done.stderr or b"")
    if check and status:
        raise ProgramFailed(f"'{name}' {describe_status(status)}", context={"stderr": _tail(finished.errors)})
    return finished


def stream_program(argv: Sequence[str], output: BinaryIO, *, outside: Sequence[Outside] = ()) -> None:
    """Run a program whose standard output goes into an open file; raises ProgramMissing or ProgramFailed."""
    argv = close_options(argv, outside)
    path = require_program(argv[0])
    output.flush()
    try:
        done = _run_to_end([path, *argv[1:]], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE)
    except OSError as problem:
        raise ProgramFailed(f"'{argv[0]}' could not be started: {problem.strerror}") from problem
    status = done.returncode if done.returncode >= 0 else 128 - done.returncode
    if status:
        raise ProgramFailed(f"'{argv[0]}' {describe_status(status)}", context={"stderr": _tail(done.stderr)})


def relay_program(
    argv: Sequence[str],
    output: Callable[[bytes], None],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
    timeout: float | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    name: str = "",
) -> int:
    """Run a program in a session of its own and hand over all that it prints as it comes; returns its status.

    `descriptors` are open files that it gets. It is ended, with SIGTERM and a moment later SIGKILL, when `timeout`
    seconds are over, `is_cancelled` says so, or anything is raised here.
    """
    path, name = require_program(argv[0]), name or argv[0]
    deadline = None if timeout is None else time.monotonic() + timeout
    given = make_memory_file(stdin) if stdin else subprocess.DEVNULL
    child: subprocess.Popen[bytes] | None = None
    try:
        with Undivided():
            child = subprocess.Popen(
                [path, *argv[1:]], stdin=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                pass_fds=descriptors, start_new_session=True,
            )  # fmt: skip
        while _relay_piece(child, output):
            if is_cancelled is not None and is_cancelled():
                raise ProgramFailed(f"'{name}' was cancelled")
            if deadline is not None and time.monotonic() > deadline:
                raise ProgramFailed(f"'{name}' did not end within {timeout:g} s and was ended")
    except BaseException as problem:
        if child is not None:
            _end_child(child)
        elif isinstance(problem, OSError):
            raise ProgramFailed(f"'{name}' could not be started: {problem.strerror}") from problem
        raise
    finally:
        if given >= 0:
            os.close(given)
        if child is not None and child.stdout is not None:
            child.stdout.close()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _run_to_end(
    argv: Sequence[str], *, given: bytes | None = None, timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """`subprocess.run`, but a signal while the program is being started ends it, too."""
    child: subprocess.Popen[bytes] | None = None
    try:
        with Undivided():
            child = subprocess.Popen(argv, **options)
        output, errors = child.communicate(given, timeout)
    except BaseException:
        if child is not None:
            child.kill()
        raise
    finally:
        if child is not None:
            with child:  # which closes its pipes and waits for its end
                pass
    return subprocess.CompletedProcess(argv, child.returncode, output, errors)


def make_memory_file(data: bytes) -> int:
    """An open file without a name that holds the bytes, to be read from its beginning."""
    from kedge.system.libc import create_memory  # late: few programs are given bytes

    file = create_memory("kedge")
    with open(file, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _relay_piece(child: subprocess.Popen[bytes], output: Callable[[bytes], None]) -> bool:
    """Wait a moment for the next piece of output; False once all has come and the program has ended."""
    if child.stdout is None or child.stdout.closed:
        _await_end(child)
        return child.returncode is None
    ready = select.poll()
    ready.register(child.stdout, select.POLLIN)
    if ready.poll(_MOMENT * 1000):
        data = os.read(child.stdout.fileno(), 1 << 16)
        if data:
            output(data)
        else:
            child.stdout.close()
    return True


def _await_end(child: subprocess.Popen[bytes]) -> None:
    """Wait a moment for the end of a program; `Popen.wait` with a limit would look at growing intervals."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except (OSError, AttributeError):  # a kernel before 5.3, a filter in the way, or a Python that has no such call
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_MOMENT)
        return
    try:
        ending = select.poll()
        ending.register(descriptor, select.POLLIN)
        ending.poll(_MOMENT * 1000)
    finally:
        os.close(descriptor)
    child.poll()


def _end_child(child: subprocess.Popen[bytes]) -> None:
    """End a program and wait for it; also, not for long, for those it started: they may end a moment after it."""
    child.terminate()
    try:
        child.wait(_GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if child.stdout is None or child.stdout.closed:
        return
    deadline = time.monotonic() + _GRACE
    ready = select.poll()
    ready.register(child.stdout, select.POLLIN)
    while ready.poll(max(deadline - time.monotonic(), 0) * 1000) and os.read(child.stdout.fileno(), 1 << 16):
        pass  # its output ends with the last process that holds it


def page_text(text: str, environ: Mapping[str, str]) -> bool:
    """Show a text with the user's pager, or with less; whether there was one."""
    import shlex  # late: nothing else reads such a line

    try:
        name, *words = shlex.split(environ.get("PAGER", "")) or ["less"]
    except ValueError:  # a quote without its end
        return False
    program = find_program(name)
    if program is None or environ.get("TERM", "dumb") == "dumb":
        return False
    options = {"LESS": "FRX"}  # short texts stay on the screen, colours are kept
    subprocess.run([program, *words], input=text.encode(errors="replace"), env={**options, **environ}, check=False)
    return True


def run_in_child(
    work: Callable[[], int],
    meanwhile: Callable[[], None] | None = None,
    report: Callable[[BaseException], int] | None = None,
) -> int:
    """Run `work` in a forked child and wait for it; returns its status as a shell shows it.

    `meanwhile` runs here while the child works. `report` gives the child's status when a signal is raised in it before
    `work` can catch that: what came while the child was made waits until it listens. SIGTERM, SIGHUP and SIGINT are
    passed on, and it is the child that decides; a terminal sends SIGINT to both, so the child may hear it twice. When
    this process is killed, the child is ended too. Must be called while there is one thread only. Where no process can
    be had (RLIMIT_NPROC), the work is done here.
    """
    from kedge.system.spawn import HeldSignals  # late: light verbs have no such child

    _flush_streams()
    read_end, write_end = os.pipe()  # only this process holds the writing end: its end of file is our end
    held = HeldSignals()
    try:
        child = os.fork()
    except OSError:
        held.release()
        os.close(read_end)
        os.close(write_end)
        return work()
    if child == 0:
        status = 1
        try:
            os.close(write_end)
            _Listener(read_end).start()
            held.release()
            status = work()
            _flush_streams()
        except BaseException as problem:
            status = 128 + signal.SIGINT if isinstance(problem, KeyboardInterrupt) else 1
            status = status if report is None else report(problem)
            _flush_streams()
        finally:
            os._exit(status)
    os.close(read_end)
    try:
        if meanwhile is not None:
            meanwhile()
        return held.pass_to(child)
    finally:
        os.close(write_end)
        held.release()


class _Listener:
    """A thread that ends this process when its parent has ended, and wakes the main thread when a signal has come.

    Python runs handlers in the main thread, when that goes on. The kernel may give the signal to another thread, and
    the main thread may be on its way into a wait that nothing ends: then nobody would hear of it.
    """

    def __init__(self, parent: int) -> None:
        self._parent = parent  # its end of file is the parent's end
        self._signals, self._told = os.pipe()
        self._main = threading.main_thread().ident or 0

    def start(self) -> None:
        """To be called by the main thread."""
        from kedge.system.libc import let_interrupt  # late: ctypes is for heavy verbs only

        os.set_blocking(self._told, False)
        try:
            threading.Thread(target=self._listen, name="kedge-parent", daemon=True).start()
        except RuntimeError:  # no thread to be had: then a killed parent leaves us to finish
            return
        let_interrupt(_WAKE)
        signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._parent, select.POLLIN)
        poll.register(self._signals, select.POLLIN)
        pauses: Iterator[float] = iter(())
        while True:
            pause = next(pauses, None)
            for file, _ in poll.poll(None if pause is None else 1000 * pause):
                if file == self._parent:
                    poll.unregister(file)
                    os.kill(os.getpid(), signal.SIGTERM)
                elif os.read(file, 4096):
                    pause, pauses = 0.0, iter(_WAKING)
            if pause is not None:
                self._wake()

    def _wake(self) -> None:
        """Interrupt what the main thread waits in: it looks for signals then. More than once: see above.

        Not by a handler of Python's, which must not run while an exception is on its way.
        """
        signal.pthread_kill(self._main, _WAKE)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
            stream.flush()


def describe_status(status: int) -> str:
    """`failed with status 3` or `was killed by SIGKILL`."""
    if status > 128:
        try:
            return f"was killed by {signal.Signals(status - 128).name}"
        except ValueError:
            pass
    return f"failed with status {status}"


def _tail(text: bytes, limit: int = 2000) -> str:
    return text[-limit:].decode(errors="replace").strip()


def run_into_files(
    argv: Sequence[str], output: Path, errors: Path, *, environment: Mapping[str, str], directory: str
) -> Finished:
    """Run a program whose output goes straight into files, in a session of its own; whatever its status.

    It outlives us: when we are killed, it still finishes, and what it said is in the files. An interrupt meanwhile
    is raised when it has finished.
    """
    path = require_program(argv[0])
    interrupt: BaseException | None = None
    child: subprocess.Popen[bytes] | None = None
    with explained(output), output.open("wb") as out, errors.open("wb") as err:
        while child is None or child.returncode is None:
            try:
                if child is None:
                    with Undivided():
                        child = subprocess.Popen(
                            [path, *argv[1:]], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                            env=dict(environment), cwd=directory, start_new_session=True,
                        )  # fmt: skip
                child.wait()
            except OSError as problem:
                raise ProgramFailed(f"'{argv[0]}' could not be started: {problem.strerror}") from problem
            except KeyboardInterrupt as problem:
                interrupt = problem
    if interrupt is not None:
        raise interrupt
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return Finished(tuple(argv), status, output.read_bytes(), errors.read_bytes())


class PipedChild:
    """A program that runs beside us, in a session of its own; it gets SIGTERM when we end, however we do."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child

    @property
    def input(self) -> IO[bytes]:
        """Return the pipe that the program reads."""
        assert self._child.stdin is not None
        return self._child.stdin

    @property
    def output(self) -> IO[bytes]:
        """Return the pipe that the program prints to."""
        assert self._child.stdout is not None
        return self._child.stdout

    def poll(self) -> int | None:
        """Return the program's status as a shell shows it; None while it runs."""
        status = self._child.poll()
        return 128 - status if status is not None and status < 0 else status

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        self._child.send_signal(number)


def start_piped(argv: Sequence[str], environment: Mapping[str, str], *, has_pipes: bool = True) -> PipedChild:
    """Start a program with pipes as its standard input and output; without, it reads nothing and prints to our errors.

    Raises ProgramMissing or ProgramFailed.
    """
    from kedge.system.libc import (
        PR_SET_PDEATHSIG,  # late: few programs are started so
        control_process,
    )

    path = require_program(argv[0])
    streams = (subprocess.PIPE, subprocess.PIPE) if has_pipes else (subprocess.DEVNULL, sys.stderr)
    try:
        child = subprocess.Popen(
            [path, *argv[1:]], stdin=streams[0], stdout=streams[1], env=environment, start_new_session=True, bufsize=0,
            preexec_fn=lambda: control_process(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509 - no threads yet
        )  # fmt: skip
    except OSError as problem:
        raise ProgramFailed(f"'{argv[0]}' could not be started: {problem.strerror}") from problem
    return PipedChild(child)
