# SPDX-License-Identifier: BSD-3-Clause
"""What a case of the conformance suite is: data only."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

IMAGES = "/srv/images"
HOME = "/home/peer"


@dataclass(frozen=True)
class Case:
    """One command line, what is around it, and what is looked at.

    The command is `words`, or for what one command line cannot say, the shell text `script` in which `$runtime` is the
    runtime and `$shim` what is called apptainer. Both run in a directory of the case's own,
    /srv/case/NAME, as an ordinary user.
    """

    name: str
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # beyond PATH, HOME, USER, LOGNAME, LANG, TERM
    setup: str = ""  # shell text, run in the directory before
    after: str = ""  # shell text, run in the directory afterwards; what it prints is compared too
    script: str = ""
    stdin: str = ""
    cwd: str = ""  # instead of the case's own directory
    status: int = 0  # what Apptainer must exit with, so that a case with a mistake in it is noticed
    prints: str | None = None  # what Apptainer must print, where it matters that it is just this
    mentions: tuple[str, ...] = ()  # words that both must have on stderr
    ignore: str = ""  # lines of stdout that match this are not compared
    difference: str = ""  # the section of docs/compatibility.md that says why kedge does otherwise
    ours: str | None = None  # a regular expression: all that kedge prints, where there is a difference
    our_status: int | None = None  # what kedge exits with, where that is the difference


def execute(image: str, command: str, flags: str = "") -> tuple[str, ...]:
    """`exec FLAGS IMAGE sh -c COMMAND`; the flags as a shell splits them."""
    return ("exec", *shlex.split(flags), f"{IMAGES}/{image}", "sh", "-c", command)


def run(image: str, *arguments: str, flags: str = "") -> tuple[str, ...]:
    """`run FLAGS IMAGE ARGUMENTS`."""
    return ("run", *shlex.split(flags), f"{IMAGES}/{image}", *arguments)
