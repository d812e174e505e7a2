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
import stat
import struct

from kedge.container.processes.emulated_calls import IDENTITY_CALLS, REFUSED_CALLS
from kedge.container.processes.file_calls import LOOKS, FileCalls, GivenFile
from kedge.container.processes.noted_files import EXECUTE, HERE, open_target
from kedge.container.processes.process_identities import Identity, ProcessIdentities
from kedge.container.seccomp import ALLOW, AUDIT_ARCHITECTURES, assemble, give
from kedge.system import libc
from kedge.system.call_notices import CallNotice, NoticeFile, Refusal, memories, refuse
from kedge.system.libc import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
from kedge.system.spawn import close_all, fork_detached, fork_process, list_inherited, list_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = Callable[[CallNotice, Identity], int | None]

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


# Answers calls by which programs of a step ask or change who they are, where the kernel knows one user only.

_MOST_GROUPS = 65536
_RESTART = 0x10000000  # SA_RESTART
_THREE = struct.Struct("=I")


class IdentityCalls:
    """The answers by name of the call: a value, or None where the kernel's own is right; a `Refusal` is one, too."""

    def __init__(self, identities: ProcessIdentities) -> None:
        self._identities = identities
        changes = ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid")
        self.answers: dict[str, Answer] = {
            **{name: self._make_change(name) for name in changes},
            "setfsuid": lambda _, identity: identity.uid,
            "setfsgid": lambda _, identity: identity.gid,
            "setgroups": self._set_groups,
            "getuid": lambda _, identity: identity.users[0],
            "geteuid": lambda _, identity: identity.users[1],
            "getgid": lambda _, identity: identity.groups[0],
            "getegid": lambda _, identity: identity.groups[1],
            "getresuid": lambda notice, identity: _write_three(notice, identity.users),
            "getresgid": lambda notice, identity: _write_three(notice, identity.groups),
            "getgroups": _get_groups,
            "capget": _get_capabilities,
            "kill": self._kill,
            "execve": lambda notice, identity: self._execute(notice, identity, HERE, 0),
            "execveat": lambda notice, identity: self._execute(notice, identity, notice.arguments[0], 1),
            **dict.fromkeys(("clone", "clone3", "fork", "vfork"), self._expect_child),
            "prctl": self._keep_capabilities,
            "rt_sigaction": _restart_after_children,
        }

    def _make_change(self, name: str) -> Answer:
        def change(notice: CallNotice, identity: Identity) -> int:
            numbers = tuple(number & 0xFFFFFFFF for number in notice.arguments)
            self._identities.note(notice.process, identity.change(name, numbers))
            return 0

        return change

    def _set_groups(self, notice: CallNotice, identity: Identity) -> int:
        count = notice.arguments[0] & 0xFFFFFFFF
        if not identity.may_change:
            raise refuse(errno.EPERM)
        if count > _MOST_GROUPS:
            raise refuse(errno.EINVAL)
        data = notice.read_memory(notice.arguments[1], 4 * count) if count else b""
        groups = struct.unpack(f"={count}I", data)
        self._identities.note(notice.process, Identity(identity.users, identity.groups, groups, identity.keeps))
        return 0

    def _expect_child(self, notice: CallNotice, identity: Identity) -> None:
        if identity != Identity():
            self._identities.expect_child(notice.process)

    def _keep_capabilities(self, notice: CallNotice, identity: Identity) -> None:
        """prctl(2) with PR_SET_KEEPCAPS: setpriv changes its groups after its user."""
        keeps = identity.may_change and bool(notice.arguments[1])
        self._identities.note(notice.process, Identity(identity.users, identity.groups, identity.others, keeps))

    def _kill(self, notice: CallNotice, identity: Identity) -> int | None:
        """Signals go to one's own processes; groups of processes are left to the kernel."""
        number = notice.arguments[0] & 0xFFFFFFFF
        if identity.is_root or not 1 <= number < 1 << 31:
            return None
        if not os.path.exists(f"/proc/{number}"):
            return None
        other = self._identities.find(number)
        if {identity.users[0], identity.users[1]} & {other.users[0], other.users[2]}:
            return None
        raise refuse(errno.EPERM)

    def _execute(self, notice: CallNotice, identity: Identity, folder: int, position: int) -> None:
        """A program with setuid bits gives its owner's rights to who starts it."""
        path = notice.read_path(position)
        file = open_target(notice, folder, path)
        try:
            if not file.is_directory and not file.lets(identity, EXECUTE):
                raise refuse()
            uid = file.uid if file.mode & stat.S_ISUID else None
            gid = file.gid if file.mode & stat.S_ISGID and file.mode & stat.S_IXGRP else None
        finally:
            file.close()
        started = identity.start(uid, gid)
        if started != identity:
            self._identities.note(notice.process, started)


def _restart_after_children(notice: CallNotice, _: Identity) -> None:
    """Let calls go on after a handler of SIGCHLD.

    A signal ends a call that waits for its answer here. Most handlers let it begin again (SA_RESTART); those of some
    shells do not, whose `test -e FILE` would fail because a child ended.
    """
    if notice.arguments[1]:
        handler, flags = struct.unpack("=QQ", notice.read_memory(notice.arguments[1], 16))
        if handler > 1 and not flags & _RESTART:  # 0 and 1: the default, none
            notice.write_memory(notice.arguments[1] + 8, struct.pack("=Q", flags | _RESTART))


def _write_three(notice: CallNotice, numbers: tuple[int, int, int]) -> int:
    for address, number in zip(notice.arguments, numbers, strict=False):
        notice.write_memory(address, _THREE.pack(number))
    return 0


def _get_groups(notice: CallNotice, identity: Identity) -> int:
    room, count = notice.arguments[0] & 0xFFFFFFFF, len(identity.others)
    if room == 0:
        return count
    if room < count:
        raise refuse(errno.EINVAL)
    notice.write_memory(notice.arguments[1], struct.pack(f"={count}I", *identity.others))
    return count


def _get_capabilities(notice: CallNotice, identity: Identity) -> int | None:
    """An ordinary user has none; those of root are what the kernel says."""
    version, _ = struct.unpack("=II", notice.read_memory(notice.arguments[0], 8))
    sizes = {0x19980330: 12, 0x20071026: 24, 0x20080522: 24}
    if identity.is_root or version not in sizes or not notice.arguments[1]:
        return None
    notice.write_memory(notice.arguments[1], bytes(sizes[version]))
    return 0


# Makes what stands for a device in a step of a build that knows the image's users: all else there is the kernel's.
#
# Only real root can make devices, with subordinate ids or without.


class DeviceRecorder(OwnerRecorder):
    """Asks the kernel who a process is."""

    def _find_answer(self, name: str, notice: CallNotice) -> int | GivenFile | None:
        with open(f"/proc/{notice.process}/status", "rb") as file:
            lines = {line.partition(b":")[0]: line.split() for line in file}
        effective = int(lines[b"Uid"][2])
        return self._files.answers[name](notice, Identity((effective,) * 3))

    def _warn(self, what: str) -> None:
        os.write(2, f"kedge: {what} in this build\n".encode())
