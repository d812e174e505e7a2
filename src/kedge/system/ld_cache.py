# SPDX-License-Identifier: BSD-3-Clause
"""Reads /etc/ld.so.cache, the table of shared libraries that `ldconfig` writes, without running `ldconfig -p`.

Formats: glibc's elf/cache.c and dl-cache.h. A file that does not hold together gives nothing; it is never trusted.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    Order = Literal["little", "big"]

MAXIMUM_SIZE = 16 << 20  # the largest cache of a real machine is about 1 MiB
_MAXIMUM_ENTRIES = 1 << 18
_MAXIMUM_NAME = 4096
_OLD_MAGIC = b"ld.so-1.7.0\0"
MAGIC = b"glibc-ld.so.cache1.1"
_OLD_HEADER, _OLD_ENTRY = 16, 12  # flags, key, value
_NEW_HEADER, _NEW_ENTRY = 48, 24  # flags, key, value, OS version, 8 bytes of hardware capabilities
_ORDERS: tuple[Order | None, ...] = (None, None, "little", "big")  # by the low bits of the new header's flags

# the kind of object (ELF for glibc 2) and the architecture, as `ldconfig` numbers them
_FLAGS = {
    "x86_64": 0x0303,
    "aarch64": 0x0A03,
    "ppc64le": 0x0503,
    "ppc64": 0x0503,
    "s390x": 0x0403,
    "riscv64": 0x1003,
    "loongarch64": 0x1203,
    "i686": 0x0003,
    "i386": 0x0003,
    "armv7l": 0x0903,
}


class CacheEntry:
    """One line of `ldconfig -p`."""

    __slots__ = ("capabilities", "flags", "name", "path", "version")

    def __init__(self, flags: int, name: str, path: str, version: int, capabilities: int) -> None:
        self.flags = flags
        self.name = name
        self.path = path
        self.version = version
        self.capabilities = capabilities  # not 0: for newer CPUs alone


def read_cache(data: bytes, machine: str, prefixes: tuple[bytes, ...] = (b"",)) -> list[tuple[str, str]]:
    """(name, path) of the libraries for `machine` whose names begin with one of `prefixes`, in the cache's order.

    Empty when the file is no cache, is cut off or lies about itself.
    """
    wanted = _FLAGS.get(machine)
    return [] if wanted is None else [(entry.name, entry.path) for entry in read_entries(data, wanted, prefixes)]


def read_entries(data: bytes, wanted: int | None = None, prefixes: tuple[bytes, ...] = (b"",)) -> list[CacheEntry]:
    """The same with all that the cache says; without flags that are `wanted` the libraries of all machines."""
    if len(data) > MAXIMUM_SIZE:
        return []
    if data.startswith(MAGIC):
        return _read_new(data, wanted, prefixes)
    if not data.startswith(_OLD_MAGIC):
        return []
    count = int.from_bytes(data[12:16], sys.byteorder)
    end = _OLD_HEADER + count * _OLD_ENTRY
    if count > _MAXIMUM_ENTRIES or end > len(data):
        return []
    for alignment in (8, 4):  # the new table follows where the compiler aligned it
        start = -(-end // alignment) * alignment
        if data.startswith(MAGIC, start):
            return _read_new(data[start:], wanted, prefixes)
    words = _read_words(data[_OLD_HEADER:end], sys.byteorder)
    # the old table knows no byte order of its own; its names are counted from the end of the entries
    return _collect(data[end:], words, 3, wanted, prefixes)


def _read_new(data: bytes, wanted: int | None, prefixes: tuple[bytes, ...]) -> list[CacheEntry]:
    if len(data) < _NEW_HEADER:
        return []
    order = _ORDERS[data[28] & 3] or sys.byteorder
    count = int.from_bytes(data[20:24], order)
    end = _NEW_HEADER + count * _NEW_ENTRY
    if count > _MAXIMUM_ENTRIES or end > len(data):
        return []
    return _collect(data, _read_words(data[_NEW_HEADER:end], order), 6, wanted, prefixes)


def _read_words(data: bytes, order: Order) -> memoryview | list[int]:
    """Return all 32-bit words; a cast costs nothing, and a cache of the other byte order is a rarity."""
    if order == sys.byteorder:
        return memoryview(data).cast("I")
    return [int.from_bytes(data[at : at + 4], order) for at in range(0, len(data), 4)]


def _collect(
    names: bytes, words: memoryview | list[int], step: int, wanted: int | None, prefixes: tuple[bytes, ...]
) -> list[CacheEntry]:
    entries = []
    for at in range(0, len(words) - step + 1, step):
        if wanted in (None, words[at] & 0xFFFF) and names.startswith(prefixes, words[at + 1]):
            name, path = _read_text(names, words[at + 1]), _read_text(names, words[at + 2])
            if name and path.startswith("/"):
                version, capabilities = (words[at + 3], words[at + 4] | words[at + 5]) if step > 3 else (0, 0)
                entries.append(CacheEntry(words[at], name, path, version, capabilities))
    return entries


def _read_text(names: bytes, start: int) -> str:
    end = names.find(b"\0", start, start + _MAXIMUM_NAME)
    return names[start:end].decode(errors="surrogateescape") if end > start else ""
