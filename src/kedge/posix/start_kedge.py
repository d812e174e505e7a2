# SPDX-License-Identifier: BSD-3-Clause
"""Starts kedge in another process: the one way to do so, which `tests/architecture/test_imports.py` holds everybody to.

Python looks for modules in the current directory with `-m`, and for an empty or relative entry of PYTHONPATH (`:/x`).
-P and -E forbid both. `kedge/__main__.py`, started by its path, takes the directories that PYTHONPATH names back in.
The environment stays as it is, because programs in containers and jobs get it from there.
"""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - a start may need it


def own_command(*words: str) -> list[str]:
    """The command line of `kedge WORDS`, with this interpreter and this package."""
    return [sys.executable, "-E", "-P", *_repeat_flags(), f"{_PACKAGE}/__main__.py", *words]


def own_package() -> str:
    """The directory of the package that runs."""
    return _PACKAGE


def own_interpreter() -> str:
    """The Python that runs this, for files that name it and for reports."""
    return sys.executable


def _repeat_flags() -> list[str]:
    """What variables, which -E ignores, or options told this interpreter."""
    flags = ["-B"] if sys.dont_write_bytecode else []
    if sys.flags.no_user_site and not sys.flags.no_site:  # a shim does without both, to be quick
        flags.append("-s")
    if sys.flags.utf8_mode:
        flags += ["-X", "utf8"]
    if sys.pycache_prefix and sys.pycache_prefix.startswith("/"):
        flags += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return flags
