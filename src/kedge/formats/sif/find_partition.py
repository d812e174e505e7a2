# SPDX-License-Identifier: BSD-3-Clause
"""Finds the partitions of a SIF file with one read, for the path of every container start: it imports nothing.

It says only whether the table can be believed; `reader.SifReader` is the one that can say what is wrong with it.
"""

from __future__ import annotations

HEADER_SIZE = 128
DESCRIPTOR_SIZE = 585
START_SIZE = 32768  # header and table of every writer that is known: 4096 + 48 descriptors
MAGIC = b"SIF_MAGIC\0"  # at offset 32

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
    fits = table >= HEADER_SIZE and table + total * DESCRIPTOR_SIZE <= file_size and total * DESCRIPTOR_SIZE <= length
    return (table, total) if 0 < total <= _MAXIMUM_DESCRIPTORS and fits else (0, 0)


def locate_parts(start: bytes, table: bytes, file_size: int) -> _SifPlaces | None:
    """What the table says; None when there is no root file system here that can be mounted or read."""
    places = _SifPlaces()
    places.identity = start[48:64] + start[72:80]
    for place in range(0, len(table), DESCRIPTOR_SIZE):
        if not table[place + 4]:  # a free slot
            continue
        offset, size = read_number(table, place + 17), read_number(table, place + 25)
        if size < 0 or offset < HEADER_SIZE or offset + size > file_size:
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
