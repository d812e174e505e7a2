# SPDX-License-Identifier: BSD-3-Clause
"""Processes that stand between the caller and a program in a process-id namespace of its own.

The outer one passes signals in and ends exactly as the program ended; the inner one is process 1 of the namespace: the
kernel shields it from signals, and it must wait for orphans. Without --pid there is neither.
"""

from __future__ import annotations

import os

from kedge.system import libc
from kedge.system.libc import PR_SET_DUMPABLE, PR_SET_PDEATHSIG
from kedge.system.spawn import close_all, fork_process, list_private, parent_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import NoReturn
else:
    import _signal  # `signal` itself imports enum, which costs more than all of this module

# Faults of the program itself: blocking them does nothing, and nobody sends them for another reason.
_FAULTS = {_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGTRAP, _signal.SIGSYS}
_CATCHABLE = _signal.valid_signals() - _FAULTS - {_signal.SIGKILL, _signal.SIGSTOP}
# What a terminal sends to every process of the foreground group, so that the program has it already.
_FROM_TERMINAL = {
    *(_signal.SIGINT, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGTTIN, _signal.SIGTTOU, _signal.SIGWINCH),
    *(_signal.SIGHUP, _signal.SIGCONT),
}
_HARMLESS = {_signal.SIGCONT, _signal.SIGWINCH, _signal.SIGURG, _signal.SIGIO}
_NEWS = _signal.SIGRTMAX  # where the kernel sends it, process 1 has reported something
_NAME = b"kedge-init"
_RECORD = 3  # bytes: a letter and what waitpid said
_READY, _STOPPED, _ENDED = b"r", b"s", b"e"


def run_supervised(
    start: Callable[[], None],
    *,
    with_init: bool = True,
    is_shared: bool = False,
    after: Callable[[int], None] | None = None,
    is_in_job: bool = False,
) -> NoReturn:
    """Run `start` in a child that is process 1 of the namespace made before, and end as what it started ends.

    `start` becomes the program. When it raises, the child raises: the caller reports it and exits there. With
    `is_shared` others may have joined, who would die with process 1: it stays until they have ended. `after` is done
    here, once the program has ended, and hears how: what waitpid said. With `is_in_job` what a scheduler sends is not
    passed on: it goes to all processes of a job, and the program has it already.
    """
    private = list_private()
    report_from, report_to = os.pipe()
    before = _Signals()
    words = libc.ShownWords()
    words.replace(_NAME)  # who joins is seen by what runs there, from the very beginning
    child = fork_process()
    if child == 0:
        os.close(report_from)
        _run_first(start, before, with_init=with_init, report_to=report_to, is_shared=is_shared)
    words.restore()  # outside it is the user's command, as `ps` is to show it
    close_all([report_to, *private])
    _let_join(is_wanted=is_shared)
    _supervise(child, report_from, after, is_in_job=is_in_job)


def go_on_in_child(after: Callable[[int], None]) -> None:
    """Return in a child; this process waits for it, does `after` once it has ended, and ends as it did."""
    before = _Signals()
    report_from, report_to = os.pipe2(os.O_CLOEXEC)  # nothing is reported: the child tells by its own end
    child = fork_process()
    if child == 0:
        close_all([report_from, report_to])
        before.give_back()
        return
    _supervise(child, report_from, after)


def end_with_parent(parent: int) -> None:
    """Let this process, and with it all of a namespace that it makes, be killed when its parent is gone.

    To be called after the last change of users, which makes the kernel forget it.
    """
    libc.control_process(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(255)


def run_as_init(start: Callable[[], None], *, with_init: bool, outlives: bool = False) -> NoReturn:
    """Called in process 1 of a new namespace: run `start` here, or with `with_init` in a child that is looked after.

    The namespace ends with the process that made this one, unless it `outlives` it: then it is an instance, which stays
    when its program has ended, until a signal comes.
    """
    libc.ShownWords().replace(_NAME)
    _run_first(start, _Signals(), with_init=with_init, outlives=outlives)


class _Signals:
    """Holds back all signals from here on, and remembers how they were."""

    def __init__(self) -> None:
        self.mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, _CATCHABLE)
        # Whoever ignores SIGCHLD is never told how a child ended.
        self.child_action = _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)

    def give_back(self) -> None:
        """Let the program have them as the caller left them."""
        if self.child_action == _signal.SIG_IGN:
            _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
        if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
            _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # no traceback between here and the program
        _signal.pthread_sigmask(_signal.SIG_SETMASK, self.mask)


