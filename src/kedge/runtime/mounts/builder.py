# SPDX-License-Identifier: BSD-3-Clause
"""Performs the operations of a plan, one after the other, in the namespaces of the new container.

While a container is built the host's tree stays where it is; everything new stands below one directory, the base, on
which a file system in memory was put that only this process sees. What is inside the container is opened there, and
used as it was opened: an image cannot make us mount or write outside, even if somebody changes it meanwhile.
"""

from __future__ import annotations

import errno
import os

from kedge.posix import libc
from kedge.posix.constants import (
    MNT_DETACH,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
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
from kedge.runtime.container_view import OPEN_DIRECTORY, ContainerView, Maker, make_inside, name_descriptor, open_inside
from kedge.runtime.images.node_cache import node_directory, own_directory
from kedge.runtime.mounts.operations import LATER, LOWER, MAY, MUST, NEW, OLD, SESSION, WARN, describe
from kedge.runtime.start.host_root import change_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kedge.runtime.mounts.ext3 import ExtServers
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.mounts.squashfuse import FuseServer
    from kedge.runtime.start.host_root import HostRoot

_ATTRIBUTES = ((MS_RDONLY, MOUNT_ATTR_RDONLY), (MS_NOSUID, MOUNT_ATTR_NOSUID), (MS_NODEV, MOUNT_ATTR_NODEV))
_KEPT_FLAGS = (MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_NOATIME, MS_NODIRATIME)  # as ST_* of statvfs
_EMPTY_DIRECTORIES = ("/mnt", "/media", "/srv", "/var/empty", "/var/opt")  # their content is covered meanwhile
_ST_RELATIME = 4096  # which has another number
_HINTS = {
    "tmpfs": "the mount point must be a directory, in the image or below a bind",
    "proc": "add a directory /proc to the image, or use --no-mount proc",
    "squashfuse": "--root-from unpack needs no squashfuse",
    "gocryptfs": "check the passphrase or key",
    "loop": "--root-from unpack needs no mount by the kernel",
    "write": "check the file size limit (ulimit -f) and the free memory, which holds this file",
    "hostname": "leave out --hostname",
}


class Builder:
    """Builds one container below `base`; `say(level, text)` hears what was left out and which way was taken."""

    def __init__(
        self,
        base: str,
        say: Callable[[str, str], None],
        servers: list[FuseServer] | None = None,
        host_root: HostRoot | None = None,
    ) -> None:
        self.base = base
        self.say = say
        self.host_root = host_root  # for when something fails after the root was entered
        self.servers = servers or []
        self.secret = ""  # what opens an encrypted image
        self.lets_setuid = False  # programs of the image may be set-user-ID
        self.ext_servers: ExtServers | None = None
        # Where an image that is a directory lies on the host: an overlay names it, so that it can be seen to be in use.
        self.image_folder = ""
        self.refused: list[tuple[str, str]] = []  # mount points that could not be made, and their shape
        self._performers: dict[str, Callable[[Operation], None]] = {
            "tmpfs": self._mount_tmpfs,
            "bind": self._bind,
            "folder": self._make_folder,
            "file": self._make_file,
            "write": self._write,
            "link": self._make_link,
            "owners": self._restore_owners,
            "overlay": self._mount_overlay,
            "relay": self._mount_overlay_again,
            "proc": self._mount_kernel_tree,
            "devpts": self._mount_kernel_tree,
            "mqueue": self._mount_kernel_tree,
            "readonly": self._make_readonly,
            "same": self._require_same,
            "squashfuse": self._mount_squashfuse,
            "gocryptfs": self._mount_gocryptfs,
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
        """Put the file system in memory on the base and make the directories of the trees.

        It cannot be bound: a bind of the directory that the base is in (/var/tmp) must not bring all this along. What
        is made for the container is bound, so it has a file system of its own.
        """
        libc.mount("kedge", self.base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
        libc.mount("none", self.base, "", MS_UNBINDABLE)
        for tree in (NEW, LOWER, SESSION):
            os.mkdir(self.base + tree)
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
                self.say("warn" if policy == WARN else "note", f"skipped: {describe(operation)}: {reason}")

    def place(self, path: str) -> str:
        """Where a path of the plan is now, of those that are not in a tree which others may change."""
        return path[len(OLD) :] or "/" if path.startswith(OLD) else self.base + path

    def open_place(self, path: str) -> int:
        """A descriptor of what a path of the plan leads to inside its tree; raises OSError."""
        root, inside = self._open_tree(path)
        try:
            found = open_inside(root, inside)
            if (
                path.startswith(NEW)
                and os.path.sameopenfile(root, found)
                and ContainerView(root).resolve(inside) == "/"
            ):
                os.close(found)  # an image whose /tmp is a link to / would vanish below it
                raise OSError(errno.ELOOP, "it leads to the root of the container", path)
            return found
        finally:
            os.close(root)

    def look(self) -> ContainerView:
        """A look into the container as it is now."""
        return ContainerView(os.open(self.base + NEW, OPEN_DIRECTORY))

    def plan_inside(self, make_plan: Callable[[ContainerView], list[Operation]]) -> list[Operation]:
        """A plan made from a look into the container."""
        view = self.look()
        try:
            return make_plan(view)
        finally:
            view.close()

    def _open_tree(self, path: str) -> tuple[int, str]:
        """The tree that a path is in, open, and the path in it; on the host the tree is the parent directory."""
        if path.startswith(OLD):
            tree, _, inside = path.rpartition("/")
        else:
            name, _, inside = path[1:].partition("/")
            tree = "/" + name
        return os.open(self.place(tree), OPEN_DIRECTORY), "/" + inside

    # -- operations

    def _mount_tmpfs(self, operation: Operation) -> None:
        with _OpenPlace(self, operation[1]) as target:
            libc.mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, str(operation[2]))

    def _bind(self, operation: Operation) -> None:
        flags = int(operation[3])
        with _OpenPlace(self, operation[1]) as source:
            with _OpenPlace(self, operation[2]) as target:
                if flags and _bind_restricted(source, target, flags):
                    return
                # Recursive always: the kernel refuses to uncover what is below a directory of another user namespace.
                libc.mount(source, target, "", MS_BIND | MS_REC)
            if flags:
                self._restrict(operation, source, flags)

    def _restrict(self, operation: Operation, source: str, flags: int) -> None:
        """Add flags to what was just mounted (before Linux 5.12)."""
        with _OpenPlace(self, operation[2]) as target:
            if not os.path.samefile(source, target):
                raise OSError(errno.ESTALE, "the image was changed meanwhile", str(operation[2]))
            _remount_tree(target, flags)

    def _make_folder(self, operation: Operation) -> None:
        self._make(operation, Maker("d", int(operation[2]), is_exact=self._is_ours(operation)))

    def _make_file(self, operation: Operation) -> None:
        self._make(operation, Maker("f", is_exact=self._is_ours(operation)))

    def _make(self, operation: Operation, maker: Maker) -> None:
        root, inside = self._open_tree(str(operation[1]))
        try:
            make_inside(root, inside, maker)
        finally:
            os.close(root)

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
            if operation[4:] and any(operation[4:]):
                _give_if_known(file, int(operation[4]), int(operation[5]))
        finally:
            os.close(file)

    def _make_link(self, operation: Operation) -> None:
        root, inside = self._open_tree(str(operation[2]))
        parent, _, name = inside.rpartition("/")
        try:
            folder = open_inside(root, parent or "/")
        finally:
            os.close(root)
        try:
            os.symlink(str(operation[1]), name, dir_fd=folder)  # the last name is not followed
        finally:
            os.close(folder)

    def _restore_owners(self, operation: Operation) -> None:
        from kedge.runtime.mounts.level_owners import restore_owners  # late: only builds have steps

        restore_owners(*(self.place(str(path)) for path in operation[1:3]))

    def _mount_overlay(self, operation: Operation) -> None:
        from kedge.runtime.mounts.overlay_mount import mount_overlay  # late: a sandbox that is written to has none

        lowers = [
            self.image_folder if lower == LOWER and self.image_folder else self.place(lower)
            for lower in str(operation[1]).split("\n")
        ]
        upper, work, target = (self.place(str(path)) for path in operation[2:5])
        is_written = bool(operation[5])
        way = mount_overlay(lowers, upper, work, target, is_written=is_written, lets_setuid=self.lets_setuid)
        if operation[0] == "overlay":  # put on again it is the same
            self.say("note", f"root: {way}")

    def _mount_overlay_again(self, operation: Operation) -> None:
        libc.unmount(self.place(str(operation[4])), MNT_DETACH)
        self._mount_overlay(operation)

    def _mount_kernel_tree(self, operation: Operation) -> None:
        kind = str(operation[0])
        flags = MS_NOSUID | MS_NOEXEC | (MS_NODEV if kind != "devpts" else 0)
        data = "newinstance,ptmxmode=0666,mode=0620" if kind == "devpts" else ""
        with _OpenPlace(self, operation[1]) as target:
            try:
                libc.mount(kind, target, kind, flags, data)
            except PermissionError:
                if kind != "proc":
                    raise
                # A host that hides parts of /proc (another container) lets nobody mount a fresh one: the old one does.
                libc.mount("/proc", target, "", MS_BIND | MS_REC)
                self.say("note", "using the host's /proc: this host does not allow mounting a new one")

    def _make_readonly(self, operation: Operation) -> None:
        with _OpenPlace(self, operation[1]) as target:
            remount(target, MS_RDONLY)

    def _require_same(self, operation: Operation) -> None:
        """Whoever may exchange directories of the host for links does not choose what is shown."""
        found = os.stat(self.place(str(operation[1])))
        if (found.st_dev, found.st_ino) != operation[2:4]:
            raise OSError(errno.ESTALE, "somebody exchanged it meanwhile", str(operation[1]))

    def _mount_squashfuse(self, operation: Operation) -> None:
        from kedge.runtime.mounts.squashfuse import mount_squashfuse  # late: an unpacked image needs none

        file, offset, _, target, program = operation[1:6]
        server = self.servers.pop(0) if self.servers else None
        mount_squashfuse(self.place(str(file)), int(offset), self.place(str(target)), str(program), server)

    def _mount_gocryptfs(self, operation: Operation) -> None:
        from kedge.runtime.images.encrypted import mount_encrypted  # late: few images are encrypted

        file, offset, _, target, program = operation[1:6]
        place = (self.place(str(file)), int(offset), self.place(str(target)))
        mount_encrypted(place, str(program), self.servers.pop(0), self.base, self.secret)

    def _mount_loop(self, operation: Operation) -> None:
        from kedge.runtime.mounts.loop_device import mount_loop  # late: only for root

        file, offset, size, target, kind = operation[1:6]
        mount_loop(self.place(str(file)), int(offset), int(size), self.place(str(target)), str(kind))

    def _mount_fuse2fs(self, operation: Operation) -> None:
        from kedge.runtime.mounts.ext3 import mount_ext  # late: only for ext3 images

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
        if self.host_root is not None:
            self.host_root.leave()
        libc.enter_root(root)

    def _change_folder(self, operation: Operation) -> None:
        folders = str(operation[1]).split("\n")
        for folder in folders:
            try:
                change_directory(folder)
                return
            except (OSError, ValueError) as problem:
                if operation[2]:
                    raise
                self.say("note", f"cannot change to {folder}: {getattr(problem, 'strerror', problem)}")

    def _look_out(self) -> None:
        """Let the host's tree be the root: errors are explained with what is there."""
        if self.host_root is not None:
            self.host_root.restore()

    def _explain(self, operation: Operation, problem: OSError) -> Exception:
        from kedge.errors import MountFailed  # late: success needs no errors
        from kedge.runtime.mounts.missing_proc import explain_missing_proc

        return explain_missing_proc() or MountFailed(
            f"cannot {describe(operation)}: {problem.strerror or problem}",
            context={"errno": errno.errorcode.get(problem.errno or 0, "")},
            hint=_find_hint(operation, problem),
        )


def _give_if_known(file: int, uid: int, gid: int) -> None:
    """Give a file to a user; where there is only one, it is that one's already."""
    try:
        os.fchown(file, uid, gid)
    except OSError as problem:
        if problem.errno != errno.EINVAL:
            raise


class _OpenPlace:
    """A path of the plan while something is done to it: in the container and in the image an open file, which stays
    the same whatever links are put on its way meanwhile.
    """

    def __init__(self, builder: Builder, path: object) -> None:
        self._builder = builder
        self._path = str(path)
        self._file = -1

    def __enter__(self) -> str:
        """A path for calls that mount."""
        if not self._path.startswith((NEW + "/", LOWER + "/")):
            return self._builder.place(self._path)
        self._file = self._builder.open_place(self._path)
        return name_descriptor(self._file)

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)


def _bind_restricted(source: str, target: str, flags: int) -> bool:
    """Bind a tree that has its flags before it is anywhere; whether that can be done here."""
    attributes = 0
    for flag, attribute in _ATTRIBUTES:
        attributes |= attribute if flags & flag else 0
    copy = -1
    try:
        copy = libc.copy_mounts(source)
        libc.set_mount_attributes(copy, attributes)
        libc.place_mounts(copy, target)
    except OSError as problem:
        # before Linux 5.12; mount(2) has better reasons where it is refused for good
        if problem.errno in (errno.ENOSYS, errno.EPERM, errno.EINVAL):
            return False
        raise
    finally:
        if copy >= 0:
            os.close(copy)
    return True


def _remount_tree(target: str, flags: int) -> None:
    """Add flags to a mount and to all below it."""
    remount(target, flags)
    top = os.fsencode(os.readlink(target) if os.path.islink(target) else target).rstrip(b"/") + b"/"
    with open("/proc/self/mountinfo", "rb") as file:
        places = [line.split()[4].decode("unicode_escape").encode("latin-1") for line in file]  # a space is \040
    for place in places:
        if place.startswith(top):
            try:
                remount(os.fsdecode(place), flags)
            except OSError as problem:
                if problem.errno == errno.EPERM:  # else it cannot be reached, by nobody
                    raise


def remount(target: str, flags: int) -> None:
    """Add flags to one mount; those that the host gave it must be said again, or the kernel refuses."""
    found = os.statvfs(target).f_flag
    kept = flags | MS_BIND | MS_REMOUNT
    for flag in _KEPT_FLAGS:
        kept |= found & flag
    if found & _ST_RELATIME:
        kept |= MS_RELATIME
    libc.mount("none", target, "", kept)


def _find_hint(operation: Operation, problem: OSError) -> str | None:
    """The remedy for the failures that users meet."""
    kind = operation[0]
    if kind == "chdir":
        return "the directory must exist inside the container: bind it with -B, or choose another --pwd"
    if kind == "bind" and problem.errno == errno.ENOENT:
        inside = str(operation[2]).removeprefix(NEW)
        return f"--writable creates no mount points: run mkdir -p IMAGE{inside} first, or use --overlay"
    if kind == "bind" and problem.errno == errno.ENOTDIR:
        return "bind a file to a file, and a directory to a directory"
    if kind == "bind" and problem.errno in (errno.EACCES, errno.EPERM):
        return "you cannot read it, or its file system does not allow binds: use another path"
    if problem.errno == errno.ELOOP:
        return "symlinks in the image form a loop or lead to its root: the image is broken or malicious"
    return _HINTS.get(str(kind))


def void(_: object) -> None:
    """Takes a result that nobody needs."""


def choose_base(environ: Mapping[str, str]) -> str:
    """The directory on which a container is built: one of ours, or where nothing can be written one that is empty."""
    for find_directory in (node_directory, _memory_directory):
        try:
            return own_directory(find_directory(environ) + "/session")
        except _list_refusals():
            continue
    for folder in _EMPTY_DIRECTORIES:
        try:
            if not os.listdir(folder):
                return folder
        except OSError:
            continue
    return "/tmp"


def _memory_directory(_: Mapping[str, str]) -> str:
    return own_directory(f"/dev/shm/kedge-{os.getuid()}")


def _list_refusals() -> tuple[type[Exception], ...]:
    """What a directory that cannot be used raises; Python evaluates this only once something was raised."""
    from kedge.errors import FileProblem, InvalidSetting, NoSpace  # late: success needs no errors

    return OSError, FileProblem, InvalidSetting, NoSpace
