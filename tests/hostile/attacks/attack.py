# SPDX-License-Identifier: BSD-3-Clause
"""One attack, and the ways in which containers are started against it."""

from __future__ import annotations

from dataclasses import dataclass

OPEN, HELD, REFUSED, NOT_RUN = "open", "held", "refused", "—"
_LETTERS = {"o": OPEN, "h": HELD, "r": REFUSED, "-": NOT_RUN}

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
# The ways that share something with the host by design
NOTHING: tuple[str, ...] = ()
FILES = ("no flag", "--fakeroot")
PROCESSES = (*FILES, "--contain", "--fakeroot --contain")
VARIABLES = (*PROCESSES, "--contain --pid")
EVERYTHING = tuple(WAYS)


@dataclass(frozen=True, slots=True)
class Attack:
    """What it wants, the signs by which its success is seen, and where it is open by design."""

    wants: str
    signs: tuple[str, ...]  # what the attacking program reports with a secret in it, or what is seen outside
    apptainer: str  # what the real Apptainer does in the five columns: o(pen), h(eld), r(efused), - (cannot be run)
    opens: tuple[str, ...] = NOTHING  # the ways of starting in which it succeeds
    why: str = ""  # the reason, for readers of the threat model
    otherwise: str = HELD  # what becomes of it in all other ways

    def expect(self, way: str) -> str:
        """What is expected of a way of starting."""
        return OPEN if way in self.opens else self.otherwise

    def expect_apptainer(self) -> list[str]:
        """What is expected of Apptainer, in the order of the columns."""
        return [_LETTERS[letter] for letter in self.apptainer]
