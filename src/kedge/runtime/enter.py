# SPDX-License-Identifier: BSD-3-Clause
"""Performs the operations of a plan, one after the other, in the namespaces of the new container.

While a container is built the host's tree stays where it is; everything new stands below one folder, the base, on
which a file system in memory was put that only this process sees. Targets inside the container are resolved link by
link inside it: an image cannot make us mount or write outside.
"""

from __future__ import annotations

import errno
import os

from kedge.posix import libc
from kedge.posix.constants import (
    AT_RECURSIVE,
    MNT_DETACH,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_MOVE,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    MS_UNBINDABLE,
)
from kedge.runtime.operations import LATER, LOWER, MAY, MUST, NEW, OLD, SESSION, WARN, describe
from kedge.runtime.views import FolderView
from kedge.runtime.way_back import change_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.runtime.mounts.ext_mounts import ExtServers
    from kedge.runtime.mounts.fuse import FuseServer
    from kedge.runtime.operations import Operation
    from kedge.runtime.way_back import WayBack

_ATTRIBUTES = ((MS_RDONLY, MOUNT_ATTR_RDONLY), (MS_NOSUID, MOUNT_ATTR_NOSUID), (MS_NODEV, MOUNT_ATTR_NODEV))
_KEPT_FLAGS = (MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME)  # as ST_* of statvfs
_ST_RELATIME = 4096  # which has another number
_HINTS = {
    "tmpfs": "the place must be a folder, in the image or below a bind",
    "proc": "the image must have a folder /proc, or leave it out with --no-mount proc",
    "squashfuse": "--root-from unpack does without squashfuse",
    "loop": "--root-from unpack does without the kernel's help",
    "write": "a limit on the size of files (ulimit -f), or no memory left for the container's own small files",
    "hostname": "leave out --hostname",
}


