# SPDX-License-Identifier: BSD-3-Clause
"""Puts an overlay on the container's root: the kernel's own, else fuse-overlayfs; by trying, and by file-system type.

The kernel's overlay is never tried where it is known to hang, to corrupt or to panic, for there trying tells too late.
"""

from __future__ import annotations

import os

from kedge.posix import constants, libc
from kedge.runtime.host_facts import is_privileged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

UPPER = (
    "upper"  # the directory that takes the changes, in a directory or ext3 image of the user's; the name is Apptainer's
)
WORK = "work"  # beside it; Apptainer's too
# the kernel refuses these as the upper layer of an overlay, or corrupts and hangs; fuse-overlayfs manages on them
NO_KERNEL_UPPER = {
    constants.NFS_SUPER_MAGIC: "NFS",
    constants.LUSTRE_SUPER_MAGIC: "Lustre",
    constants.GPFS_SUPER_MAGIC: "GPFS",
    constants.PANFS_SUPER_MAGIC: "PanFS",
    constants.BEEGFS_SUPER_MAGIC: "BeeGFS",
    constants.CEPH_SUPER_MAGIC: "CephFS",
    constants.SMB2_SUPER_MAGIC: "SMB",
    constants.AFS_SUPER_MAGIC: "AFS",
    constants.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
    constants.FUSE_SUPER_MAGIC: "FUSE",
    constants.OVERLAYFS_SUPER_MAGIC: "overlay",
}
# Lower layers that have made kernels hang or panic: https://github.com/apptainer/apptainer/issues/2096 and 2657
_NO_KERNEL_LOWER = {
    constants.LUSTRE_SUPER_MAGIC: "Lustre",
    constants.GPFS_SUPER_MAGIC: "GPFS",
    constants.PANFS_SUPER_MAGIC: "PanFS",
    constants.ECRYPTFS_SUPER_MAGIC: "eCryptfs",
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
    flags = constants.MS_NODEV | (0 if lets_setuid else constants.MS_NOSUID)
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
    if any(libc.file_system_type(lower) == constants.FUSE_SUPER_MAGIC for lower in lowers):
        return "for writing above FUSE, fuse-overlayfs is preferred"
    if not is_privileged():
        try:  # without these attributes a directory cannot replace one that was deleted; tmpfs has them since Linux 6.6
            os.setxattr(upper, _PROBE, b"1", follow_symlinks=False)
            os.removexattr(upper, _PROBE, follow_symlinks=False)
        except OSError:
            return "the upper file system has no user extended attributes"
    return ""


def mount_kernel(
    lowers: list[str], upper: str, work: str, target: str, flags: int = constants.MS_NOSUID | constants.MS_NODEV
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
    from kedge.runtime.mounts.fuse_program import find_program, serve_fuse  # late: only where the kernel's cannot be

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
    libc.mount("kedge", _SAFE_PLACE, "tmpfs", constants.MS_NOSUID | constants.MS_NODEV, "mode=755")
    for file, name in zip(files, names, strict=True):
        os.mkdir(name)
        libc.mount(f"/proc/self/fd/{file}", name, "", constants.MS_BIND | constants.MS_REC)


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
    from kedge.errors import MountFailed  # late: only when something is wrong
    from kedge.runtime.mounts.missing_proc import explain_missing_proc

    return explain_missing_proc() or MountFailed(
        f"cannot mount the overlay {upper} over the image on this node"
        if upper
        else "cannot mount an overlay on this node",
        context={"tried": "; ".join(reasons), "upper": upper},
        hint="install fuse-overlayfs, or use an overlay directory on a local disk of the node",
    )
