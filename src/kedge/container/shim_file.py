# SPDX-License-Identifier: BSD-3-Clause
"""The files that `kedge shim install` writes, and how they are told from the real programs of the same names."""

from __future__ import annotations

import os

PROGRAMS = ("apptainer", "singularity", "run-singularity")  # installed together, unless others are named
# the others are installed by name; each has a module of its own
_MODULES = {"docker": "docker_words", "enroot": "enroot_words", "srun": "srun_words"}
ALL_PROGRAMS = (*PROGRAMS, *_MODULES)
MARK = "made by 'kedge shim install'"
_LONGEST_SHEBANG = 127  # of kernels before 5.1
_HEAD = 2048


def is_shim(path: str) -> bool:
    """Whether the file is one of ours."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return MARK.encode() in os.read(file, _HEAD)
    except OSError:
        return False
    finally:
        os.close(file)


def make_shim(program: str, python: str, source: str, verb: str = "") -> str:
    """The text of one shim: no module of the site's is imported, and the package is found by its path.

    `verb`: the word that makes `python`, a bundle, start its Python; it finds the package without `source`.
    """
    first = f"#!{python} -SI"
    if len(first) > _LONGEST_SHEBANG or any(character.isspace() for character in python) or verb:
        # a shell starts Python, which reads these two lines as one string
        quoted = "'" + python.replace("'", "'\"'\"'") + "'" + (f" {verb}" if verb else "")
        first = f"#!/bin/sh\n'''exec' {quoted} -SI \"$0\" \"$@\"\n' '''"
    module = _MODULES.get(program, "shim_words")
    again = f"kedge shim install {program}" if program in _MODULES else "kedge shim install"
    place = f"sys.path.insert(0, {source!r})\n" if not verb else ""
    return f"""{first}
# {program}: {MARK}, and removed by 'kedge shim remove'
import sys

{place}try:
    from kedge.cli.shims.{module} import main
except ImportError as problem:
    sys.exit(f"{program}: kedge is not in {{sys.path[0]}} ({{problem}}); to write this file again: {again}")
sys.exit(main({program!r}))
"""
