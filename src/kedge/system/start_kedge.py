# SPDX-License-Identifier: BSD-3-Clause
"""Starts kedge in another process: the one way to do so, which `tests/architecture/test_imports.py` holds everybody to.

Python looks for modules in the current directory with `-m`, and for an empty or relative entry of PYTHONPATH (`:/x`).
-P and -E forbid both. `kedge/__main__.py`, started by its path, takes the directories that PYTHONPATH names back in.
The environment stays as it is, because programs in containers and jobs get it from there.

A kedge that came out of a bundle starts the bundle: its head unpacks it again where that got lost, and other nodes have
the file, but not what is unpacked here. The head says where it is with `-X kedge=PATH`.
"""

from __future__ import annotations

import os
import sys

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - a start may need it


def own_command(*words: str) -> list[str]:
    """The command line of `kedge WORDS`, with this interpreter and this package."""
    bundle = find_bundle()
    if bundle:
        return [bundle, *words]
    return [sys.executable, "-E", "-P", *_repeat_flags(), f"{_PACKAGE}/__main__.py", *words]


def own_start_command(*words: str) -> list[str]:
    """Return the command for ranks, steps and other starts of containers, which do without `site`: 2 ms of each.

    What they may need is where kedge is, unless it was not installed with what it requires, as in a checkout.
    """
    command = own_command(*words)
    has_all = os.path.isdir(f"{os.path.dirname(_PACKAGE)}/urllib3")  # noqa: PTH112, PTH120 - as above
    if has_all and not find_bundle():
        command.insert(1, "-S")
    return command


def find_bundle() -> str:
    """The path of the bundle that this came out of; empty where kedge is installed."""
    return str(sys._xoptions.get("kedge") or "")


def find_bundle_copy() -> str:
    """The directory that the bundle is unpacked to; empty where kedge is installed."""
    return sys.prefix if find_bundle() else ""


def own_python(*words: str) -> list[str]:
    """The command line of `python3 WORDS` with a Python that has kedge, for files that outlive this process."""
    bundle = find_bundle()
    return [bundle, "python", *words] if bundle else [sys.executable, *words]


def own_package() -> str:
    """The directory of the package that runs."""
    return _PACKAGE


def own_interpreter() -> str:
    """The Python that runs this, for files that name it and for reports."""
    return sys.executable


def own_program() -> str:
    """The path of the command `kedge` of this installation; empty where it has none."""
    bundle = find_bundle()
    beside = f"{sys.prefix}/bin/kedge"
    return bundle or (beside if os.path.exists(beside) else "")  # noqa: PTH110 - as above


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