class Builder:
    """Builds one container below `base`; `say(level, text)` hears what was left out and which way was taken."""

    def __init__(
        self,
        base: str,
        say: Callable[[str, str], None],
        servers: list[FuseServer] | None = None,
        way_back: WayBack | None = None,
    ) -> None:
        self.base = base
        self.say = say
        self.way_back = way_back  # for when something fails after the root was entered
        self.servers = servers or []
        self.ext_servers: ExtServers | None = None
        # Where an image that is a folder lies on the host: an overlay names it, so that it can be seen to be in use.
        self.image_folder = ""
        self.container = FolderView(base + NEW)
        self.refused: list[tuple[str, str]] = []  # mount points that could not be made, and their shape
        self._performers: dict[str, Callable[[Operation], None]] = {
            "tmpfs": self._mount_tmpfs,
            "bind": self._bind,
            "folder": self._make_folder,
            "file": self._make_file,
            "write": self._write,
            "link": self._make_link,
            "overlay": self._mount_overlay,
            "relay": self._mount_overlay_again,
            "proc": self._mount_kernel_tree,
            "devpts": self._mount_kernel_tree,
            "mqueue": self._mount_kernel_tree,
            "readonly": self._make_readonly,
            "squashfuse": self._mount_squashfuse,
            "loop": self._mount_loop,
            "fuse2fs": self._mount_fuse2fs,
            "hostname": lambda operation: libc.set_host_name(str(operation[1])),
            "umask": lambda operation: void(os.umask(int(operation[1]))),
            "enter": self._enter,
            "chdir": self._change_folder,
        }

    def kinds(self) -> set[str]:
        """The kinds of operations that can be performed."""
        return set(self._performers)

    def prepare(self) -> None:
        """Put the file system in memory on the base and make the folders of the trees.

        It cannot be bound: a bind of the folder that the base is in (/var/tmp) must not bring all this along. What is
        made for the container is bound, so it has a file system of its own.
        """
        libc.mount("kedge", self.base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
        libc.mount("none", self.base, "", MS_UNBINDABLE)
        for tree in (NEW, LOWER, SESSION):
            make_folder(self.base + tree, 0o755)
        libc.mount("kedge", self.base + SESSION, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")

    def perform(self, operations: list[Operation]) -> None:
        """Do them all; raises MountFailed for the first that had to succeed and did not."""
        for operation in operations:
            try:
                self._performers[str(operation[0])](operation)
            except (OSError, ValueError) as found:
                # what no path can hold, such as a NUL, Python refuses by itself
                problem = found if isinstance(found, OSError) else OSError(errno.EINVAL, os.strerror(errno.EINVAL))
                policy = operation[-1] if operation[-1] in (WARN, MAY, LATER) else MUST
                if policy == MUST:
                    self._look_out()
                    raise self._explain(operation, problem) from problem
                if policy == LATER:
                    self.refused.append((str(operation[1])[len(NEW) :], "d" if operation[0] == "folder" else "f"))
                    continue
                reason = problem.strerror or str(problem)
                self.say("warn" if policy == WARN else "note", f"left out: {describe(operation)}: {reason}")

    def place(self, path: str) -> str:
        """Where a path of the plan is now; links inside the container are followed inside it."""
        if path.startswith(OLD):
            return path[len(OLD) :] or "/"
        if path == NEW:
            return self.base + NEW
        if path.startswith(NEW + "/"):
            where = self.container.locate(path[len(NEW) :])
            if where == self.container.root + "/":  # an image whose /tmp is a link to / would vanish below it
                raise OSError(errno.ELOOP, "it leads to the root of the container", path)
            return where
        return self.base + path

    # -- operations

    def _mount_tmpfs(self, operation: Operation) -> None:
        libc.mount("tmpfs", self.place(str(operation[1])), "tmpfs", MS_NOSUID | MS_NODEV, str(operation[2]))

    def _bind(self, operation: Operation) -> None:
        source, target = self.place(str(operation[1])), self.place(str(operation[2]))
        # Recursive always: the kernel refuses to uncover what is mounted below a folder of another user namespace.
        libc.mount(source, target, "", MS_BIND | MS_REC)
        self._restrict(target, int(operation[3]))

    def _restrict(self, target: str, flags: int) -> None:
        wanted = 0
        for flag, attribute in _ATTRIBUTES:
            wanted |= attribute if flags & flag else 0
        if not wanted:
            return
        try:
            libc.set_mount_attributes(target, wanted, AT_RECURSIVE)
        except OSError as problem:
            if problem.errno not in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
                raise
            remount_tree(target, flags)  # before Linux 5.12

    def _make_folder(self, operation: Operation) -> None:
        path = self.place(str(operation[1]))
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            if self._is_ours(operation):
                make_folder(each, int(operation[2]))
            else:
                os.mkdir(each, int(operation[2]))

    def _make_file(self, operation: Operation) -> None:
        path = self.place(str(operation[1]))
        flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(path, flags, 0o644)
        except FileNotFoundError:
            self._make_folder(("folder", os.path.dirname(str(operation[1])), 0o755, operation[-1]))
            file = os.open(path, flags, 0o644)
        os.close(file)

    def _is_ours(self, operation: Operation) -> bool:
        """Whether what is made is gone with the container: then the user's umask says nothing about it."""
        return str(operation[1]).startswith(SESSION + "/") or operation[-1] == LATER

    def _write(self, operation: Operation) -> None:
        path = self.place(str(operation[1]))
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, int(operation[3]))
        try:
            os.fchmod(file, int(operation[3]))  # whatever the umask is
            data = os.fsencode(str(operation[2]))
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)

    def _make_link(self, operation: Operation) -> None:
        path = str(operation[2])
        parent, _, name = path.rpartition("/")
        os.symlink(str(operation[1]), self.place(parent) + "/" + name)  # the last name is not followed

    def _mount_overlay(self, operation: Operation) -> None:
        from kedge.runtime.mounts.overlay_mount import mount_overlay  # late: a sandbox that is written to has none

        lowers = [
            self.image_folder if each == LOWER and self.image_folder else self.place(each)
            for each in str(operation[1]).split("\n")
        ]
        upper, work, target = (self.place(str(each)) for each in operation[2:5])
        way = mount_overlay(lowers, upper, work, target, is_written=bool(operation[5]))
        if operation[0] == "overlay":  # put on again it is the same
            self.say("note", f"root: {way}")

    def _mount_overlay_again(self, operation: Operation) -> None:
        libc.unmount(self.place(str(operation[4])), MNT_DETACH)
        self._mount_overlay(operation)

    def _mount_kernel_tree(self, operation: Operation) -> None:
        kind, target = str(operation[0]), self.place(str(operation[1]))
        flags = MS_NOSUID | MS_NOEXEC | (MS_NODEV if kind != "devpts" else 0)
        data = "newinstance,ptmxmode=0666,mode=0620" if kind == "devpts" else ""
        try:
            libc.mount(kind, target, kind, flags, data)
        except PermissionError:
            if kind != "proc":
                raise
            # A host that hides parts of /proc (another container) lets nobody mount a fresh one: the old one must do.
            libc.mount("/proc", target, "", MS_BIND | MS_REC)
            self.say("note", "/proc is the host's: this machine allows no fresh one")

    def _make_readonly(self, operation: Operation) -> None:
        remount(self.place(str(operation[1])), MS_RDONLY)

    def _mount_squashfuse(self, operation: Operation) -> None:
        from kedge.runtime.mounts.fuse import mount_squashfuse  # late: an unpacked image needs none

        file, offset, _, target, program = operation[1:6]
        server = self.servers.pop(0) if self.servers else None
        mount_squashfuse(self.place(str(file)), int(offset), self.place(str(target)), str(program), server)

    def _mount_loop(self, operation: Operation) -> None:
        from kedge.runtime.mounts.loop import mount_loop  # late: only for root

        file, offset, size, target, kind = operation[1:6]
        mount_loop(self.place(str(file)), int(offset), int(size), self.place(str(target)), str(kind))

    def _mount_fuse2fs(self, operation: Operation) -> None:
        from kedge.runtime.mounts.ext_mounts import mount_ext  # late: only for ext3 images

        file, offset, size, target, mode = operation[1:6]
        mount_ext(
            self.place(str(file)),
            int(offset),
            int(size),
            self.place(str(target)),
            writable=mode == "rw",
            servers=self.ext_servers,
        )

    def _enter(self, operation: Operation) -> None:
        root = self.place(str(operation[1]))
        if self.way_back is not None:
            self.way_back.leave()
        os.chdir(root)
        try:
            libc.pivot_root(".", ".")
            libc.unmount(".", MNT_DETACH)  # the old root lies over the new one now
        except OSError as problem:
            if problem.errno != errno.EINVAL:
                raise
            # A node whose root is the initial RAM file system cannot pivot away from it.
            libc.mount(root, "/", "", MS_MOVE)
            os.chroot(".")
        os.chdir("/")

    def _change_folder(self, operation: Operation) -> None:
        folders = str(operation[1]).split("\n")
        for folder in folders:
            try:
                change_folder(folder)
                return
            except (OSError, ValueError) as problem:
                if operation[2]:
                    raise
                self.say("note", f"cannot go to {folder}: {getattr(problem, 'strerror', problem)}")

    def _look_out(self) -> None:
        """Let the host's tree be the root: errors are explained with what is there."""
        if self.way_back is not None:
            self.way_back.take()

    def _explain(self, operation: Operation, problem: OSError) -> Exception:
        from kedge.errors import MountFailed  # late: success needs no errors

        return MountFailed(
            f"cannot {describe(operation)}: {problem.strerror or problem}",
            context={"errno": errno.errorcode.get(problem.errno or 0, "")},
            hint=find_hint(operation, problem),
        )


