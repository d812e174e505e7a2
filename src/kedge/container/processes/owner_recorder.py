# SPDX-License-Identifier: BSD-3-Clause
"""Remembers to whom a step of a build gave its files, and who its processes are, where root is the only user there is.

`chown app /srv/app` changes nothing on the disk then; but the image is to say that the directory is app's. A seccomp
filter leaves such calls to a process beside the step, which writes the numbers into an extended attribute of the file:
that goes where the file goes, and an overlay copies the file into the step's layer, as a change of owner would have.
`su app` changes nobody for the kernel; the process beside the step knows who is whom (`identity_calls.py`), and answers
for files accordingly (`file_calls.py`). Before Linux 5.9 it can note owners only.

The process has the container's root as its root, no file of the host is open in it, and it belongs to the user
namespace above the step's, out of its reach.
"""

from __future__ import annotations

import errno
import os
import select

from kedge.container.processes.emulated_calls import IDENTITY_CALLS, REFUSED_CALLS
from kedge.container.processes.file_calls import LOOKS, FileCalls, GivenFile
from kedge.container.processes.identity_calls import IdentityCalls
from kedge.container.processes.process_identities import Identity, ProcessIdentities
from kedge.container.seccomp import ALLOW, AUDIT_ARCHITECTURES, assemble, give
from kedge.system import libc
from kedge.system.call_notices import CallNotice, NoticeFile, Refusal, memories
from kedge.system.libc import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
from kedge.system.spawn import close_all, fork_detached, fork_process, list_inherited, list_private

_NODES = ("mknod", "mknodat")
_CHANGES_OF_OWNERS = ("chown", "lchown", "fchown", "fchownat")
_CHANGES_OF_USERS = ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups")
_PROGRAMS = ("execve", "execveat")
_MODES = ("chmod", "fchmod", "fchmodat", "fchmodat2")
_REMEDY = "Subordinate ids help: ask the administrator for newuidmap and for lines in /etc/subuid and /etc/subgid"
_ALWAYS = {*_CHANGES_OF_OWNERS, *_NODES, *_CHANGES_OF_USERS, *_MODES, "chroot", "prctl", "rt_sigaction"}  # root's, too


