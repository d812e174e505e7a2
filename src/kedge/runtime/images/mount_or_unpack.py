# SPDX-License-Identifier: BSD-3-Clause
"""How kedge gets at an image's files: as a directory, mounted (squashfuse, gocryptfs, fuse2fs, kernel), or unpacked.

Without FUSE, a SquashFS or SIF image is unpacked once on this node; root lets the kernel mount it.
"""

from __future__ import annotations

import os

from kedge.posix.constants import MS_NODEV, MS_NOSUID
from kedge.runtime.images.node_cache import choose_node_directory, describe_storage, find_unpacked
from kedge.runtime.mounts.operations import LOWER, MUST, OLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.runtime.images.image_file import ImageFile
    from kedge.runtime.mounts.operations import Operation
    from kedge.runtime.options import RunOptions

UNPACK_LIMIT = 4 << 30  # bytes: a larger SquashFS is not unpacked at its first use where squashfuse can mount it


class Root:
    """The chosen way; `unpack` means that the image must be unpacked on this node first."""

    def __init__(self, way: str, reason: str, folder: str = "", program: str = "") -> None:
        self.way = way  # directory, squashfuse, gocryptfs, loop, fuse2fs or unpack
        self.reason = reason
        self.folder = folder
        self.program = program
        self.secret = ""  # what opens an encrypted image
        self.is_temporary = False  # unpacked for this container alone, and to be removed after it


def choose_root(image: ImageFile, options: RunOptions, environ: Mapping[str, str], uid: int) -> Root:
    """The best way that works on this node; --root-from demands one."""
    if image.kind == "folder":
        return Root("folder", "the image is a directory", image.path)
    if image.file_system == "gocryptfs":
        from kedge.runtime.images.encrypted import require_programs  # late: few images are encrypted

        program = require_programs(image, find_usable_squashfuse())
        return Root("gocryptfs", f"encrypted: mounted by gocryptfs and {program}", program=program)
    if image.file_system != "squashfs":
        return Root("fuse2fs", "ext3 image: mounted by the kernel for root, else by fuse2fs")
    try:
        return _choose_for_squashfs(image, options, environ, uid)
    except _file_problem() as problem:  # the node has no place to unpack to
        program = find_usable_squashfuse()[0] if options.root == "auto" else ""
        if not program:
            raise
        return Root("squashfuse", f"{problem}: mounted by {program}", program=program)


def _file_problem() -> type[Exception]:
    """Python asks for it only once something was raised: success needs no errors."""
    from kedge.errors import FileProblem  # late: as said

    return FileProblem


def _choose_for_squashfs(image: ImageFile, options: RunOptions, environ: Mapping[str, str], uid: int) -> Root:
    wanted = options.root
    unpacked = find_unpacked(image, environ) if wanted in ("auto", "unpack") else ""
    if unpacked:
        return Root("folder", f"already unpacked on this node: {unpacked}", unpacked)
    if wanted == "unpack":
        return Root("unpack", "--root-from unpack")
    if wanted == "kernel" or (wanted == "auto" and uid == 0 and not options.userns and not options.fakeroot):
        refusal = check_kernel_mount()
        if not refusal:
            return Root("loop", "mounted by the kernel, which root may ask for")
        if wanted == "kernel":
            raise _refuse("kernel", refusal)
    return _choose_for_user(image, options, environ)


def _choose_for_user(image: ImageFile, options: RunOptions, environ: Mapping[str, str]) -> Root:
    """Mount it with squashfuse, or unpack it on this node."""
    program, refusal = find_usable_squashfuse()
    if not program and options.root == "squashfuse":
        raise _refuse("squashfuse", refusal)
    if not program:
        return Root("unpack", f"{refusal}: unpacked once on this node")
    if wants_layers_above(options) and not allows_layers_above(program):
        reason = f"{program} shows another owner of the files, so no layer above them could be written"
        unpacked = find_unpacked(image, environ)
        return Root("folder" if unpacked else "unpack", reason, unpacked)
    if options.root == "squashfuse" or _prefers_mount(image, environ):
        return Root("squashfuse", f"mounted by {program}", program=program)
    return Root("unpack", f"{image.size >> 20} MiB, unpacked once on this node")


