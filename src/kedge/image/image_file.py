# SPDX-License-Identifier: BSD-3-Clause
"""Which kind of image a file or directory is, and where its parts are, for the path of every container start."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kedge.errors import KedgeError


# Finds the partitions of a SIF file with one read, for the path of every container start: it imports nothing.
#
# It says only whether the table can be believed; `reader.SifReader` is the one that can say what is wrong with it.

_HEADER_SIZE = 128
_DESCRIPTOR_SIZE = 585
_START_SIZE = 32768  # header and table of every writer that is known: 4096 + 48 descriptors
_SIF_MAGIC = b"SIF_MAGIC\0"  # at offset 32

_MAXIMUM_DESCRIPTORS = 16384
_PARTITION = 0x4004
_GENERIC_JSON = 0x4006
_PRIMARY, _OVERLAY = 2, 4
_FILE_SYSTEMS = {1: "squashfs", 2: "ext3", 6: "gocryptfs"}  # the last: a SquashFS in an encrypted one
_ENCRYPTED = (5, 6)

# by SIF's number, as `uname -m` spells them
_MACHINES = {
    b"01": "i686",
    b"02": "x86_64",
    b"03": "armv7l",
    b"04": "aarch64",
    b"05": "ppc64",
    b"06": "ppc64le",
    b"07": "mips",
    b"08": "mipsel",
    b"09": "mips64",
    b"10": "mips64el",
    b"11": "s390x",
    b"12": "riscv64",
    b"13": "loongarch64",
}


class _SifPlaces:
    """Where the parts that a container needs are."""

    def __init__(self) -> None:
        self.offset = 0
        self.size = 0
        self.file_system = ""
        self.machine = ""
        self.identity = b""  # the header's UUID and the time of the last change
        self.group = b""  # of the root file system
        self.grouped_configs: list[tuple[bytes, tuple[int, int]]] = []
        self.grouped_overlays: list[tuple[bytes, tuple[int, int, str]]] = []

    @property
    def config(self) -> tuple[int, int]:
        """Offset and size of the OCI config: the first of the root's group, as in SifReader.find_named; else zeros.

        A signature covers a group. What somebody adds in another one must not change what a signed image runs.
        """
        return next((config for group, config in self.grouped_configs if group == self.group), (0, 0))

    @property
    def overlays(self) -> list[tuple[int, int, str]]:
        """Offset, size and file system of the overlays that belong to the root: those of its group."""
        return [overlay for group, overlay in self.grouped_overlays if group == self.group]


def table_size(start: bytes, file_size: int) -> tuple[int, int]:
    """Offset and number of the descriptors that a header names; (0, 0) when no file of this size can have them."""
    total, table, length = (read_number(start, place) for place in (88, 96, 104))
    fits = (
        table >= _HEADER_SIZE and table + total * _DESCRIPTOR_SIZE <= file_size and total * _DESCRIPTOR_SIZE <= length
    )
    return (table, total) if 0 < total <= _MAXIMUM_DESCRIPTORS and fits else (0, 0)


def locate_parts(start: bytes, table: bytes, file_size: int) -> _SifPlaces | None:
    """What the table says; None when there is no root file system here that can be mounted or read."""
    places = _SifPlaces()
    places.identity = start[48:64] + start[72:80]
    for place in range(0, len(table), _DESCRIPTOR_SIZE):
        if not table[place + 4]:  # a free slot
            continue
        offset, size = read_number(table, place + 17), read_number(table, place + 25)
        if size < 0 or offset < _HEADER_SIZE or offset + size > file_size:
            return None
        data_type = int.from_bytes(table[place : place + 4], "little")
        if data_type == _GENERIC_JSON and table[place + 73 : place + 89] == b"oci-config.json\0":
            places.grouped_configs.append((table[place + 9 : place + 13], (offset, size)))
        elif data_type == _PARTITION and not _take_partition(places, table, place):
            return None
    return places if places.file_system else None


def _take_partition(places: _SifPlaces, table: bytes, place: int) -> bool:
    """Note a partition; False when it is one that nobody can use here."""
    extra = place + 201
    kind = int.from_bytes(table[extra : extra + 4], "little")
    purpose = int.from_bytes(table[extra + 4 : extra + 8], "little")
    if purpose not in (_PRIMARY, _OVERLAY):
        return True
    is_usable = kind in _FILE_SYSTEMS and (purpose == _PRIMARY or kind not in _ENCRYPTED)
    if not is_usable or (purpose == _PRIMARY and places.file_system):
        return purpose == _OVERLAY and kind not in _ENCRYPTED
    offset, size = read_number(table, place + 17), read_number(table, place + 25)
    if purpose == _OVERLAY:
        places.grouped_overlays.append((table[place + 9 : place + 13], (offset, size, _FILE_SYSTEMS[kind])))
        return True
    places.offset, places.size, places.file_system = offset, size, _FILE_SYSTEMS[kind]
    places.group = table[place + 9 : place + 13]
    places.machine = _MACHINES.get(table[extra + 8 : extra + 10], "")
    return True


def read_number(data: bytes, place: int) -> int:
    """A signed number of 8 bytes."""
    return int.from_bytes(data[place : place + 8], "little", signed=True)


# What kind of image a file or directory is, and where its root file system begins, from one or two reads.
#
# Where something looks wrong, the thorough readers in `formats` say what it is; only then are they imported.

_EXT_MAGIC = 1080  # two bytes, 53 ef
_EXT_UUID = 1024 + 104
_SQUASHFS_MAGIC = b"hsqs"
_SUPERBLOCK = 96
_COMPATIBLE = {
    ("i686", "x86_64"),
    ("armv7l", "aarch64"),
}  # image and host: these kernels run the 32-bit programs as well
_EMULATORS = "/proc/sys/fs/binfmt_misc/qemu-"
_EMULATOR_NAMES = {"i686": "i386", "armv7l": "arm"}


class ImageFile:
    """A directory, a SIF, or a bare file system in a file."""

    def __init__(self, path: str, kind: str) -> None:
        self.path = path  # absolute, links in it not followed
        self.kind = kind  # directory, sif, squashfs or ext3
        self.offset = 0
        self.size = 0  # of the file system
        self.file_system = ""  # squashfs, ext3 or gocryptfs; empty for a directory
        self.machine = ""  # as `uname -m` spells it; empty when the image does not say
        self.state = ""  # a file name that is equal as long as nobody changed the file; empty for a directory
        self.config_offset = 0  # of the OCI config that a SIF carries
        self.config_size = 0
        self.overlays: list[tuple[int, int, str]] = []  # of a SIF: offset, size and file system

    def read_config(self) -> bytes:
        """The OCI config that a SIF carries; empty when there is none."""
        if not self.config_size:
            return b""
        file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(file, min(self.config_size, 1 << 22), self.config_offset)
        finally:
            os.close(file)


def identify(path: str) -> ImageFile:
    """What `path` is; raises one error that says what is wrong with it and what helps."""
    absolute = make_absolute(path)
    try:
        # not to wait for a writer where a pipe has the name
        file = os.open(absolute, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        raise _refuse_opening(path, problem) from None
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            return _identify_folder(absolute)
        if not stat.S_ISREG(status.st_mode):
            raise _problem(
                f"{path} is neither a file nor a directory", "give the path of an image file or of a directory"
            )
        try:
            return _identify_file(file, absolute, status)
        except OSError as problem:
            from kedge.system.files import explain  # late: only when the file cannot be read

            raise explain(problem, path) from None
    finally:
        os.close(file)


def make_absolute(path: str) -> str:
    """The path from the root on; the last link in it keeps its name, which is what the container is called by."""
    if ".." not in path.split("/"):
        return os.path.abspath(path)
    folder, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        return os.path.realpath(path)
    return os.path.join(os.path.realpath(folder or "."), name)


def compare_machine(image: ImageFile, machine: str) -> None:
    """Raise when the image is for another architecture and no emulator is registered."""
    wanted = image.machine
    if wanted in ("", machine) or runs_here(wanted, machine):
        return
    from kedge.errors import NoMatchingPlatform  # late: only for an error

    raise NoMatchingPlatform(
        f"{image.path} is for {wanted}, and this host is {machine}",
        context={"image": wanted, "machine": machine},
        hint=f"get the image for {machine} ('kedge pull' selects it by default), or run this one on a {wanted} node",
    )


def runs_here(wanted: str, machine: str) -> bool:
    """Whether a host runs programs for another machine, by itself or by an emulator; names are those of uname."""
    return (wanted, machine) in _COMPATIBLE or os.path.exists(_EMULATORS + _EMULATOR_NAMES.get(wanted, wanted))


def _identify_folder(path: str) -> ImageFile:
    with os.scandir(path) as entries:
        if next(entries, None) is None:
            raise _problem(
                f"{path} is an empty directory, not an image", "give the directory that contains bin, etc and usr"
            )
    if os.path.isfile(f"{path}/oci-layout"):
        raise _problem(f"{path} is an OCI layout, not an unpacked image", f"give it as oci:{path}")
    return ImageFile(path, "folder")


def _identify_file(file: int, path: str, status: os.stat_result) -> ImageFile:
    start = os.pread(file, _START_SIZE, 0)
    if start[32:42] == _SIF_MAGIC and len(start) >= _HEADER_SIZE:
        return _identify_sif(file, path, start, status)
    offset = 0
    if start.startswith(b"#!"):  # the line that Singularity 2 put before a file system, to make it a program
        offset = start.find(b"\n", 0, 1024) + 1
    if start[offset : offset + 4] == _SQUASHFS_MAGIC:
        image = ImageFile(path, "squashfs")
    elif start[offset + _EXT_MAGIC : offset + _EXT_MAGIC + 2] == b"\x53\xef":
        image = ImageFile(path, "ext3")
    else:
        raise _refuse_content(path)
    image.offset, image.size, image.file_system = offset, status.st_size - offset, image.kind
    _finish(image, start[offset : offset + 2048], b"", status)
    return image


def _identify_sif(file: int, path: str, start: bytes, status: os.stat_result) -> ImageFile:
    table, total = table_size(start, status.st_size)
    length = total * _DESCRIPTOR_SIZE
    raw = start[table : table + length] if table + length <= len(start) else os.pread(file, length, table)
    found = locate_parts(start, raw, status.st_size) if total and len(raw) == length else None
    if found is None:
        raise _refuse_content(path)
    image = ImageFile(path, "sif")
    image.offset, image.size, image.file_system = found.offset, found.size, found.file_system
    image.machine, image.overlays = found.machine, found.overlays
    image.config_offset, image.config_size = found.config
    _finish(image, os.pread(file, 2048, image.offset), found.identity, status)
    return image


def _finish(image: ImageFile, superblock: bytes, seed: bytes, status: os.stat_result) -> None:
    """Check that the file system is all there, and note the file's state."""
    if image.file_system in ("squashfs", "gocryptfs"):  # what is encrypted lies in a SquashFS, too
        used = read_number(superblock, 40)
        if superblock[:4] != _SQUASHFS_MAGIC or not _SUPERBLOCK < used <= image.size:
            raise _refuse_content(image.path)
        own = superblock[4:12] + superblock[40:48]  # how many files, when it was made, its size
    else:
        if superblock[_EXT_MAGIC : _EXT_MAGIC + 2] != b"\x53\xef":
            raise _refuse_content(image.path)
        own = superblock[_EXT_UUID : _EXT_UUID + 16]
    # ctime and not mtime, which a program that changed the file can set back; not the device: a home that is mounted
    # again has another number then
    numbers = f"{status.st_size:x}-{status.st_ctime_ns:x}-{status.st_ino:x}"
    image.state = f"{image.kind}-{(seed + own).hex()}-{numbers}"


