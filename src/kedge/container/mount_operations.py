# SPDX-License-Identifier: BSD-3-Clause
"""Operations on mounts as values, their order, and what they meet: the container's tree as it grows, overlays."""

from __future__ import annotations

import errno
import os
import stat

from kedge.base.frozen import frozen, list_names
from kedge.container.facts import is_privileged
from kedge.system import libc
from kedge.system.libc import MS_NODEV, MS_NOSUID, MS_RDONLY
from kedge.system.views import MAXIMUM_LINKS, DirectoryView, split_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Final, Literal

    from kedge.container.facts import Payload
    from kedge.system.views import View

    Policy = Literal["must", "warn", "may", "later"]


# The operations a plan is made of, as values: `enter` performs them in order, `--dry-run` prints them.
#
# Paths begin with the name of the tree they are in: OLD, NEW, LOWER, SESSION. Each has its `kind` and its `text`, by
# which it is told to programs and to persons, and a `policy`: what happens where it fails.

OLD = "/host"  # the host's tree
NEW = "/root"  # the container's tree
LOWER = "/lower"  # the image's root file system
IMAGE_ROOT = "/rootfs"  # where the image is in the tree of a recipe's script with programs of the host
SESSION = "/session"  # files that are made for this container: passwd, group, upper layers in memory

# what happens when an operation fails
MUST: Final = "must"  # an error that ends the start
WARN: Final = "warn"  # said, and left out
MAY: Final = "may"  # left out; said with --verbose
LATER: Final = "later"  # remembered: mount points that cannot be made come from an underlay of binds


@frozen
class Tmpfs:
    """An empty file system in memory, with the options of mount(8)."""

    kind = "tmpfs"
    text = "mount an empty tmpfs on {target} ({options})"
    target: str
    options: str
    policy: Policy = MUST


@frozen
class BindMount:
    """Another place for a tree; `flags` are added to those that its mounts have."""

    kind = "bind"
    text = "bind {source} to {target}{readonly}"
    source: str
    target: str
    flags: int
    policy: Policy = MUST


@frozen
class MakeDirectory:
    """A directory and what is missing above it; one that is there stays as it is."""

    kind = "folder"
    text = "create the directory {path}"
    path: str
    mode: int = 0o755
    policy: Policy = MUST


@frozen
class MakeFile:
    """An empty file, likewise."""

    kind = "file"
    text = "create the file {path}"
    path: str
    policy: Policy = MUST


@frozen
class WriteFile:
    """A file with its content; its owner is root where none is named."""

    kind = "write"
    text = "write {path} ({size} bytes)"
    policy = MUST
    path: str
    content: str
    mode: int = 0o644
    user: int | None = None
    group: int | None = None


@frozen
class MakeLink:
    """A symlink that says `content`."""

    kind = "link"
    text = "create the symlink {path} -> {content}"
    policy = MUST
    content: str
    path: str


@frozen
class RestoreOwners:
    """In a directory: the files of a layer whose owners and modes are others in the image."""

    kind = "owners"
    text = "show the files of {layer} that have other owners or modes than on this node, from {directory}"
    policy = MUST
    layer: str
    directory: str


@frozen
class Overlay:
    """Layers one above the other, the highest of `lowers` first; `is_written`: programs will write there."""

    kind = "overlay"
    text = "mount an overlay on {target}: lower {lowers}, upper {upper}"
    policy = MUST
    lowers: tuple[str, ...]
    upper: str
    work: str
    target: str
    is_written: bool


@frozen
class Relay:
    """The overlay that is there is put on again, with other layers."""

    kind = "relay"
    text = "mount the overlay on {target} again, above the mount points that the image lacks"
    policy = MUST
    overlay: Overlay


@frozen
class KernelTree:
    """A file system of the kernel's own: proc, devpts or mqueue."""

    text = "mount {kind} on {target}"
    kind: str
    target: str
    policy: Policy = MUST


@frozen
class MakeReadonly:
    """One mount, not those below it."""

    kind = "readonly"
    text = "make {target} read-only"
    policy = MUST
    target: str


@frozen
class RequireSame:
    """The directory at a path must still be the one that was chosen."""

    kind = "same"
    text = "show {path}, which is not the directory that was chosen"
    policy = MUST
    path: str
    device: int
    inode: int


