# SPDX-License-Identifier: BSD-3-Clause
"""What is asked of another runtime, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kedge.container.facts import Additions, Bind, HostFacts, ImageFacts
from kedge.container.options import RunOptions
from kedge.container.others.rules import FieldRule
from kedge.errors import RuntimeUnsuited


@dataclass(frozen=True, slots=True)
class ForeignImage:
    """The image in the form that the runtime takes, and what is known about it."""

    path: str
    kind: str  # sif, squashfs or directory
    facts: ImageFacts  # a look into it, for runtimes that have to be told what to start


@dataclass(frozen=True, slots=True)
class RuntimeCall:
    """Everything that a command line is made from."""

    options: RunOptions
    binds: list[Bind]  # what --bind, --mount and their variables ask for
    image: ForeignImage
    host: HostFacts
    additions: Additions = field(default_factory=Additions)
    has_terminal: bool = False


@dataclass(slots=True)
class ForeignPlan:
    """A command line, what is said about it, and what stands against it."""

    runtime: str
    argv: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # what the user does not get; said always
    details: list[str] = field(default_factory=list)  # said with --verbose
    is_idle: bool = False  # there is nothing to start, which is well: the image has no test
    refused: list[tuple[str, str]] = field(default_factory=list)  # the option as the user knows it, and why

    def require_suited(self) -> None:
        """Raise what stands against it, if anything does."""
        if not self.refused:
            return
        reasons = "; ".join(f"{option}: {reason}" for option, reason in self.refused)
        names = " and ".join(dict.fromkeys(option for option, _ in self.refused))
        raise RuntimeUnsuited(
            f"{self.runtime} does not support {reasons}",
            context={"runtime": self.runtime, "options": names},
            hint=f"leave out {names}, or leave out --runtime {self.runtime}: kedge itself supports it",
        )


class Adapter(Protocol):
    """One runtime: pure text, options in, command line and environment out."""

    @property
    def name(self) -> str:
        """What `--runtime` calls it."""
        ...

    @property
    def program(self) -> str:
        """The program to look for."""
        ...

    @property
    def forms(self) -> tuple[str, ...]:
        """The kinds of images it takes, the one to convert others into first."""
        ...

    @property
    def reads_scripts(self) -> bool:
        """Whether the runtime knows `/.singularity.d` itself; others are told what to start."""
        ...

    @property
    def rules(self) -> Mapping[str, FieldRule]:
        """One rule for every attribute of RunOptions."""
        ...

    def fill(self, request: RuntimeCall, words: list[str], plan: ForeignPlan) -> None:
        """Put `argv` and `environ` into the plan; `words` are those that the rules made. Adds notes and refusals."""
        ...
