# SPDX-License-Identifier: BSD-3-Clause
"""A SIF file read by the letter of the format's description, without kedge: what kedge writes is compared with it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<32s10s3s3s16sqqqqqqqq")
_SLOT = struct.Struct("<iBIIIqqqqqqq128s384s")
_GROUP = 0xF0000000
PARTITION = 0x4004
PRIMARY = 2
ARCHITECTURES = ("unknown", "386", "amd64", "arm", "arm64", "ppc64", "ppc64le", "mips", "mipsle", "mips64", "mips64le",
                 "s390x", "riscv64", "loong64")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """A used descriptor, and the bytes that it points to."""

    slot: int
    kind: int
    identifier: int
    group: int  # 0 for none
    link: int
    links_group: bool
    offset: int
    size: int
    padded_size: int
    created: int
    modified: int
    owner: tuple[int, int]
    name: bytes
    extra: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class ParsedSif:
    """All of a file."""

    launch: bytes
    architecture: str
    identity: bytes
    created: int
    modified: int
    objects: tuple[ParsedObject, ...]

    @property
    def primary(self) -> ParsedObject:
        """The partition that a container starts from."""
        return next(each for each in self.objects if is_primary(each))


def is_primary(item: ParsedObject) -> bool:
    return item.kind == PARTITION and struct.unpack_from("<i", item.extra, 4)[0] == PRIMARY


def parse_sif(data: bytes) -> ParsedSif:
    """Read a file, and check whatever the format demands; AssertionError says what is wrong."""
    launch, magic, version, architecture, identity, created, modified, *numbers = _HEADER.unpack_from(data)
    free, total, table, table_size, start, length = numbers
    assert (magic, version) == (b"SIF_MAGIC\0", b"01\0")
    assert launch.endswith(b"\0"), "a launch script ends with NUL"
    assert table >= _HEADER.size
    assert table_size == total * 585 == total * _SLOT.size
    assert start >= table + table_size, "data begins behind the table"
    assert not any(data[_HEADER.size : table]), "nothing stands between header and table"
    slots = [_SLOT.unpack_from(data, table + 585 * number) for number in range(total)]
    objects = tuple(_parse_slot(data, number, slot) for number, slot in enumerate(slots) if slot[1])
    assert all(not any(data[table + 585 * n : table + 585 * n + 585]) for n, slot in enumerate(slots) if not slot[1])
    assert free == total - len(objects)
    _check_places(objects, start)
    end = max((each.offset + each.size for each in objects), default=start)
    assert length == end - start, f"{length} bytes of data are told where {end - start} are"
    assert len(data) == end, f"the file has {len(data)} bytes where its last object ends at {end}"
    named = ARCHITECTURES[int(architecture[:2])]
    primaries = [each for each in objects if is_primary(each)]
    assert len(primaries) <= 1
    assert architecture == (primaries[0].extra[8:11] if primaries else b"00\0")
    return ParsedSif(launch.rstrip(b"\0"), named, identity, created, modified, objects)


def _parse_slot(data: bytes, number: int, slot: tuple) -> ParsedObject:  # type: ignore[type-arg]
    kind, used, identifier, group, link, offset, size, padded, created, modified, uid, gid, name, extra = slot
    assert used == 1
    assert group & _GROUP == _GROUP, "a group carries its mark"
    assert name.endswith(b"\0"), "a name ends with NUL"
    assert offset + size <= len(data), f"object {identifier} ends behind the file"
    assert kind != PARTITION or offset % 4096 == 0, "file systems begin at pages"
    links = (group & ~_GROUP, link & ~_GROUP, link & _GROUP == _GROUP)
    numbers = (offset, size, padded, created, modified, (uid, gid))
    return ParsedObject(number, kind, identifier, *links, *numbers, name.rstrip(b"\0"), extra, data[offset:][:size])


def _check_places(objects: tuple[ParsedObject, ...], start: int) -> None:
    assert len({each.identifier for each in objects}) == len(objects), "each has an ID of its own"
    end = start
    for each in sorted(objects, key=lambda item: (item.offset, item.size)):
        assert each.offset >= end, f"object {each.identifier} at {each.offset} begins before {end}"
        assert each.padded_size >= each.size
        end = each.offset + each.size
