# SPDX-License-Identifier: BSD-3-Clause
"""One attack, and the ways in which containers are started against it."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, HELD, REFUSED = "open", "held", "refused"

# The columns of the table in docs/threat-model.md, and two more that are tried
COLUMNS: dict[str, tuple[str, ...]] = {
    "no flag": (),
    "--contain": ("--contain",),
    "--containall": ("--containall",),
    "--fakeroot": ("--fakeroot",),
    "--fakeroot --containall": ("--fakeroot", "--containall"),
}
WAYS: dict[str, tuple[str, ...]] = {
    **COLUMNS,
    "--fakeroot --contain": ("--fakeroot", "--contain"),
    "--contain --pid": ("--contain", "--pid"),
}
# What of a way decides: which of the host's things it shares by design
FILES = ("no flag", "--fakeroot")
PROCESSES = (*FILES, "--contain", "--fakeroot --contain")
VARIABLES = (*PROCESSES, "--contain --pid")
EVERYTHING = tuple(WAYS)
ROOT = tuple(way for way in WAYS if "--fakeroot" in way)
NOTHING: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attack:
    """What it wants, the signs by which its success is seen, and where it is open by design."""

    wants: str
    signs: tuple[str, ...]  # what the attacking program reports with a secret in it, or what is seen outside
    opens: tuple[str, ...] = NOTHING  # the ways of starting in which it succeeds
    why: str = ""  # the reason, for readers of the threat model
    apptainer: str = ""  # what was measured in the five columns, as letters: o(pen), h(eld), r(efused), - (not run)

    def expect(self, way: str) -> str:
        """What is expected of a way of starting."""
        return OPEN if way in self.opens else HELD