class OwnerRecorder:
    """To be made in the process that becomes the step's program, while the host's tree is the root."""

    def __init__(
        self, machine: str, image_root: str, first: Identity, *, knows_users: bool, has_named_notes: bool
    ) -> None:
        self._knows_users = knows_users  # all calls of `IDENTITY_CALLS` are left to it, not only those that give files
        self._architecture = AUDIT_ARCHITECTURES[machine]
        self._refused = {number: count for kind in REFUSED_CALLS.values() for number, count in kind.items()}
        self._is_warned = False
        self._names = IDENTITY_CALLS[machine]
        self._identities = ProcessIdentities(first)
        self._persons = IdentityCalls(self._identities)
        self._files = FileCalls(machine, image_root, has_capabilities=first.is_root, has_named_notes=has_named_notes)
        self._files.answers["chroot"] = self._see_root
        self._socket, other = libc.pair_sockets()
        if fork_detached():
            self._record_all(other)
        os.close(other)

    def filter_calls(self, program: bytes) -> bool:
        """Put a filter with notices on this process and all that it starts; False where the kernel has none (5.0)."""
        try:
            file = libc.filter_calls_with_notices(program)
        except OSError:
            return False
        else:
            libc.send_descriptor(self._socket, file)
            os.close(file)
            return True
        finally:
            os.close(self._socket)

    def _record_all(self, socket: int) -> None:
        """The process beside the step."""
        try:
            _let_go(socket, self._socket)
            os.umask(0)  # modes are the caller's, less what its own says
            notices = NoticeFile(_wait_for_descriptor(socket))
            os.close(socket)
            notices.end_with_callers()
            while True:
                while self._identities.expects_children and not notices.wait(1):
                    self._identities.look_for_children()
                self._answer(notices, notices.receive())
        finally:
            os._exit(0)

    def _answer(self, notices: NoticeFile, notice: CallNotice) -> None:
        """Answer one call; whatever goes wrong here, the step goes on."""
        if notice.architecture != self._architecture:
            notices.answer(notice, self._refuse_user(notice))
            return
        name = self._names[notice.number]
        try:
            result = self._find_answer(name, notice)
        except Refusal as refusal:
            if refusal.reason:
                self._warn(refusal.reason)
            notices.answer(notice, refusal.errno or errno.EPERM)
        except Exception as problem:
            if name in _CHANGES_OF_OWNERS:  # the kernel would refuse what was not meant for it
                notices.answer(notice, _settle_error(problem))
            elif name in _NODES:
                notices.answer(notice, getattr(problem, "errno", 0) or errno.EPERM)
            else:
                notices.proceed(notice)
        else:
            _send(notices, notice, result)
        if name in _PROGRAMS or not self._knows_users:
            memories.forget(notice.process)

    def _refuse_user(self, notice: CallNotice) -> int:
        """A 32-bit program is root, and cannot become anybody else."""
        count = self._refused[notice.number]
        if all(number & 0xFFFFFFFF in (0, 0xFFFF, 0xFFFFFFFF) for number in notice.arguments[:count]):
            return 0
        self._warn("32-bit programs cannot change the user")
        return errno.EPERM

    def _warn(self, what: str) -> None:
        """Say once, in the step's output, what does not work and what helps."""
        if not self._is_warned:
            self._is_warned = True
            os.write(2, f"kedge: {what} in this build. {_REMEDY}\n".encode())

    def _see_root(self, *_: object) -> None:
        self._files.has_roots = True

    def _find_answer(self, name: str, notice: CallNotice) -> int | GivenFile | None:
        if name in LOOKS:
            return self._files.look(name, notice)
        if self._identities.is_plain and name not in _ALWAYS:
            return None
        identity = self._identities.find(notice.process)
        if name in self._files.answers:
            is_plain = identity.uid == 0 and identity.gid == 0 and not self._files.notes_root
            return None if is_plain and name not in _ALWAYS else self._files.answers[name](notice, identity)
        return self._persons.answers[name](notice, identity)


def _send(notices: NoticeFile, notice: CallNotice, result: int | GivenFile | None) -> None:
    if result is None:
        notices.proceed(notice)
    elif isinstance(result, int):
        notices.answer(notice, value=result)
    else:
        try:
            notices.answer_with_file(notice, result.file, is_private=result.is_private)
        except OSError as problem:  # the caller is gone, or has too many files open
            notices.answer(notice, problem.errno or errno.EMFILE)
        finally:
            os.close(result.file)


def _settle_error(problem: Exception) -> int:
    """The error number of a change of owner: what is not there cannot be given away, and all else is no matter."""
    number = getattr(problem, "errno", None)
    return number if number in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF) else 0


def can_leave_calls() -> bool:
    """Whether the kernel lets a process leave calls to another: not before 5.0, nor below a filter that does so."""
    child = fork_process()
    if child == 0:
        try:
            libc.control_process(PR_SET_NO_NEW_PRIVS, 1)
            libc.filter_calls_with_notices(assemble([give(ALLOW)]))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _let_go(kept: int, other: int) -> None:
    """Keep nothing of the host's, and let nobody look in."""
    libc.control_process(PR_SET_DUMPABLE, 0)
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1):  # what it says goes where the step's program writes to
        os.dup2(empty, number, inheritable=False)
    close_all([file for file in (*list_inherited(), *list_private()) if file != kept])
    close_all([other])


def _wait_for_descriptor(socket: int) -> int:
    waiting = select.poll()
    waiting.register(socket, select.POLLIN)
    waiting.poll()
    return libc.fetch_descriptor(socket)
