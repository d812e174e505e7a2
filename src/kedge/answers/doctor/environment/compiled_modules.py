# SPDX-License-Identifier: BSD-3-Clause
"""Whether Python has kedge's modules compiled: if not, and if it may not keep them, it compiles them at every start."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from importlib.util import cache_from_source
from pathlib import Path

from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.system.start_kedge import own_interpreter, own_package

_NAME = "compiled-modules"
_OF_STARTS = (
    "cli/entry.py",
    "cli/container.py",
    "system/libc.py",
    "system/spawn.py",
    "system/views.py",
    "container/*.py",
)
_HEAD = 16  # bytes: magic number, flags, and the time and size of the source or its hash


def check_compiled_modules(_: Surroundings) -> list[Finding]:
    """Check the modules that every start of a container loads."""
    return [judge_modules(Path(own_package()), may_write=not sys.dont_write_bytecode)]


def judge_modules(package: Path, *, may_write: bool) -> Finding:
    """Check whether the modules of a package are compiled, or will be by whoever loads them first."""
    sources = [path for pattern in _OF_STARTS for path in sorted(package.glob(pattern))]
    missing = [path for path in sources if not _is_compiled(path)]
    if not sources:
        return Finding(_NAME, OK, "the bundle has them")
    if not missing or (may_write and all(_can_be_kept(path) for path in missing)):
        return Finding(_NAME, OK, "compiled" if not missing else "compiled when they are first loaded")
    owner = package.stat().st_uid
    return Finding(
        _NAME,
        NOTE,
        f"{len(missing)} of the {len(sources)} modules that a start loads are not compiled, and cannot be by you",
        why="Python compiles them at every start of a container: it takes three times as long, about 0.1 s more",
        fix=f"{_name_user(owner)}, who owns the installation, can run: {shlex.join(_words(package))}",
        docs=f"kedge help doctor {_NAME}",
    )


def _is_compiled(source: Path) -> bool:
    """Whether the compiled file is of this source, by Python's own rule: its time and its size, or a hash."""
    found = source.stat()
    try:
        with open(cache_from_source(str(source)), "rb") as file:  # noqa: PTH123 - a text path
            head = file.read(_HEAD)
    except OSError:
        return False
    if len(head) == _HEAD and head[4] & 1:
        return True
    noted = (int(found.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") + (found.st_size & 0xFFFFFFFF).to_bytes(
        4, "little"
    )
    return head[8:] == noted


def _can_be_kept(source: Path) -> bool:
    """Whether Python may write the compiled file."""
    folder = Path(cache_from_source(str(source))).parent
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(existing, os.W_OK | os.X_OK)


def _words(package: Path) -> list[str]:
    return [own_interpreter(), "-m", "compileall", "-q", str(package)]


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
