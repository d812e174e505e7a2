# SPDX-License-Identifier: BSD-3-Clause
"""Writable layers in files: a new ext3 image, or a partition with one inside a SIF; `exec --overlay` uses them."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kedge.base.frozen import JsonValue
from kedge.errors import OutputExists, ProgramMissing, UnsupportedFormat, UsageError
from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_object
from kedge.image.formats.sif.layout import DataType, FileSystem, PartitionType, SifDescriptor, pack_partition_extra
from kedge.image.formats.sif.reader import SifReader
from kedge.system.files import atomic_output, explained, temporary_beside
from kedge.system.process import run_program
from kedge.system.programs import find_program

_SMALLEST = 64  # MiB, as Apptainer
LAYERS = ("upper", "work")
_IMAGE_MODE = 0o600  # it may hold what nobody else is to read
_ENCRYPTED = (FileSystem.ENCRYPTED_SQUASHFS, FileSystem.GOCRYPTFS_SQUASHFS)


@dataclass(frozen=True, slots=True)
class OverlayOptions:
    """The flags of `overlay create`."""

    size: int = _SMALLEST  # MiB
    is_sparse: bool = False
    for_fakeroot: bool = False  # the layer belongs to root, as which --fakeroot works
    folders: tuple[str, ...] = ()  # that are there from the beginning


@dataclass(frozen=True, slots=True)
class _CreatedOverlay(JsonValue):
    """What was made: a file, or a partition of one."""

    json_names = (("path", "file"), ("identifier", "partition"))

    path: str
    size: int  # bytes
    identifier: int | None = None  # of the partition in a SIF


def create_overlay(path: Path, options: OverlayOptions) -> _CreatedOverlay:
    """Make a new image file, or add an overlay partition where `path` is a SIF; raises before anything is changed."""
    if options.size < _SMALLEST:
        raise UsageError(
            f"--size {options.size} is too small: an overlay needs {_SMALLEST} MiB", hint=f"use --size {_SMALLEST}"
        )
    folders = [_check_folder(folder) for folder in options.folders]
    require_programs(options)
    if path.is_file():
        return _add_partition(path, options, folders)
    if os.path.lexists(path):
        raise _refuse_existing(path)
    with atomic_output(path, mode=_IMAGE_MODE) as file:
        _fill_image(Path(file.name), options, folders)
    return _CreatedOverlay(str(path), options.size << 20)


def require_programs(options: OverlayOptions) -> None:
    """Raise if e2fsprogs is missing: every installed Linux has it, but not every container."""
    for name in ("mkfs.ext3", *(("debugfs",) if options.for_fakeroot else ())):
        if find_program(name) is None:
            raise ProgramMissing(
                f"cannot make an ext3 image: the program {name} is not installed on this host",
                hint="install the package e2fsprogs, or use a directory: 'mkdir overlay', then --overlay overlay",
            )


def _add_partition(path: Path, options: OverlayOptions, folders: Sequence[PurePosixPath]) -> _CreatedOverlay:
    with explained(path), path.open("rb") as file:
        if file.read(64)[32:41] != b"SIF_MAGIC":
            raise _refuse_existing(path)
        reader = SifReader(file, str(path))
        primary = _check_sif(reader, path)
    if options.is_sparse:
        raise UsageError("--sparse is for image files: inside a SIF all of the overlay's space is taken at once")
    extra = pack_partition_extra(FileSystem.EXT3, PartitionType.OVERLAY, primary.architecture)
    temporary = temporary_beside(path)
    try:
        with explained(path), temporary.open("xb") as image:
            image.truncate(options.size << 20)
        _fill_image(temporary, OverlayOptions(options.size, True, options.for_fakeroot), folders)
        with temporary.open("rb") as image:
            item = DataObject(DataType.PARTITION, image, group=primary.group, extra=extra)
            added = append_object(path, item)
    finally:
        temporary.unlink(missing_ok=True)
    return _CreatedOverlay(str(path), added.size, added.id)


def _check_sif(reader: SifReader, path: Path) -> SifDescriptor:
    """The root partition, if the file can take an overlay for it."""
    primary = reader.primary_partition()
    if primary.file_system in _ENCRYPTED:
        raise UnsupportedFormat(
            f"cannot add an overlay to {path}: it is encrypted",
            hint="make an overlay file: kedge overlay create overlay.img",
        )
    for descriptor in reader.descriptors:
        if descriptor.data_type == DataType.SIGNATURE:
            raise UnsupportedFormat(
                f"cannot add an overlay to {path}: it would break the signature",
                hint="make an overlay file ('kedge overlay create overlay.img'), or delete the signature first: "
                f"kedge sif del {descriptor.id} {path}",
            )
        if _is_overlay(descriptor) and descriptor.group == primary.group:
            raise OutputExists(
                f"{path} has a writable overlay already: object {descriptor.id}",
                hint=f"use it with --writable, or delete it first: 'kedge sif del {descriptor.id} {path}'",
            )
    return primary


def _is_overlay(descriptor: SifDescriptor) -> bool:
    """Whether the object is a writable overlay."""
    if descriptor.data_type != DataType.PARTITION or descriptor.partition_type != PartitionType.OVERLAY:
        return False
    return descriptor.file_system == FileSystem.EXT3


def _fill_image(image: Path, options: OverlayOptions, folders: Sequence[PurePosixPath]) -> None:
    """Give the file its size and an ext3 file system with the two directories in it."""
    size = options.size << 20
    with explained(image), image.open("r+b") as file:
        file.truncate(size)
        if not options.is_sparse:
            _allocate(file.fileno(), size)
    names = _list_names(folders)
    with _prepare_content(names) as content:
        # -m 0: nothing is kept back for root, who never uses it
        # nodiscard: by itself it would give back the space that was taken for the file
        kept = [] if options.is_sparse else ["-E", "nodiscard"]
        run_program(["mkfs.ext3", "-q", "-F", "-m", "0", *kept, "-d", str(content), str(image)])
        if options.for_fakeroot:
            _give_to_root(image, names)
    with explained(image), image.open("r+b") as file:
        os.fsync(file.fileno())


def _allocate(file: int, size: int) -> None:
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as problem:
        if problem.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


@contextlib.contextmanager
def _prepare_content(names: Sequence[str]) -> Iterator[Path]:
    """A directory as the image is to look inside; it belongs to the caller, and so do the directories in the image."""
    with tempfile.TemporaryDirectory(prefix="kedge-overlay-") as name:
        content = Path(name)
        content.chmod(0o755)
        for path in names:
            (content / path).mkdir()
            (content / path).chmod(0o755)
        yield content


def _list_names(folders: Sequence[PurePosixPath]) -> list[str]:
    """Return all directories in the image, those above first."""
    paths = [PurePosixPath(LAYERS[0], folder) for folder in folders]
    above = {str(parent) for path in paths for parent in (path, *path.parents) if parent.name}
    return sorted({*LAYERS, *above})


def _give_to_root(image: Path, names: Sequence[str]) -> None:
    requests = []
    for each in names:
        name = each.replace('"', '""')
        requests += [f'set_inode_field "/{name}" {field} 0' for field in ("uid", "gid")]
    run_program(["debugfs", "-w", "-f", "-", str(image)], stdin="\n".join(requests).encode() + b"\n")


def _check_folder(text: str) -> PurePosixPath:
    path = PurePosixPath("/" + text.lstrip("/"))
    if ".." in path.parts or path == PurePosixPath("/") or any(not character.isprintable() for character in text):
        raise UsageError(f"--create-dir {text} is not a path inside the overlay", hint="such as --create-dir /opt/app")
    return path.relative_to("/")


def _refuse_existing(path: Path) -> OutputExists:
    return OutputExists(
        f"{path} exists already, and is not a SIF file to add an overlay to", hint="choose another name"
    )