def _run_first(
    start: Callable[[], None],
    before: _Signals,
    *,
    with_init: bool,
    report_to: int = -1,
    outlives: bool = False,
    is_shared: bool = False,
) -> NoReturn:
    if not outlives:
        libc.control_process(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if report_to >= 0:
        try:
            os.write(report_to, _READY + bytes(2))
        except BrokenPipeError:
            os._exit(255)  # the outer process was killed before it could take us along
    private = [file for file in list_private() if file != report_to] if with_init else []
    if with_init:
        _become_plain()
    payload = fork_process() if with_init else 0
    if payload == 0:
        if with_init and outlives:
            os.setpgid(0, 0)
        before.give_back()
        start()
        os._exit(0)
    close_all(private)
    _let_join(is_wanted=outlives or is_shared)
    if outlives:
        _keep_instance(payload)
    _keep_payload(payload, report_to, is_shared=is_shared)


def _keep_payload(payload: int, report_to: int, *, is_shared: bool) -> NoReturn:
    """Process 1: reap what is orphaned here until the payload ends; the kernel then ends the rest."""
    while True:
        number, is_sent = _next_signal()
        if number != _signal.SIGCHLD:
            if is_sent:
                _send(payload, number)
            continue
        status = _reap(payload, report_to)
        if status is None:
            continue
        _report(report_to, _ENDED, status)
        if is_shared:
            _outlast_joined()
        # Process 1 cannot die of a signal it sends to itself; who reads the report knows better.
        os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def _outlast_joined() -> None:
    """Wait for the programs of those who joined, unless a signal says not to."""
    while _has_joined():
        found = _signal.sigtimedwait(_CATCHABLE, 0.1)
        if found is not None and found.si_signo == _signal.SIGCHLD:
            _reap(0, -1)
        elif found is not None and found.si_signo in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            return


def _has_joined() -> bool:
    """Whether there is a process here, other than this one, whose parent is outside."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return False  # no /proc in the container: nobody can be seen
    return any(name.isdigit() and name != "1" and parent_of(int(name)) == 0 for name in names)


def _keep_instance(payload: int) -> NoReturn:
    """Process 1 of an instance: it is there for those who join, also when its own program has ended."""
    while True:
        number, is_sent = _next_signal()
        if number == _signal.SIGCHLD:
            _reap(payload, -1)
        elif is_sent and number not in _HARMLESS and not _send(-payload, number) and not _send(-1, number):
            os._exit(128 + number)  # the program is gone, and what it left behind too


def _supervise(
    child: int, report_from: int, after: Callable[[int], None] | None, *, is_in_job: bool = False
) -> NoReturn:
    report = _Report(report_from)
    while True:
        if report.read():
            _stop_here()
        done, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if done and os.WIFSTOPPED(status):
            _stop_here()
        elif done:
            report.read()
            status = status if report.status is None else report.status
            if after is not None:
                after(status)
            _end_like(status)
        number, is_sent = _next_signal(is_in_job=is_in_job)
        if is_sent and number not in (_signal.SIGCHLD, _signal.SIGURG):
            _send(child, number)


class _Report:
    """What process 1 says about the payload: that it stopped, and how it ended."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.status: int | None = None
        import fcntl  # late: only the outer process needs it

        fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
        # O_ASYNC: a signal says that there is something to read, so that one wait is for all. Not SIGIO: two of them
        # become one, and one that somebody sends would be lost; signals of this kind queue.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, _NEWS)
        fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)

    def read(self) -> bool:
        """Take in what was reported; whether the payload stopped."""
        has_stopped = False
        while True:
            try:
                record = os.read(self.descriptor, _RECORD)
            except BlockingIOError:
                break
            if len(record) < _RECORD:
                break
            has_stopped = has_stopped or record[:1] == _STOPPED
            if record[:1] == _ENDED:
                self.status = int.from_bytes(record[1:], "little")
        return has_stopped


def _next_signal(*, is_in_job: bool = False) -> tuple[int, bool]:
    """Wait for a signal: its number, and whether it was meant for the program, which did not get it otherwise."""
    while True:
        try:
            signal = _signal.sigwaitinfo(_CATCHABLE)
        except InterruptedError:
            continue
        if signal.si_code <= 0:  # kill, tgkill or sigqueue: somebody knows this process only
            return signal.si_signo, not (is_in_job and _is_for_all(signal.si_pid, signal.si_uid))
        if signal.si_signo in (_signal.SIGHUP, _signal.SIGCONT) and os.getsid(0) == os.getpid():
            return signal.si_signo, True  # a terminal that is gone tells the leader of the session alone
        is_our_own = signal.si_signo in _FROM_TERMINAL or signal.si_signo in (_NEWS, _signal.SIGIO, _signal.SIGPIPE)
        return signal.si_signo, not is_our_own


def _is_for_all(sender: int, uid: int) -> bool:
    """Whether a scheduler sent a signal: an ancestor, and not the parent that started us, unless it is another user."""
    parent = os.getppid()
    if sender == parent:
        return uid != os.getuid()
    while parent > 1:
        parent = parent_of(parent)
        if parent == sender:
            return True
    return False


def _reap(payload: int, report_to: int) -> int | None:
    """Wait for all that ended; how the payload ended, if it did."""
    ended = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
        except ChildProcessError:
            return ended
        if child == 0:
            return ended
        if child == payload and os.WIFSTOPPED(status):
            _report(report_to, _STOPPED, status)
        elif child == payload:
            ended = status


def _report(report_to: int, kind: bytes, status: int) -> None:
    if report_to >= 0:
        try:
            os.write(report_to, kind + status.to_bytes(2, "little"))
        except OSError:
            return  # the outer process is gone, and so are we in a moment


def _send(process: int, number: int) -> bool:
    """Send a signal; returns whether there was somebody to get it."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it became another user's: a set-user-ID program outside of a user namespace
    return True


def _stop_here() -> None:
    """Stop as the program did, so that the caller's shell gives the prompt back."""
    os.kill(os.getpid(), _signal.SIGSTOP)


def _end_like(status: int) -> NoReturn:
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    libc.control_process(PR_SET_DUMPABLE, 0)  # the program's core may be of use, this one's is not
    if number != _signal.SIGKILL:
        _signal.signal(number, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # we are somebody's process 1 ourselves


def _let_join(*, is_wanted: bool) -> None:
    """Let the user's other processes see our namespaces, or let nobody see anything of us but root of the machine."""
    libc.control_process(PR_SET_DUMPABLE, 1 if is_wanted else 0)


def _become_plain() -> None:
    """Process 1 is seen by all that run in the container: it keeps nothing of the caller's.

    At the root it is taken along into the container. Its command line and variables are gone already.
    """
    os.chdir("/")
    file = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)  # the host's: nothing is mounted yet
    try:
        os.write(file, _NAME)
    finally:
        os.close(file)
