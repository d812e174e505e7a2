# SPDX-License-Identifier: BSD-3-Clause
"""Finds shared objects like the dynamic loader does, and writes the cache the loader will want in the image.

The order is ld.so(8)'s: RPATH (of the object and of those that loaded it, unless it has a RUNPATH), RUNPATH, the cache
of ldconfig, the default directories. LD_LIBRARY_PATH is not used: it is not there in the container. musl has its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import KedgeError
from kedge.image.formats.elf import ElfObject, read_elf
from kedge.system.ld_cache import MAGIC, MAXIMUM_SIZE, CacheEntry, read_entries

_CACHE = Path("/etc/ld.so.cache")
_CACHE_HEADER = struct.Struct("=20sIIB3xI12x")
_CACHE_ENTRY = struct.Struct("=iIIIQ")
_TRIPLETS = {
    "amd64": "x86_64-linux-gnu",
    "arm64": "aarch64-linux-gnu",
    "386": "i386-linux-gnu",
    "arm": "arm-linux-gnueabihf",
    "ppc64le": "powerpc64le-linux-gnu",
    "s390x": "s390x-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "loong64": "loongarch64-linux-gnu",
}


@dataclass(frozen=True, slots=True)
class Needer:
    """An object that needs others, and the chain that loaded it, nearest first: their RPATHs count too."""

    path: str
    elf: ElfObject
    chain: tuple[Needer, ...] = ()


class Linker:
    """The search of one loader; what was read is remembered."""

    def __init__(self, architecture: str, bits: int, *, cache: Path = _CACHE) -> None:
        self._architecture = architecture
        self._bits = bits
        self._objects: dict[str, ElfObject | None] = {}
        self.entries = _read_cache(cache)
        self._by_name: dict[str, list[str]] = {}
        for entry in self.entries:
            self._by_name.setdefault(entry.name, []).append(entry.path)

    def read(self, path: str) -> ElfObject | None:
        """The ELF object at a path; None when it is something else."""
        if path not in self._objects:
            self._objects[path] = read_elf(Path(path))
        return self._objects[path]

    def find(self, name: str, needer: Needer) -> str | None:
        """Where the loader finds the shared object `name` that `needer` asks for."""
        if "/" in name:
            place = _expand(name, needer.path, self._bits, self._architecture)
            return place if self._fits(place) else None
        return next((place for place in self._candidates(name, needer) if self._fits(place)), None)

    def find_by_name(self, name: str, interpreter: str) -> str | None:
        """Where `dlopen(name)` of a program with that interpreter ends up."""
        return self.find(name, Needer("/", ElfObject(self._architecture, self._bits, True, interpreter)))

    def _candidates(self, name: str, needer: Needer) -> Iterator[str]:
        for folder in self._own_folders(needer):
            if folder.startswith("/"):  # others depend on where the program is started
                yield f"{folder}/{name}"
        if not _is_musl(needer):
            yield from self._by_name.get(name, ())
        for folder in self._default_folders(needer):
            yield f"{folder}/{name}"

    def _own_folders(self, needer: Needer) -> Iterator[str]:
        if not needer.elf.runpath:
            for loaded in (needer, *needer.chain):
                if not loaded.elf.runpath:
                    for folder in loaded.elf.rpath:
                        yield _expand(folder, loaded.path, self._bits, self._architecture)
        for folder in needer.elf.runpath:
            yield _expand(folder, needer.path, self._bits, self._architecture)

    def _default_folders(self, needer: Needer) -> Sequence[str]:
        if _is_musl(needer):
            return _read_musl_folders(needer)
        triplet = _TRIPLETS.get(self._architecture, "")
        multiarch = [f"/lib/{triplet}", f"/usr/lib/{triplet}"] if triplet else []
        return [*multiarch, *(["/lib64", "/usr/lib64"] if self._bits == 64 else []), "/lib", "/usr/lib"]

    def _fits(self, path: str) -> bool:
        """Whether the loader would take the object at a path: one of another architecture is passed over."""
        if not os.path.isfile(path):  # noqa: PTH113 - called for every candidate; Path is ten times slower
            return False
        try:
            elf = self.read(path)
        except KedgeError:
            return False
        return elf is not None and (elf.architecture, elf.bits) == (self._architecture, self._bits)


def _expand(folder: str, needer: str, bits: int, architecture: str) -> str:
    origin = os.path.dirname(needer)  # noqa: PTH120 - links to an object are not followed for $ORIGIN
    library = "lib64" if bits == 64 and architecture not in ("arm64", "riscv64", "loong64") else "lib"
    for name, value in (("ORIGIN", origin), ("LIB", library), ("PLATFORM", os.uname().machine)):
        folder = folder.replace("${" + name + "}", value).replace("$" + name, value)
    return folder  # `..` stays: behind a link it means another directory than the text says


def _is_musl(needer: Needer) -> bool:
    objects = (needer, *needer.chain)
    return any(loaded.elf.interpreter.rpartition("/")[2].startswith("ld-musl") for loaded in objects)


def _read_musl_folders(needer: Needer) -> Sequence[str]:
    interpreter = next(loaded.elf.interpreter for loaded in (needer, *needer.chain) if loaded.elf.interpreter)
    try:
        text = Path(name_musl_paths(interpreter)).read_text()
    except (OSError, ValueError):
        return ["/lib", "/usr/local/lib", "/usr/lib"]
    return [folder for folder in text.replace("\n", ":").split(":") if folder]


def name_musl_paths(interpreter: str) -> str:
    """The file in which musl's loader finds the directories to search, where there is one."""
    return f"/etc/{interpreter.rpartition('/')[2].partition('.')[0]}.path"


def _read_cache(path: Path) -> list[CacheEntry]:
    """The entries of ldconfig's cache for the base instruction set; empty when there is none or it is unreadable."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAXIMUM_SIZE else b""
    except OSError:
        return []
    # others need newer CPUs: the image must run on older ones, too
    return [entry for entry in read_entries(data) if entry.capabilities == 0]


def write_cache(entries: Sequence[CacheEntry], packed: Container[str]) -> bytes:
    """A cache with those entries whose file is in the image, in the order they had: the loader searches by halving."""
    kept = [entry for entry in entries if entry.path in packed]
    strings = bytearray()
    places: dict[str, int] = {}
    base = _CACHE_HEADER.size + len(kept) * _CACHE_ENTRY.size
    for text in (text for entry in kept for text in (entry.name, entry.path)):
        if text not in places:
            places[text] = base + len(strings)
            strings += text.encode("utf-8", "surrogateescape") + b"\0"
    endian = 2 if struct.pack("=H", 1) == b"\1\0" else 3
    header = _CACHE_HEADER.pack(MAGIC, len(kept), len(strings), endian, 0)
    rows = [_CACHE_ENTRY.pack(e.flags, places[e.name], places[e.path], e.version, 0) for e in kept]
    return header + b"".join(rows) + bytes(strings)
