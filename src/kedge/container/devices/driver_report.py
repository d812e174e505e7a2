# SPDX-License-Identifier: BSD-3-Clause
"""The state of a vendor's driver on this host: its device nodes, and everything that is missing, with a remedy."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from kedge.container.facts import Additions


class Lack:
    """One part of a driver that is missing, and what to do; `subject` is absent, module, devices or libraries."""

    __slots__ = ("fix", "subject", "what")

    def __init__(self, subject: str, what: str, fix: str = "") -> None:
        self.subject = subject  # absent: the host has no such GPU, which may be intended
        self.what = what
        self.fix = fix


class DriverReport:
    """One vendor's driver."""

    def __init__(
        self, lacks: Sequence[Lack], summary: str = "", usable: Sequence[str] = (), refused: Sequence[str] = ()
    ) -> None:
        self.lacks = tuple(lacks)  # the first is the cause of the others
        self.summary = summary  # `NVIDIA driver 580.95.05 is loaded`; empty where the version is unknown
        self.usable = tuple(usable)  # device nodes of the GPUs
        self.refused = tuple(refused)  # those that this process may not open

    @property
    def has_gpu(self) -> bool:
        """Whether there is a driver to examine further."""
        return not any(lack.subject in ("absent", "module") for lack in self.lacks)

    def list_lacks(self, subject: str) -> list[Lack]:
        """Return what is missing of one kind."""
        return [lack for lack in self.lacks if lack.subject == subject]


def add_lacks(additions: Additions, flag: str, lacks: Sequence[Lack], *, is_shim: bool) -> None:
    """Warn of what is missing. Apptainer says nothing where there is no GPU, and tools read its output: so do shims."""
    texts = [f"{flag}: {lack.what} {lack.fix}".rstrip() for lack in lacks]
    if is_shim:
        additions.notes += texts
    else:
        additions.warnings += texts
