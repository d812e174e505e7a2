# SPDX-License-Identifier: BSD-3-Clause
"""The shared libraries of a bundle: what its programs and modules need, found as the loader finds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kedge.base.platform import Platform
from kedge.errors import FileProblem, KedgeError, UnsupportedFormat
from kedge.image.formats.elf import ElfObject
from kedge.image.host_programs.linker import Linker, Needer
from kedge.image.host_programs.rules import is_driver_object, rules_for
from kedge.tools.bundle import rules


class LibraryCollector:
    """Follows what ELF files need until nothing new turns up. `is_packed`: whether a path is in the bundle anyway."""

    def __init__(self, interpreter: str, is_packed: Callable[[str], bool]) -> None:
        self._linker = Linker(Platform.host().architecture, 64)
        self._is_packed = is_packed
        self.found: dict[str, str] = {}  # soname -> path
        program = self._read(interpreter)
        if program is None or not program.interpreter:
            raise UnsupportedFormat(
                f"{interpreter} is not a program that a loader starts", hint="use a Python that is linked to glibc"
            )
        self.loader = program.interpreter
        if not self.loader.rpartition("/")[2].startswith("ld-linux"):
            raise UnsupportedFormat(
                f"{interpreter} uses the loader {self.loader}", hint="make the bundle with a Python for glibc"
            )
        self.follow(interpreter)
        for name in (*rules.NAMED_OBJECTS, *self._list_opened("libc.so.6")):
            path = self._linker.find_by_name(name, self.loader)
            if path is not None:
                self._keep(name, path)

    def follow(self, path: str) -> None:
        """Add what the ELF file at `path` needs; other files need nothing."""
        elf = self._read(path)
        waiting = [Needer(path, elf)] if elf is not None else []
        while waiting:
            needer = waiting.pop(0)
            for name in needer.elf.needed:
                place = self._find(name, needer)
                if place is not None and self._keep(name, place):
                    part = self._read(place)
                    waiting += [Needer(place, part, (needer, *needer.chain))] if part is not None else []

    def _find(self, name: str, needer: Needer) -> str | None:
        if name in self.found or is_driver_object(name) or name == self.loader.rpartition("/")[2]:
            return None
        place = self._linker.find(name, needer)
        if place is None:
            raise FileProblem(
                f"{needer.path} needs the shared object {name}, which is not on this host",
                hint=f"'ldd {needer.path}' shows what is missing",
            )
        return None if self._is_packed(place) else place

    def _keep(self, name: str, path: str) -> bool:
        if name in self.found:
            return False
        self.found[name] = path
        for other in self._list_opened(name):
            place = self._linker.find_by_name(other, self.loader)
            if place is not None and self._keep(other, place):
                self.follow(place)
        return True

    def _list_opened(self, name: str) -> list[str]:
        return [other for rule in rules_for(name) for other in rule.objects]

    def _read(self, path: str) -> ElfObject | None:
        try:
            return self._linker.read(str(Path(path).resolve()))
        except KedgeError:
            return None