@frozen
class FilePart:
    """A file system in a file of the host, and where it is to appear."""

    file: str
    offset: int
    size: int
    target: str


@frozen
class Squashfuse:
    """A SquashFS, by FUSE."""

    kind = "squashfuse"
    text = "mount the SquashFS file system in {file} (offset {offset}) on {target} with {program}"
    policy = MUST
    part: FilePart
    program: str


@frozen
class Gocryptfs:
    """An encrypted SquashFS: `program` is the squashfuse that mounts what gocryptfs decrypts."""

    kind = "gocryptfs"
    text = "decrypt the file system in {file} (offset {offset}) and mount it on {target} with gocryptfs and {program}"
    policy = MUST
    part: FilePart
    program: str


@frozen
class Loop:
    """A file system that the kernel mounts, for root."""

    kind = "loop"
    text = "mount the {file_system} file system in {file} (offset {offset}) on {target} with the kernel"
    policy = MUST
    part: FilePart
    file_system: str


@frozen
class Fuse2fs:
    """An ext file system; `mode` is ro or rw."""

    kind = "fuse2fs"
    text = "mount the ext file system in {file} (offset {offset}) on {target} ({mode})"
    policy = MUST
    part: FilePart
    mode: str


@frozen
class SetHostName:
    """In the container's own UTS namespace."""

    kind = "hostname"
    text = "set the host name to {name}"
    policy = MUST
    name: str


@frozen
class SetUmask:
    """That of the program."""

    kind = "umask"
    text = "set the umask to {mask:03o}"
    policy = MUST
    mask: int


@frozen
class Enter:
    """From here on this is the root, and nothing of the host is reachable."""

    kind = "enter"
    text = "make {root} the root"
    policy = MUST
    root: str


@frozen
class ChangeDirectory:
    """To the first that can be entered; with `is_strict` to the first, or the start fails."""

    kind = "chdir"
    text = "change to {directories}"
    policy = MUST
    directories: tuple[str, ...]  # of the container: they begin with the name of no tree
    is_strict: bool


Mount = Tmpfs | BindMount | KernelTree | Overlay | Relay | MakeReadonly
FileMount = Squashfuse | Gocryptfs | Loop | Fuse2fs
Making = MakeDirectory | MakeFile | WriteFile | MakeLink | RestoreOwners
Setting = RequireSame | SetHostName | SetUmask | Enter | ChangeDirectory
Operation = Mount | FileMount | Making | Setting


def describe(operation: Operation) -> str:
    """One line for a person."""
    parts = {"kind": operation.kind, "readonly": "", "size": 0}
    for name, value in _list_parts(operation):
        parts[name] = _show_path(value) if isinstance(value, str) else value
    match operation:
        case BindMount():
            parts["readonly"] = ", read-only" if operation.flags & MS_RDONLY else ""
        case WriteFile():
            parts["size"] = len(operation.content)
        case Overlay():
            parts["lowers"] = " over ".join(map(_show_path, operation.lowers))
        case ChangeDirectory():
            parts["directories"] = ", else ".join(operation.directories)
    return operation.text.format(**parts)


