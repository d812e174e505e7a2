# SPDX-License-Identifier: BSD-3-Clause
"""SIF files by seed: objects whose sizes, names and places crowd at the edges, built and then changed by kedge.

What must be in the file is kept beside it, and compared with what `sif_parser` finds.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, replace
from pathlib import Path

from kedge.image.formats.sif.data_object import DataObject
from kedge.image.formats.sif.edit import append_objects, create_empty, delete_object, set_primary
from kedge.image.formats.sif.writer import SifBuilder
from tests.builders.sif_parser import ARCHITECTURES, PARTITION, ParsedObject, ParsedSif, is_primary

SIZES = (0, 1, 2, 511, 512, 4095, 4096, 4097, 8192, 32176, 36864 - 32176, 36864 - 32176 + 1, 70_000)
KINDS = (0x4001, 0x4002, 0x4003, 0x4006, 0x4007, 0x4008, 0x4009, 0x400A, 0x400B)
SLOTS = 48


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a descriptor must say, and the bytes it must lead to."""

    kind: int
    name: str
    group: int
    link: int
    links_group: bool
    extra: bytes
    data: bytes
    alignment: int = 1

    def as_object(self) -> DataObject:
        """As kedge takes it."""
        alignment = None if self.kind == PARTITION else self.alignment
        links = {"group": self.group, "link": self.link, "links_group": self.links_group}
        return DataObject(self.kind, self.data, self.name, **links, extra=self.extra, alignment=alignment)


class SifMaker:
    """One file and what must be in it, by slot."""

    def __init__(self, seed: int, path: Path) -> None:
        self._rng = random.Random(f"sif {seed}")
        self.path = path
        self.slots: dict[int, Wanted] = {}
        self.architecture = self._rng.choice(ARCHITECTURES[:13])
        self.created = self._rng.choice((0, 1, 1_700_000_000, (1 << 33) + 1, -62_135_596_800))

    def build(self) -> None:
        """In one pass, as images are written; partitions in their final place."""
        rng = self._rng
        if rng.random() < 0.1:
            create_empty(self.path, force=True, now=self.created)
            return
        with self.path.open("w+b") as file:
            builder = SifBuilder(file, architecture=self.architecture, created=self.created)
            for slot in range(rng.choice((0, 1, 2, 4, 7, SLOTS - 1, SLOTS))):
                wanted = self._choose()
                if wanted.kind == PARTITION:
                    file_system, partition_type = struct.unpack_from("<ii", wanted.extra)
                    builder.begin_partition(wanted.name, file_system=file_system, partition_type=partition_type)
                    file.write(wanted.data)
                    builder.end_partition(len(wanted.data))
                    wanted = replace(wanted, group=1, link=0, links_group=False)
                else:
                    builder.add(wanted.as_object())
                self.slots[slot] = wanted
            builder.finish()
        self.path.chmod(0o755)

    def change(self) -> None:
        """Add some, delete one, or make another partition the primary one."""
        rng, now = self._rng, 1_800_000_000
        way = rng.randrange(3)
        systems = [slot for slot, each in self.slots.items() if _partition_type(each) == 1]
        if way == 0 and self.slots:
            slot = rng.choice(sorted(self.slots))
            delete_object(self.path, slot + 1, now=now)
            del self.slots[slot]
        elif way == 1 and systems:
            for slot, each in list(self.slots.items()):
                if _partition_type(each) == 2:
                    self.slots[slot] = _with_type(each, 1)
            chosen = rng.choice(systems)
            set_primary(self.path, chosen + 1, now=now)
            self.slots[chosen] = _with_type(self.slots[chosen], 2)
        else:
            items = []
            for _ in range(min(rng.choice((1, 1, 3)), SLOTS - len(self.slots))):
                items.append(self._choose())
                self.slots[min(set(range(SLOTS)) - set(self.slots))] = items[-1]
            append_objects(self.path, [each.as_object() for each in items], now=now)

    def _choose(self) -> Wanted:
        rng = self._rng
        data = rng.randbytes(rng.choice(SIZES))
        name = rng.choice(("", "a", "n" * 126, "n" * 127, "n" * 128, "é" * 63, "é" * 64, "n" + "é" * 63, "x" * 300))
        if rng.random() < 0.3:
            has_primary = any(_partition_type(each) == 2 for each in self.slots.values())
            kind = rng.choice((1, 3, 4) if has_primary else (1, 2, 2, 2))
            code = b"%02d\0" % ARCHITECTURES.index(self.architecture)
            return Wanted(PARTITION, name, 1, 0, False, struct.pack("<ii3s", rng.randrange(1, 5), kind, code), data)
        group, link = rng.choice((0, 1, 1, 2, 0x0FFFFFFF)), rng.choice((0, 0, 1, 48))
        extra = rng.randbytes(rng.choice((0, 0, 1, 383, 384)))
        alignment = rng.choice((1, 1, 512, 4096))
        return Wanted(rng.choice(KINDS), name, group, link, bool(link) and rng.random() < 0.5, extra, data, alignment)

    def find_differences(self, found: ParsedSif) -> list[str]:
        """What the file says otherwise."""
        wrong = []
        if sorted(self.slots) != [each.slot for each in found.objects]:
            return [f"slots {[each.slot for each in found.objects]} instead of {sorted(self.slots)}"]
        for each in found.objects:
            wanted = self.slots[each.slot]
            told = (each.kind, each.identifier, each.name, each.group, each.link, each.links_group)
            must = (wanted.kind, each.slot + 1, _cut_name(wanted.name), wanted.group, wanted.link, wanted.links_group)
            if told != must:
                wrong.append(f"{told} where {must} belongs")
            if each.extra != wanted.extra.ljust(384, b"\0") or each.data != wanted.data:
                wrong.append(f"object {each.identifier} has other bytes")
            if each.offset % wanted.alignment or each.owner != (0, 0):
                wrong.append(f"object {each.identifier} is at {each.offset}, owned by {each.owner}")
        primary = any(map(is_primary, found.objects))
        if found.architecture != (self.architecture if primary else "unknown"):
            wrong.append(f"the header says {found.architecture}")
        return wrong

    def check_places(self, objects: tuple[ParsedObject, ...], start: int) -> list[str]:
        """Of a file that was built in one pass: each begins as early as it may, and its padded size says so."""
        wrong, end = [], start
        for each in objects:
            step = 4096 if each.kind == PARTITION else self.slots[each.slot].alignment
            if each.offset != end + -end % step or each.padded_size != each.offset - end + each.size:
                wrong.append(f"object {each.identifier}: {each.offset}, padded to {each.padded_size}, after {end}")
            end = each.offset + each.size
        return wrong


def _partition_type(wanted: Wanted) -> int:
    return int(struct.unpack_from("<i", wanted.extra, 4)[0]) if wanted.kind == PARTITION else 0


def _with_type(wanted: Wanted, kind: int) -> Wanted:
    return replace(wanted, extra=wanted.extra[:4] + struct.pack("<i", kind) + wanted.extra[8:])


def _cut_name(name: str) -> bytes:
    """As much of a name as fits before its NUL, no half characters."""
    while len(name.encode()) > 127:
        name = name[:-1]
    return name.encode()
