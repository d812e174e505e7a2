# SPDX-License-Identifier: BSD-3-Clause
"""An object on its way into a SIF file, and the rules that place it there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from kedge.errors import UsageError
from kedge.image.formats.sif.layout import (
    DEFAULT_GROUP,
    EXTRA_LENGTH,
    GROUP_MASK,
    NAME_LENGTH,
    PARTITION_ALIGNMENT,
    DataType,
    SifDescriptor,
)

COPY_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class DataObject:
    """What is to be stored: bytes, or an open file that is copied from its beginning to its end."""

    data_type: int
    data: bytes | BinaryIO
    name: str = ""
    group: int = DEFAULT_GROUP  # 0 for none
    link: int = 0  # 0 for none
    links_group: bool = False  # `link` is a group, not an object
    extra: bytes = b""
    alignment: int | None = None  # None: 4096 for partitions, none for the rest

    @property
    def size(self) -> int:
        """How many bytes it has."""
        if isinstance(self.data, bytes):
            return len(self.data)
        return self.data.seek(0, os.SEEK_END)

    def chunks(self) -> Iterator[bytes]:
        """The bytes in order."""
        if isinstance(self.data, bytes):
            yield self.data
            return
        self.data.seek(0)
        while chunk := self.data.read(COPY_CHUNK):
            yield chunk

    @property
    def step(self) -> int:
        """The number its offset must be a multiple of."""
        if self.alignment is not None:
            return max(self.alignment, 1)
        return PARTITION_ALIGNMENT if self.data_type == DataType.PARTITION else 1

    def place(self, slot: int, end: int, size: int, time: int) -> SifDescriptor:
        """Return the object's descriptor when it follows data that ends at `end`."""
        self._check()
        offset = align(end, self.step)
        return SifDescriptor(
            slot=slot,
            data_type=self.data_type,
            id=slot + 1,
            group_field=GROUP_MASK | self.group,
            link_field=(GROUP_MASK | self.link) if self.links_group else self.link,
            offset=offset,
            size=size,
            padded_size=size + offset - end,
            created=time,
            modified=time,
            uid=0,
            gid=0,
            name_field=encode_name(self.name),
            extra=self.extra.ljust(EXTRA_LENGTH, b"\0"),
        )

    def _check(self) -> None:
        if not 0 <= self.group < GROUP_MASK or not 0 <= self.link < GROUP_MASK:
            raise UsageError(f"group {self.group} or link {self.link} is out of range: 0 to {GROUP_MASK - 1}")
        if len(self.extra) > EXTRA_LENGTH:
            raise UsageError(f"the type-dependent field has {len(self.extra)} bytes, a descriptor holds {EXTRA_LENGTH}")
        if self.step & (self.step - 1):
            raise UsageError(f"an alignment must be a power of two, not {self.step}")


def align(position: int, step: int) -> int:
    """The first multiple of `step` at or behind `position`."""
    return (position + step - 1) // step * step


def encode_name(name: str) -> bytes:
    """The 128-byte name field; a longer name is cut between characters."""
    raw = name.encode("utf-8", "surrogateescape")
    if len(raw) >= NAME_LENGTH:  # one byte stays for the NUL that C readers look for
        raw = raw[: NAME_LENGTH - 1].decode("utf-8", "ignore").encode()
    return raw.ljust(NAME_LENGTH, b"\0")