def list_fields(operation: Operation) -> list[str | int]:
    """The fields of an operation as programs read them: texts and numbers, in the order of its class."""
    return [
        "\n".join(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
        for _, value in _list_parts(operation)
    ]


def _list_parts(value: Operation | FilePart) -> list[tuple[str, Any]]:
    """Names and contents, also of values within it, of what was given."""
    parts: list[tuple[str, Any]] = []
    for name in list_names(type(value)):
        part = getattr(value, name)
        if isinstance(part, FilePart | Overlay):
            parts += _list_parts(part)
        elif part is not None and name != "kind":
            parts.append((name, part))
    return parts


def _show_path(path: str) -> str:
    """A path as the user knows it: `host:/home/x`, `container:/data`."""
    for prefix, name in ((OLD, "host:"), (NEW, "container:"), (LOWER, "image:"), (SESSION, "session:")):
        if path == prefix or path.startswith(prefix + "/"):
            return name + (path[len(prefix) :] or "/")
    return path


def render_plan(operations: list[Operation], payload: Payload, *, as_json: bool) -> str:
    """What `--dry-run` prints: every operation in order, then the program and its environment, without secrets."""
    import json  # late, all: only a dry run prints a plan
    import shlex

    from kedge.base.secret_text import mask_value, mask_words

    program = mask_words(payload.argv)
    environ = {name: mask_value(name, value) for name, value in payload.environ.items()}
    if as_json:
        described = [
            {"kind": operation.kind, "fields": list_fields(operation), "text": describe(operation)}
            for operation in operations
        ]
        plan = {"operations": described, "program": program, "environment": environ}
        return json.dumps(plan, indent=2)
    lines = [describe(operation) for operation in operations]
    lines.append(f"run {shlex.join(program)}")
    lines += [f"  {name}={_show_value(value)}" for name, value in sorted(environ.items())]
    return "\n".join(lines)


def _show_value(value: str) -> str:
    shown = value.encode("unicode_escape", "surrogateescape").decode("ascii") if not value.isprintable() else value
    return shown if len(shown) <= 200 else f"{shown[:200]}… ({len(value)} characters)"


# What a plan collects: mounts in their order, and the points for them that the image lacks.

GUARDED = MS_NOSUID | MS_NODEV
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # that every program may expect


class Points:
    """What is mounted where, in order; `operations` puts the making of missing mount points first."""

    def __init__(self, image: View) -> None:
        self.image = image
        self.mounts: list[Operation] = []
        self.wanted: dict[str, str] = {}  # destination: 'd' or 'f'
        self.covers: list[tuple[str, str]] = []  # what covers the image so far, and with what

    def want(self, destination: str, shape: str, *, by: str) -> str:
        """A place that must exist when `by` (bind or tmpfs) covers it; returns its path in the plan.

        What is covered already cannot be made in the image: it is made where it lies then, on the host too.
        """
        above = [kind for path, kind in self.covers if destination.startswith(path.rstrip("/") + "/")]
        if not above:
            self.wanted.setdefault(destination, shape)
        else:
            self.mounts.append(make_point(destination, shape, MUST if above[-1] == "tmpfs" else MAY))
        self.covers.append((destination, by))
        return NEW + destination

    def bind(self, source: str, destination: str, shape: str, *, flags: int = GUARDED, policy: Policy = MUST) -> None:
        """Let something of the host appear."""
        self.mounts.append(BindMount(OLD + source, self.want(destination, shape, by="bind"), flags, policy))

    def bind_session(self, name: str, destination: str, shape: str = "f") -> None:
        """Let something that was made for this container appear."""
        target = self.want(destination, shape, by="bind")
        self.mounts.append(BindMount(f"{SESSION}/{name}", target, GUARDED, WARN))

    def tmpfs(self, destination: str, size: int, mode: str) -> None:
        """An empty file system in memory."""
        options = f"mode={mode},size={size}" if size else f"mode={mode}"
        self.mounts.append(Tmpfs(self.want(destination, "d", by="tmpfs"), options))

    def add(self, *operations: Operation) -> None:
        """Anything else."""
        self.mounts += operations

    def missing(self) -> list[tuple[str, str]]:
        """Mount points that the image lacks, or has in the wrong shape."""
        return [(path, shape) for path, shape in self.wanted.items() if not self.image.kind(path)]


def make_point(path: str, shape: str, policy: Policy) -> MakeDirectory | MakeFile:
    """What makes a mount point."""
    return MakeDirectory(NEW + path, policy=policy) if shape == "d" else MakeFile(NEW + path, policy)


class MountPlan:
    """What is done once the root is in its place, in two parts."""

    def __init__(self, points: Points, before: list[Operation], after: list[Operation]) -> None:
        self.missing = points.missing()
        # mount points, made in the layer above the image; those that cannot be made come from an underlay
        self.making: list[Operation] = [make_point(path, shape, LATER) for path, shape in self.missing]
        self.rest: list[Operation] = [*before, *points.mounts, *after]


# Finding and making things in a tree that others may change meanwhile: a link may be where a folder was a moment ago.
#
# So nothing is checked first and used later: the kernel finds each name, in one call that never leaves the root
# (Linux
# 5.6); before that, and to make things, directories are opened one in the other. What is done is done to what was
# opened.

OPEN_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = {stat.S_IFDIR: "d", stat.S_IFREG: "f"}


def open_inside(root: int, path: str, flags: int = os.O_PATH) -> int:
    """A descriptor of what a name leads to, as if the open directory `root` were the root; raises OSError."""
    try:
        return libc.open_in_root(root, path, flags | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            raise
    return Walk(root).go(
        path, flags
    )  # an old kernel, or one that gave up because somebody moves directories all the time


def make_inside(root: int, path: str, maker: Maker) -> None:
    """Make what is missing of a path, in whatever directories its links lead to inside of `root`; raises OSError."""
    found = Walk(root, maker).go(path, os.O_PATH)
    try:
        if stat.S_ISDIR(os.fstat(found).st_mode) != (maker.shape == "d"):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    finally:
        os.close(found)


def name_descriptor(descriptor: int) -> str:
    """A path to what is open, for calls that take no descriptor; no link is followed on it."""
    return f"/proc/self/fd/{descriptor}"


class Maker:
    """Makes a directory or, for the shape `f`, a file, and the directories above it."""

    def __init__(self, shape: str, mode: int = 0o755, *, is_exact: bool = False) -> None:
        self.shape = shape
        self._mode = mode
        self._is_exact = is_exact  # whether the umask says nothing about it

    def make(self, folder: int, name: str, *, is_last: bool) -> None:
        """Make one name in an open directory; that somebody was faster is fine."""
        before = os.umask(0) if self._is_exact else -1
        try:
            if is_last and self.shape == "f":
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
            else:
                os.mkdir(name, self._mode, dir_fd=folder)
        except FileExistsError:
            return
        finally:
            if self._is_exact:
                os.umask(before)


class Walk:
    """A way from a root down, on which every directory stays open: `..` leads to where it came from."""

    def __init__(self, root: int, maker: Maker | None = None) -> None:
        self._root = root
        self._maker = maker
        self._folders: list[int] = []

    def go(self, path: str, flags: int) -> int:
        """Open what is at the end; raises OSError."""
        left = split_path(path)[::-1]
        links = 0
        try:
            while left:
                name = left.pop()
                if name == "..":
                    self._rise(1)
                    continue
                target = self._read_link(name)
                if not target:
                    self._folders.append(self._open(name, flags if not left else OPEN_DIRECTORY, is_last=not left))
                    continue
                links += 1
                if links > MAXIMUM_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    self._rise(len(self._folders))
                left += split_path(target)[::-1]
            return self._folders.pop() if self._folders else os.open(".", flags | os.O_CLOEXEC, dir_fd=self._root)
        finally:
            self._rise(len(self._folders))

    @property
    def _here(self) -> int:
        return self._folders[-1] if self._folders else self._root

    def _rise(self, count: int) -> None:
        for _ in range(min(count, len(self._folders))):
            os.close(self._folders.pop())

    def _read_link(self, name: str) -> str:
        try:
            return os.readlink(name, dir_fd=self._here)
        except OSError:
            return ""

    def _open(self, name: str, flags: int, *, is_last: bool) -> int:
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            found = os.open(name, flags, dir_fd=self._here)
        except FileNotFoundError:
            if self._maker is None:
                raise
            self._maker.make(self._here, name, is_last=is_last)
            found = os.open(name, flags, dir_fd=self._here)
        if stat.S_ISLNK(os.fstat(found).st_mode):  # put there just now
            os.close(found)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return found


class ContainerView(DirectoryView):
    """The tree of a container, whose root is the open directory `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name_descriptor(descriptor))
        self.descriptor = descriptor

    def close(self) -> None:
        """After the last look."""
        os.close(self.descriptor)

    def _open(self, path: str, flags: int) -> int:
        """A descriptor of what the name leads to inside the root; -1 when there is nothing."""
        try:
            return open_inside(self.descriptor, path, flags)
        except (OSError, ValueError):
            return -1

    def _mode(self, path: str) -> int:
        file = self._open(path, os.O_PATH)
        if file < 0:
            return 0
        try:
            return os.fstat(file).st_mode
        except OSError:  # a server of files, FUSE or another node, has lost it meanwhile
            return 0
        finally:
            os.close(file)

    def kind(self, path: str) -> str:
        """`d` directory, `f` file, `c` device, pipe or socket, or the empty string when there is nothing."""
        mode = self._mode(path)
        return _KINDS.get(stat.S_IFMT(mode), "c") if mode else ""

    def is_executable(self, path: str) -> bool:
        """Whether a path is a file with an execute bit."""
        mode = self._mode(path)
        return stat.S_ISREG(mode) and bool(mode & 0o111)

    def read(self, path: str, limit: int = 1 << 20, offset: int = 0) -> bytes | None:
        """At most `limit` bytes of a regular file; None when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_NONBLOCK)
        if file < 0:
            return None
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return None
            pieces = []
            step = found.st_size + 1  # as much memory as it takes: a megabyte for each of many small files takes longer
            while limit > 0 and (piece := os.pread(file, min(limit, step), offset)):
                pieces.append(piece)
                limit, offset = limit - len(piece), offset + len(piece)
            return b"".join(pieces)
        except OSError:
            return None
        finally:
            os.close(file)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is none or it cannot be read."""
        file = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        if file < 0:
            return []
        try:
            return sorted(os.listdir(file))
        except OSError:
            return []
        finally:
            os.close(file)

    def read_link(self, path: str) -> str:
        """What the link says, its own name not followed; the empty string when it is none."""
        parent, _, name = path.rstrip("/").rpartition("/")
        file = self._open(parent or "/", OPEN_DIRECTORY)
        if file < 0:
            return ""
        try:
            return os.readlink(name, dir_fd=file)
        except (OSError, ValueError):
            return ""
        finally:
            os.close(file)


# Puts an overlay on the container's root: the kernel's own, else fuse-overlayfs; by trying, and by file-system type.
#
# The kernel's overlay is never tried where it is known to hang, to corrupt or to panic, for there trying tells too
# late.

UPPER = (
    "upper"  # the directory that takes the changes, in a directory or ext3 image of the user's; the name is Apptainer's
)
WORK = "work"  # beside it; Apptainer's too
# the kernel refuses these as the upper layer of an overlay, or corrupts and hangs; fuse-overlayfs manages on them
NO_KERNEL_UPPER = {
    libc.NFS_SUPER_MAGIC: "NFS",
    libc.LUSTRE_SUPER_MAGIC: "Lustre",
    libc.GPFS_SUPER_MAGIC: "GPFS",
    libc.PANFS_SUPER_MAGIC: "PanFS",
    libc.BEEGFS_SUPER_MAGIC: "BeeGFS",
    libc.CEPH_SUPER_MAGIC: "CephFS",
    libc.SMB2_SUPER_MAGIC: "SMB",
    libc.AFS_SUPER_MAGIC: "AFS",
    libc.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
    libc.FUSE_SUPER_MAGIC: "FUSE",
    libc.OVERLAYFS_SUPER_MAGIC: "overlay",
}
# Lower layers that have made kernels hang or panic: https://github.com/apptainer/apptainer/issues/2096 and 2657
_NO_KERNEL_LOWER = {
    libc.LUSTRE_SUPER_MAGIC: "Lustre",
    libc.GPFS_SUPER_MAGIC: "GPFS",
    libc.PANFS_SUPER_MAGIC: "PanFS",
    libc.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
}
_UNSAFE = ',:\\"'  # they mean something in the options of an overlay
_SAFE_PLACE = "/tmp"  # any directory that every machine has
_LONGEST_OPTIONS = 4000  # the kernel takes one page, which may be 4096 bytes
_UNKNOWN_USER = 65534  # what the kernel shows for users that a namespace does not know
_PROBE = "user.kedge.probe"
_MOST_FOLDERS = 2000  # that are looked through for files of fuse-overlayfs


def mount_overlay(
    lowers: list[str], upper: str, work: str, target: str, *, is_written: bool = False, lets_setuid: bool = False
) -> str:
    """Lay `lowers`, highest first, under `upper` on `target`; returns which way worked and why not a better one.

    `is_written` says that programs will write there, not only we ourselves, who make a few mount points. Raises
    MountFailed with every reason.
    """
    flags = libc.MS_NODEV | (0 if lets_setuid else libc.MS_NOSUID)
    ways: list[tuple[str, Callable[[], None]]] = [
        ("kernel overlay", lambda: mount_kernel(lowers, upper, work, target, flags)),
        ("fuse-overlayfs", lambda: mount_fuse(lowers, upper, work, target)),
    ]
    _check_folders([*lowers, upper, work])
    _check_owner(upper)
    refusal = _refuse_kernel(lowers, upper)
    doubt = "" if refusal else _doubt_kernel(lowers, upper, is_written=is_written)
    reasons = []
    if refusal or doubt:
        reasons.append(f"kernel overlay: {refusal or doubt}")
        first = ways.pop(0)
        ways += [first] if doubt else []
    for name, mount in ways:
        try:
            mount()
        except OSError as problem:
            reasons.append(f"{name}: {problem.strerror or problem}")
        else:
            return f"{name} ({'; '.join(reasons)})" if reasons else name
    raise _explain(reasons, upper)


def _refuse_kernel(lowers: list[str], upper: str) -> str:
    """Why the kernel's overlay must not be tried; the empty string when it may."""
    for lower in lowers:
        name = _NO_KERNEL_LOWER.get(libc.file_system_type(lower))
        if name:
            return f"not used above {name}, where it can hang the kernel"
    name = NO_KERNEL_UPPER.get(libc.file_system_type(upper))
    return f"{name} cannot hold its upper layer" if name else ""


def _doubt_kernel(lowers: list[str], upper: str, *, is_written: bool) -> str:
    """Why fuse-overlayfs is better; the empty string when it is not."""
    layers = [upper, *lowers]
    for number, layer in enumerate(layers):
        if layer.endswith("/" + UPPER) and _has_whiteout_files(layer, layers[number + 1 :]):
            return "fuse-overlayfs wrote one of the layers, and marks deleted files in its own way"
    if not is_written:
        return ""
    if any(libc.file_system_type(lower) == libc.FUSE_SUPER_MAGIC for lower in lowers):
        return "for writing above FUSE, fuse-overlayfs is preferred"
    if not is_privileged():
        try:  # without these attributes a directory cannot replace one that was deleted; tmpfs has them since Linux 6.6
            os.setxattr(upper, _PROBE, b"1", follow_symlinks=False)
            os.removexattr(upper, _PROBE, follow_symlinks=False)
        except OSError:
            return "the upper file system has no user extended attributes"
    return ""


def mount_kernel(
    lowers: list[str], upper: str, work: str, target: str, flags: int = libc.MS_NOSUID | libc.MS_NODEV
) -> None:
    """The kernel's overlay; raises OSError."""
    with _SafeNames([*lowers, upper, work]) as names:
        *safe_lowers, safe_upper, safe_work = names
        options = f"lowerdir={':'.join(safe_lowers)},upperdir={safe_upper},workdir={safe_work}"
        if not is_privileged():
            options += ",userxattr"  # trusted attributes are real root's alone
        libc.mount("overlay", target, "overlay", flags, options)
    try:  # the kernel closes its directory in it to everybody, which newer programs such as rm cannot delete
        os.chmod(f"{work}/work", 0o1700)  # the sticky bit says that it is not of fuse-overlayfs: `is_of_fuse`
    except OSError:
        return


def mount_fuse(lowers: list[str], upper: str, work: str, target: str) -> None:
    """fuse-overlayfs; raises OSError."""
    from kedge.container.fuse_program import find_program, serve_fuse  # late: only where the kernel's cannot be

    program = find_program("fuse-overlayfs")
    if not program:
        raise OSError("it is not installed")
    # It resolves links before it looks for colons, so here safe names are places in its own mount namespace.
    # What lies above must stay one mount, or nothing could be moved between its two directories.
    top, _, upper_name = upper.rpartition("/")
    other, _, work_name = work.rpartition("/")
    if top != other or any(c in upper_name + work_name for c in _UNSAFE):
        raise OSError(f"{upper} and {work} must be in the same directory")
    names = [f"{_SAFE_PLACE}/{number}" for number in range(len(lowers) + 1)]
    options = f"lowerdir={':'.join(names[1:])},upperdir={names[0]}/{upper_name},workdir={names[0]}/{work_name}"
    with open(program, "rb") as file:
        if b"noacl" in file.read():
            options += ",noacl"  # else directories of a layer that knows no access lists, as SquashFS, cannot be opened
    argv = [program, "-f", "-o", options]
    serve_fuse(argv, target, "fuse-overlayfs", prepare=lambda: _bind_folders([top, *lowers], names))


def _bind_folders(folders: list[str], names: list[str]) -> None:
    """Let directories appear under other names, which hide what was in their place."""
    files = [os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for folder in folders]
    libc.mount("kedge", _SAFE_PLACE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755")
    for file, name in zip(files, names, strict=True):
        os.mkdir(name)
        libc.mount(f"/proc/self/fd/{file}", name, "", libc.MS_BIND | libc.MS_REC)


def _has_whiteout_files(layer: str, below: list[str]) -> bool:
    """Whether fuse-overlayfs noted deletions in the layer as files `.wh.NAME`, which mean nothing to the kernel.

    They can only be in directories that a layer below has too, so this looks into few; where there are very many, yes.
    """
    waiting, seen = [""], 0
    while waiting:
        folder = waiting.pop()
        seen += 1
        if seen > _MOST_FOLDERS:
            return True
        try:
            with os.scandir(layer + folder) as entries:
                for entry in entries:
                    if entry.name.startswith(".wh."):
                        return True
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False) and any(os.path.isdir(lower + path) for lower in below):
                        waiting.append(path)
        except OSError:
            continue  # what we may not read has nothing of ours
    return False


class _SafeNames:
    """Paths fit for mount options: through descriptors where they have special characters or are too long together,
    and where they are in a directory of the user's, in which somebody might put a link in their place.
    """

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._files: list[int] = []

    def __enter__(self) -> list[str]:
        is_long = sum(len(os.fsencode(path)) + 1 for path in self._paths) > _LONGEST_OPTIONS
        return [self._name(path) if is_long or _needs_descriptor(path) else path for path in self._paths]

    def _name(self, path: str) -> str:
        file = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._files.append(file)
        return f"/proc/self/fd/{file}"

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)


