# SPDX-License-Identifier: BSD-3-Clause
"""What lies above an image: the overlays of --overlay and of the image itself, --writable and --writable-tmpfs.

The rules are Apptainer's: of read-only layers the later one is higher; one layer at most is written to, and it is the
highest wherever it was named. Nothing is changed here.
"""

from __future__ import annotations

import os
import stat

from kedge.container.fuse_program import find_program
from kedge.container.mount_operations import NO_KERNEL_UPPER, UPPER, WORK
from kedge.image.image_file import identify, make_absolute
from kedge.system.libc import file_system_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.container.facts import HostFacts
    from kedge.container.options import RunOptions
    from kedge.container.step_options import StepOptions
    from kedge.errors import KedgeError
    from kedge.image.image_file import ImageFile

FOLDER, SQUASHFS, EXT3 = "folder", "squashfs", "ext3"
_SMALLEST_TMPFS = 64 << 20

_NO_UPPER = {0x4D44: "FAT", 0x2011BAB0: "exFAT"}  # no owners, modes and links: nothing can keep a layer there
_READONLY_FILE_SYSTEM = 1  # ST_RDONLY of statvfs


class OverlayLayer:  # noqa: PLW1641 - it is changed on its way, so it has no hash
    """One layer that is put over the image."""

    __slots__ = ("folder", "given", "kind", "offset", "path", "size", "warning", "writable")

    def __init__(
        self,
        path: str,
        kind: str,
        *,
        offset: int = 0,
        size: int = 0,
        writable: bool = False,
        folder: str = "",
        given: str = "--overlay",
    ) -> None:
        self.path = path  # absolute, on the host
        self.kind = kind  # directory, squashfs or ext3
        self.offset = offset  # where the file system begins in the file, and how long it is; 0 and 0: all of it
        self.size = size
        self.writable = writable
        self.folder = folder  # what is laid over the image: 'upper', or empty for all that is in the layer
        self.given = given  # what asked for it
        self.warning = ""  # said before the start

    def __repr__(self) -> str:
        place = f"@{self.offset}+{self.size}" if self.offset else ""
        return f"OverlayLayer({self.kind} {self.path}{place}{'' if self.writable else ':ro'} {self.folder})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OverlayLayer) and all(getattr(self, x) == getattr(other, x) for x in self.__slots__)


def plan_overlays(options: RunOptions, host: HostFacts, image_file: str = "") -> list[OverlayLayer]:
    """The layers above the image, lowest first; the writable one, if any, is the last.

    `image_file` is the image where it is a file: the overlay partitions of a SIF belong to it, and --writable means
    them.
    """
    check_writable(options)
    layers = _plan_own_partitions(identify(image_file), options) if image_file else []
    for given in options.overlay:
        for text in _split_list(given, host):
            layers += _parse_overlay(text, host)
    writable = [layer for layer in layers if layer.writable]
    if writable:
        _check_single(writable, options)
    return [layer for layer in layers if not layer.writable] + writable


def plan_step_layers(step: StepOptions) -> list[OverlayLayer]:
    """The layers of a step of a build, lowest first, and above them what takes its changes."""
    if not step.changes:
        return []
    layers = [OverlayLayer(path, FOLDER, given="layer") for path in step.layers]
    return [*layers, OverlayLayer(step.changes, FOLDER, writable=True, folder=UPPER, given="changes")]


def check_writable(options: RunOptions) -> None:
    """Refuse --writable together with --overlay; --writable-tmpfs beside --writable says nothing new."""
    if options.writable and options.overlay:
        from kedge.errors import UsageError  # late: only when something is wrong

        raise UsageError(
            "--writable and --overlay cannot be used together: --writable changes the image itself",
            hint="leave out --writable: an overlay without ':ro' is writable",
        )


def explain_readonly_image(path: str, kind: str) -> KedgeError:
    """The error for --writable with an image that cannot be changed."""
    from kedge.errors import UsageError  # late: only when something is wrong

    names = {
        "sif": "a SIF file without a writable overlay partition",
        SQUASHFS: "a SquashFS image",
        EXT3: "an ext3 image that you cannot write to",
        "reference": "unpacked on this node, and other containers use it too",
    }
    own = f"kedge pull --sandbox DIRECTORY {path}" if kind == "reference" else f"kedge convert {path} DIRECTORY"
    return UsageError(
        f"--writable cannot change {path}: it is {names[kind]}",
        context={"image": path},
        hint="to discard changes at the end: --writable-tmpfs; to keep them: --overlay DIRECTORY, "
        f"or unpack it with '{own}' and use --writable on the directory",
    )


