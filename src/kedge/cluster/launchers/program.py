# SPDX-License-Identifier: BSD-3-Clause
"""What every program that starts ranks is asked: which words to type, whose line this is, which rank failed.

Words stand in groups, so that a script can break its line between two of them. A word that a shell must still read,
such as `"$PBS_NODEFILE"`, is a ShellText; all others are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kedge.base.frozen import frozen

Groups = list[tuple[str, ...]]


class ShellText(str):
    """Text of a script that is not quoted any more."""

    __slots__ = ()


@frozen
class StartRequest:
    """What to start, in no program's words. Zero and empty: unknown or not wanted."""

    size: int  # all ranks
    nodes: int
    per_node: int  # 0: nodes differ
    hosts: tuple[tuple[str, int], ...] = ()  # the nodes and the ranks of each; empty: the program finds them out
    program: str = ""  # where it is; empty: its usual name
    version: str = ""  # of the MPI that it belongs to
    mpi_type: str = ""  # which PMI it offers the ranks, where there is a choice
    cpus_per_task: str = ""
    host_file: str = ""
    variables: tuple[str, ...] = ()  # to hand on to all nodes
    options: tuple[str, ...] = ()  # in the program's own words
    is_counted: bool = True  # say how many; False: where the program knows it from the job, it is left to that
    ends_together: bool = False  # when one rank fails, all end
    is_labelled: bool = False  # every line is to begin with its rank
    is_oversubscribed: bool = False  # more ranks than CPUs are fine


@frozen
class RankEnd:
    """What a line says of a rank that failed; None, 0 and empty: it does not say."""

    rank: int | None = None
    status: int | None = None  # as a shell shows it: 128 + N after signal N
    host: str = ""
    pid: int = 0


class LaunchProgram(Protocol):
    """One of them. All methods are pure."""

    name: str  # as users call it
    can_label: bool
    is_own: bool  # kedge itself is what starts the ranks of a node

    def list_words(self, request: StartRequest) -> Groups:
        """The program and its options, up to the command that every rank runs."""
        ...

    def split_label(self, line: str) -> tuple[int | None, str]:
        """The rank whose line it is, and the line without its label; None: the program's own."""
        ...

    def read_end(self, line: str) -> RankEnd | None:
        """What the program's own line says of a rank that failed; None: nothing."""
        ...


def glue(option: str, value: str) -> str:
    """`option` and its value as one word; a value for the shell makes the word one, too."""
    return ShellText(f"{option}{value}") if isinstance(value, ShellText) else f"{option}{value}"


def flatten(groups: Iterable[tuple[str, ...]]) -> list[str]:
    """The words of all groups."""
    return [word for group in groups for word in group]


def read_number(text: str | None) -> int | None:
    """A number of at most nine digits; None where there is none."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None