def _needs_descriptor(path: str) -> bool:
    """Whether a path is not to be named in options as it is."""
    return path.endswith(("/" + UPPER, "/" + WORK)) or any(c in path for c in _UNSAFE)


def _check_folders(folders: list[str]) -> None:
    for folder in folders:
        # A link could lead out of an overlay that somebody else made, to directories of the host.
        if not os.path.isdir(folder) or os.path.islink(folder):
            from kedge.errors import MountFailed  # late: only when something is wrong

            raise MountFailed(
                f"the overlay has no directory '{os.path.basename(folder)}'",
                context={"missing": folder},
                hint="an overlay image contains the directories 'upper' and 'work': use 'kedge overlay create'",
            )


def _check_owner(upper: str) -> None:
    """Refuse a layer of a user that this user namespace does not know: nothing could be written to it."""
    if os.stat(upper).st_uid != _UNKNOWN_USER or os.geteuid() == _UNKNOWN_USER:
        return
    from kedge.errors import MountFailed  # late: only when something is wrong

    if os.geteuid() == 0:
        message = f"the overlay {upper} does not belong to root, which --fakeroot needs"
        hint = "create one with 'kedge overlay create --fakeroot', or leave out --fakeroot"
    else:
        message = f"the overlay {upper} belongs to another user, or was made for --fakeroot"
        hint = "use --fakeroot, use it read-only (':ro'), or create your own with 'kedge overlay create'"
    raise MountFailed(message, context={"upper": upper}, hint=hint)


def _explain(reasons: list[str], upper: str) -> Exception:
    from kedge.container.missing_proc import explain_missing_proc
    from kedge.errors import MountFailed  # late: only when something is wrong

    return explain_missing_proc() or MountFailed(
        f"cannot mount the overlay {upper} over the image on this node"
        if upper
        else "cannot mount an overlay on this node",
        context={"tried": "; ".join(reasons), "upper": upper},
        hint="install fuse-overlayfs, or use an overlay directory on a local disk of the node",
    )
