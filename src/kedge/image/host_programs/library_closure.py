# SPDX-License-Identifier: BSD-3-Clause
"""Shared objects of this host with all that they need, for mounting them into containers: names and files only.

The objects of the C library stay out: a program has those of its own system, and two of them do not work together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kedge.base.frozen import frozen
from kedge.base.platform import Platform
from kedge.base.versions import order
from kedge.errors import KedgeError
from kedge.image.formats.elf import ElfObject, read_elf
from kedge.image.host_programs.linker import Linker, Needer
from kedge.image.host_programs.rules import is_driver_object

_C_LIBRARY = re.compile(
    r"(?:ld-linux|ld64|ld-)[\w.-]*so.*|lib(?:c|m|dl|rt|pthread|util|resolv|nsl|crypt|anl|mvec|BrokenLocale|thread_db"
    r"|nss_\w+)\.so(?:\.\d+)*"
)
_MOST = 2000


@frozen
class NeededObject:
    """One shared object: the name by which others ask for it, its file, and the newest glibc that it needs."""

    name: str
    path: str
    glibc: str = ""


@frozen
class ClosedObjects:
    """All objects that some need, themselves included; `missing` are those that this host does not have."""

    objects: tuple[NeededObject, ...]
    missing: tuple[str, ...] = ()

    @property
    def newest(self) -> NeededObject | None:
        """The one that needs the newest glibc."""
        return max(self.objects, key=lambda each: order(each.glibc), default=None)


def close_over(paths: Iterable[str], folders: Sequence[str] = ()) -> ClosedObjects:
    """The objects at `paths` and what they need; `folders` are searched first, as LD_LIBRARY_PATH is."""
    host = Platform.host()
    search = _Search(Linker(host.architecture, 32 if host.architecture in ("386", "arm") else 64), folders)
    for path in paths:
        search.add(path)
    return ClosedObjects(tuple(search.found.values()), tuple(sorted(search.missing)))


class _Search:
    def __init__(self, linker: Linker, folders: Sequence[str]) -> None:
        self.linker = linker
        self.folders = [folder for folder in folders if folder.startswith("/")]
        self.found: dict[str, NeededObject] = {}
        self.missing: set[str] = set()

    def add(self, path: str) -> None:
        """Follow one object until nothing new turns up."""
        elf = self._read(path)
        if elf is None:
            return
        waiting = [Needer(path, elf)]
        self._keep(elf.soname or path.rpartition("/")[2], path, elf)
        while waiting and len(self.found) < _MOST:
            needer = waiting.pop(0)
            for name in needer.elf.needed:
                if name in self.found or _C_LIBRARY.fullmatch(name) or is_driver_object(name):
                    continue
                place = self._find(name, needer)
                part = self._read(place) if place else None
                if place is None or part is None:
                    self.missing.add(name)
                    continue
                self._keep(name, place, part)
                waiting.append(Needer(place, part, (needer, *needer.chain)))

    def _find(self, name: str, needer: Needer) -> str | None:
        for folder in self.folders:
            place = f"{folder}/{name}"
            if Path(place).is_file():
                return place
        return self.linker.find(name, needer)

    def _keep(self, name: str, path: str, elf: ElfObject) -> None:
        versions = [each.removeprefix("GLIBC_") for each in elf.needed_versions if each.startswith("GLIBC_")]
        newest = max((version for version in versions if order(version)), key=order, default="")
        self.found.setdefault(name, NeededObject(name, str(Path(path).resolve()), newest))

    def _read(self, path: str) -> ElfObject | None:
        try:
            return read_elf(Path(path), with_versions=True)
        except KedgeError:
            return None