def _parse_overlay(text: str, host: HostFacts) -> list[OverlayLayer]:
    """The layers that one `PATH[:ro|:rw]` names; a SIF may hold several."""
    path, mode = _split_mode(text)
    if "://" in path:
        _refuse_address(path)
    where = make_absolute(os.path.join(host.cwd, path))
    try:
        status = os.stat(where)
    except OSError as problem:
        raise _explain_missing(text, where, problem) from None
    if stat.S_ISDIR(status.st_mode):
        return [_plan_folder(where, is_wanted=mode != "ro")]
    layers = _read_image(where)
    if mode != "ro":
        _make_writable(layers, where, is_explicit=mode == "rw")
    return layers


def _refuse_address(path: str) -> None:
    """Raise unless the path is marked as one by its beginning: `docker://x` is not x in a directory `docker:`."""
    from kedge.base.image_argument import is_address
    from kedge.errors import UsageError  # late, both: hardly any path has `://` in it

    if is_address(path):
        raise UsageError(f"--overlay takes a file or directory, not {path}", hint="pull the image first")


def _split_mode(text: str) -> tuple[str, str]:
    """The path and `ro`, `rw` or nothing; a colon that nothing of the kind follows belongs to the path."""
    path, colon, mode = text.rpartition(":")
    if colon and path and mode in ("ro", "rw"):
        return path, mode
    return text, ""


def _list_partitions(image: ImageFile) -> list[OverlayLayer]:
    """The overlay partitions of a SIF file, read-only; none for any other image."""
    return [
        OverlayLayer(image.path, kind, offset=offset, size=size, folder=UPPER if kind == EXT3 else "")
        for offset, size, kind in image.overlays
    ]