def remount_tree(target: str, flags: int) -> None:
    """Add flags to a mount and to all below it."""
    remount(target, flags)
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split()[4].decode("unicode_escape").encode("latin-1") for line in file]  # a space is \040
    for place in places:
        if place.startswith(os.fsencode(target).rstrip(b"/") + b"/"):
            try:
                remount(os.fsdecode(place), flags)
            except OSError as problem:
                if problem.errno == errno.EPERM:  # else it cannot be reached, by nobody
                    raise


def make_folder(path: str, mode: int) -> None:
    """A folder with exactly these permissions."""
    before = os.umask(0)
    try:
        os.mkdir(path, mode)
    finally:
        os.umask(before)


def remount(target: str, flags: int) -> None:
    """Add flags to one mount; those that the host gave it must be said again, or the kernel refuses."""
    found = os.statvfs(target).f_flag
    kept = flags | MS_BIND | MS_REMOUNT
    for flag in _KEPT_FLAGS:
        kept |= found & flag
    if found & _ST_RELATIME:
        kept |= MS_RELATIME
    libc.mount("none", target, "", kept)


def find_hint(operation: Operation, problem: OSError) -> str | None:
    """The remedy for the failures that users meet."""
    kind = operation[0]
    if kind == "chdir":
        return "the folder must exist inside the container: bind it with -B, or give another --pwd"
    if kind == "bind" and problem.errno == errno.ENOENT:
        inside = str(operation[2]).removeprefix(NEW)
        return f"--writable makes no mount points: mkdir -p IMAGE{inside} first, or use --overlay instead"
    if kind == "bind" and problem.errno == errno.ENOTDIR:
        return "a file can be bound to a file only, and a folder to a folder only"
    if kind == "bind" and problem.errno in (errno.EACCES, errno.EPERM):
        return "you may not read it, or its file system refuses: try another path"
    if problem.errno == errno.ELOOP:
        return "links of the image lead in a circle, or to its root: it is broken, or means harm"
    return _HINTS.get(str(kind))


def void(_: object) -> None:
    """Takes a result that nobody needs."""