def choose_overlay(image: ImageFile, options: RunOptions, environ: Mapping[str, str], *, is_written: bool) -> Root:
    """How to use a SquashFS overlay: mounted where that works, else unpacked on this node."""
    unpacked = find_unpacked(image, environ)
    if unpacked:
        return Root("folder", f"already unpacked on this node: {unpacked}", unpacked)
    program, refusal = find_usable_squashfuse()
    if program and (not is_written or allows_layers_above(program)):
        return Root("squashfuse", f"mounted by {program}", program=program)
    if os.getuid() == 0 and not options.userns and not options.fakeroot and not check_kernel_mount():
        return Root("loop", "mounted by the kernel, which root may ask for")
    return Root("unpack", refusal or "a layer above squashfuse could not be written")


def choose_bound(image: ImageFile, options: RunOptions, environ: Mapping[str, str]) -> Root:
    """How to use a SquashFS file that is bound: mounted where that works, else unpacked; a large one never is."""
    program, _ = find_usable_squashfuse()
    if program or image.size > _unpack_limit(environ):
        return Root("squashfuse", "mounted, or refused", program=program)
    return choose_overlay(image, options, environ, is_written=False)


def wants_layers_above(options: RunOptions) -> bool:
    """Whether what is in the image may be changed in a layer above it."""
    return options.writable_tmpfs or options.fakeroot or any(":ro" not in overlay for overlay in options.overlay)


def allows_layers_above(program: str) -> bool:
    """Whether a layer above what squashfuse shows can be written to; the kernel asks who owns the directories."""
    from kedge.runtime.mounts.squashfuse import shows_owner  # late: an unpacked image needs no FUSE

    return shows_owner(program)


def _prefers_mount(image: ImageFile, environ: Mapping[str, str]) -> bool:
    """Whether an image is better mounted than unpacked: it is large, or the node's place is no disk."""
    place = choose_node_directory(environ)
    while not os.path.isdir(place):  # it may not be made yet
        place = os.path.dirname(place)
    kept_on = describe_storage(place)
    return image.size > _unpack_limit(environ) or kept_on in ("memory", "network")


def find_usable_squashfuse() -> tuple[str, str]:
    """A squashfuse that can be used here, or the empty string and why there is none."""
    from kedge.runtime.mounts.squashfuse import can_use_fuse, find_squashfuse  # late: an unpacked image needs no FUSE

    refusal = can_use_fuse()
    return ("", refusal) if refusal else (find_squashfuse()[0], "")


def _unpack_limit(environ: Mapping[str, str]) -> int:
    """Bytes of SquashFS up to which an image is unpacked at its first use."""
    text = environ.get("KEDGE_UNPACK_LIMIT", "")
    return int(text) << 20 if text.isdigit() else UNPACK_LIMIT


def check_kernel_mount() -> str:
    """Why the kernel cannot mount SquashFS through a loop device here; the empty string when it can."""
    if not os.access("/dev/loop-control", os.R_OK | os.W_OK):
        return "no access to /dev/loop-control"
    try:
        with open("/proc/filesystems", encoding="ascii") as file:
            known = file.read()
    except OSError:
        return "cannot read /proc/filesystems"
    return "" if "\tsquashfs\n" in known else "the kernel has no SquashFS module loaded"


def plan_root(image: ImageFile, root: Root, *, is_writable: bool = False) -> list[Operation]:
    """What puts the image's file system in its place; `is_writable`: the image itself is changed."""
    if root.way == "folder":
        return [("bind", OLD + root.folder, LOWER, MS_NOSUID | MS_NODEV, MUST)]
    place = (OLD + image.path, image.offset, image.size, LOWER)
    if root.way in ("squashfuse", "gocryptfs"):
        return [(root.way, *place, root.program)]
    if root.way == "loop":
        return [("loop", *place, "squashfs")]
    return [("fuse2fs", *place, "rw" if is_writable else "ro")]


def _refuse(way: str, refusal: str) -> Exception:
    from kedge.errors import MountFailed  # late: success needs no errors

    return MountFailed(
        f"--root-from {way} does not work on this node: {refusal}",
        hint="leave out --root-from, and kedge chooses what works here; --root-from unpack works everywhere",
    )
