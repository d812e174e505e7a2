# SPDX-License-Identifier: BSD-3-Clause
"""What a batch script says, once read: its directives one by one, and what its commands start."""

from __future__ import annotations

from dataclasses import dataclass

from kedge.base.shell_text import Command, Word
from kedge.cluster.schedulers.choose import find_language
from kedge.cluster.schedulers.directive import Directive
from kedge.cluster.schedulers.language import Language


@dataclass(frozen=True, slots=True)
class ContainerCall:
    """A container that the script starts."""

    line: int
    program: str  # singularity, apptainer, kedge, enroot, srun (with --container-image), shifter
    verb: str  # exec, run, shell, start; empty where the program has none
    options: tuple[tuple[str, Word | None], ...]  # by their long names
    image: Word | None
    command: tuple[Word, ...]
    launcher: tuple[Word, ...]  # the words before it
    source: Command

    def has_option(self, *names: str) -> bool:
        """Whether one of these is given."""
        return any(name in names for name, _ in self.options)

    @property
    def gives_gpus(self) -> bool:
        """Whether the container sees the GPUs."""
        return self.program in ("srun", "enroot", "shifter") or self.has_option("--nv", "--nvccli", "--rocm")


@dataclass(frozen=True, slots=True)
class BatchScript:
    """A whole script."""

    text: str  # with Unix line ends and without a byte order mark
    scheduler: str  # slurm, gridengine, pbs, lsf, flux or local
    reason: str  # why that one
    shebang: str  # the first line, when it is one
    directives: tuple[Directive, ...]
    body: tuple[tuple[int, str], ...]  # lines from the first command on, without directives that were read
    commands: tuple[Command, ...]
    containers: tuple[ContainerCall, ...]
    launchers: tuple[Command, ...]  # srun, mpirun, ... with or without a container
    modules: tuple[tuple[int, str], ...]  # line and name of what `module load` loads
    dos_line: int = 0  # the first line that ends with \r\n
    has_mark: bool = False  # a byte order mark before the first line
    inner_lines: frozenset[int] = frozenset()  # lines of here documents and of texts in quotes

    @property
    def language(self) -> Language:
        """How its scheduler reads it."""
        return find_language(self.scheduler)

    @property
    def live(self) -> tuple[Directive, ...]:
        """The directives that are read."""
        return tuple(directive for directive in self.directives if directive.is_live)

    @property
    def live_lines(self) -> frozenset[int]:
        """The lines that hold a directive that is read."""
        return frozenset(directive.line for directive in self.live)

    def find(self, *options: str) -> Directive | None:
        """The last live directive with one of these options, which is the one that counts."""
        return next((directive for directive in reversed(self.live) if directive.option in options), None)