def _refuse_content(path: str) -> KedgeError:
    """The error of the thorough readers for this file."""
    # late: only for an error
    from kedge.errors import CorruptImage, KedgeError
    from kedge.image.formats.identify import FileKind, identify_file, refuse_as_sif
    from kedge.image.formats.sif.reader import SifReader
    from kedge.image.formats.squashfs.reader import SquashReader

    try:
        with open(path, "rb") as file:
            kind = identify_file(file)
            if kind is FileKind.SIF:
                partition = SifReader(file, path).root_partition()
                SquashReader(file, partition.offset, partition.size).close()
            elif kind is not FileKind.SQUASHFS:
                file.seek(0)
                return _add_hint(refuse_as_sif(file.read(2048), path), path, kind)
    except KedgeError as problem:
        return problem if path in problem.message else type(problem)(f"{path}: {problem}", hint=problem.hint)
    except OSError as problem:
        return _refuse_opening(path, problem)
    return CorruptImage(
        f"{path} is truncated or damaged: part of its file system is missing",
        hint="fetch the file again, and compare its size and checksum with the original",
    )


def _add_hint(problem: KedgeError, path: str, kind: str) -> KedgeError:
    from kedge.image.formats.identify import ARCHIVES  # late: only for an error

    if kind in ARCHIVES:
        problem.hint = (
            f"give an archive of 'docker save' as docker-archive:{path}, an OCI archive as oci-archive:{path}"
        )
    elif problem.hint is None:
        problem.hint = "give a SIF or SquashFS file, a directory with a root file system, or docker://NAME"
    return problem


def _refuse_opening(path: str, problem: OSError | ValueError) -> KedgeError:
    # late: only for an error
    from kedge.system.files import explain

    if isinstance(problem, ValueError):
        return _problem(
            "the image name contains a NUL character", "check the variable or script that the name comes from"
        )
    if not isinstance(problem, (FileNotFoundError, NotADirectoryError)):
        return explain(problem, path)
    return _problem(f"no such file or directory: {path}", _propose_reference(path))


def _propose_reference(path: str) -> str:
    """Return what was probably meant by the name of a file that is not there."""
    from kedge.base.reference import Reference, Transport
    from kedge.errors import InvalidReference

    plain = "check the spelling; give an image in a registry as docker://ubuntu:22.04"
    try:
        reference = Reference.parse(path)
    except InvalidReference as problem:
        return problem.hint or plain
    if reference.transport is not Transport.DOCKER:
        return plain
    name = path.partition(":")[2].lstrip("/") if path.startswith("docker:") else path
    return f"check the spelling; for an image in a registry use docker://{name}"


def _problem(message: str, hint: str) -> KedgeError:
    from kedge.errors import FileProblem  # late: only for an error

    return FileProblem(message, hint=hint)