def choose_tmpfs_size(options: RunOptions, host: HostFacts) -> int:
    """Bytes that layers in memory may take: --tmpfs-size, else a quarter of the memory; 64 MiB at least."""
    text = options.tmpfs_size.strip()
    if not text:
        return max(host.memory // 4, _SMALLEST_TMPFS)
    number, unit = text, ""
    while number and not number[-1].isdecimal():
        number, unit = number[:-1], number[-1] + unit
    unit = unit.strip().upper().removesuffix("B").removesuffix("I")
    if number.isascii() and number.isdecimal() and len(number) < 19:
        if unit == "%" and 0 < int(number) <= 100:
            return host.memory * int(number) // 100
        if len(unit) == 1 and unit in "KMGT" and int(number):
            return int(number) << 10 * ("KMGT".index(unit) + 1)
    from kedge.errors import UsageError  # late: only when something is wrong

    raise UsageError(
        f"'{options.tmpfs_size}' is not a valid tmpfs size",
        context={"option": options.given.get("tmpfs_size", "--tmpfs-size")},
        hint="use a number with a unit (512M, 2G), or a share of the host's memory (25%)",
    )


def _split_list(given: str, host: HostFacts) -> list[str]:
    """Several overlays may be joined by commas, unless a file has the whole as its name."""
    path = given.rpartition(":")[0] if given.endswith((":ro", ":rw")) else given
    if "," not in given or os.path.lexists(os.path.join(host.cwd, path)):
        return [given]
    return [text for text in given.split(",") if text]


def _plan_own_partitions(image: ImageFile, options: RunOptions) -> list[OverlayLayer]:
    """The overlay partitions of the image; with --writable the last one is written to, or the image refused."""
    layers = _list_partitions(image)
    for layer in layers:
        layer.given = "image"
    if options.writable and image.kind in ("sif", SQUASHFS):
        if not layers or layers[-1].kind != EXT3 or not os.access(image.path, os.W_OK):
            raise explain_readonly_image(image.path, image.kind)
        layers[-1].given, layers[-1].writable = "--writable", True
    return layers


def _plan_folder(where: str, *, is_wanted: bool) -> OverlayLayer:
    layer = OverlayLayer(where, FOLDER, writable=is_wanted)
    if not is_wanted:
        layer.folder = UPPER if os.path.isdir(f"{where}/{UPPER}") else ""
        return layer
    layer.folder = UPPER
    _check_folder(layer)
    return layer


def _check_folder(layer: OverlayLayer) -> None:
    """Whether upper and work can be made, and what can write to them."""
    from kedge.errors import FileProblem  # late: not every start has a directory as overlay

    where = layer.path
    hint = (
        f"use it read-only with '--overlay {where}:ro', use another directory, or keep changes in memory with "
        "--writable-tmpfs"
    )
    try:
        kind = file_system_type(where)
        is_readonly = os.statvfs(where).f_flag & _READONLY_FILE_SYSTEM
    except OSError as problem:
        raise FileProblem(f"cannot use the overlay directory {where}: {problem.strerror}", hint=hint) from None
    if is_readonly:
        raise FileProblem(f"the overlay directory {where} is on a read-only file system", hint=hint)
    if kind in _NO_UPPER:
        message = f"the overlay directory {where} is on {_NO_UPPER[kind]}, which cannot hold a writable layer"
        raise FileProblem(message, hint="use a directory on a local disk of the node, or --writable-tmpfs")
    for name in (UPPER, WORK):
        place = f"{where}/{name}"
        if os.path.lexists(place) and not os.path.isdir(place):
            raise FileProblem(f"{place} is not a directory, and an overlay needs one there", hint=hint)
        needed = place if os.path.isdir(place) else where
        if not os.access(needed, os.W_OK | os.X_OK):
            raise FileProblem(f"no write permission for {needed}, which --overlay {where} needs", hint=hint)
    if kind in NO_KERNEL_UPPER and not find_program("fuse-overlayfs"):
        raise FileProblem(
            f"{where} is on {NO_KERNEL_UPPER[kind]}, where the kernel does not support writable overlays",
            hint="use a directory on a local disk of the node, an image ('kedge overlay create') or --writable-tmpfs; "
            "or install fuse-overlayfs, which is slower",
        )


def _read_image(where: str) -> list[OverlayLayer]:
    image = _identify_overlay(where)
    if image.kind != "sif":
        folder = UPPER if image.kind == EXT3 else ""
        return [OverlayLayer(where, image.kind, offset=image.offset, size=image.size, folder=folder)]
    layers = _list_partitions(image)
    if layers:
        return layers
    from kedge.errors import UnsupportedFormat  # late: only when something is wrong

    raise UnsupportedFormat(
        f"{where} has no overlay partition",
        hint=f"add one: kedge overlay create {where}",
    )


def _identify_overlay(where: str) -> ImageFile:
    try:
        return identify(where)
    except Exception as problem:
        from kedge.errors import UnsupportedFormat  # late: only when something is wrong

        if isinstance(problem, UnsupportedFormat):
            problem.hint = (
                "an overlay is a directory, or an ext3, SquashFS or SIF image: create one with 'kedge overlay create'"
            )
        raise


def _make_writable(layers: list[OverlayLayer], where: str, *, is_explicit: bool) -> None:
    """The last ext3 layer is written to, where that is possible; else a warning, or an error after ':rw'."""
    last = layers[-1]
    reason = ""
    if last.kind != EXT3:
        reason = "SquashFS is read-only"
    elif not os.access(where, os.W_OK):
        reason = "you have no write permission for the file"
    if not reason:
        last.writable = True
        return
    if is_explicit:
        from kedge.errors import FileProblem  # late: only when something is wrong

        raise FileProblem(
            f"the overlay {where} is not writable: {reason}",
            hint=f"use '--overlay {where}:ro', with --writable-tmpfs or a directory as overlay for changes",
        )
    last.warning = f"the overlay {where} is used read-only: {reason} (':ro' silences this warning)"


def _check_single(writable: list[OverlayLayer], options: RunOptions) -> None:
    from kedge.errors import UsageError  # late: not every start has an overlay

    if len(writable) > 1:
        first, second = writable[0].path, writable[1].path
        raise UsageError(
            f"only one overlay can be writable, and both {first} and {second} are",
            hint=f"make one of them read-only: '--overlay {first}:ro' or '--overlay {second}:ro'",
        )
    if writable and options.writable_tmpfs and not options.writable:
        raise UsageError(
            f"--writable-tmpfs and the writable overlay {writable[0].path} cannot be used together",
            hint=f"leave out one of them, or use '--overlay {writable[0].path}:ro'",
        )


def _explain_missing(text: str, where: str, problem: OSError) -> KedgeError:
    from kedge.errors import FileProblem, UsageError  # late: only when something is wrong

    path, _, mode = where.rpartition(":")
    if path and "/" not in mode and os.path.exists(path):
        return UsageError(f"--overlay {text}: '{mode}' is not a mode", hint="use PATH, PATH:ro or PATH:rw")
    return FileProblem(
        f"cannot use the overlay {where}: {problem.strerror}",
        context={"option": f"--overlay {text}"},
        hint="create a directory with mkdir, or an image with 'kedge overlay create --size 1024 overlay.img'",
    )
