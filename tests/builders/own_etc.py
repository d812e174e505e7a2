# SPDX-License-Identifier: BSD-3-Clause
"""An /etc of a test's own, with users that only the test knows: `mount --bind` it over /etc in a mount namespace.

Never a file of it over one of the machine's: whoever adds an account puts a new /etc/passwd in the place of the old
one, and the kernel takes away what is mounted on that, in every namespace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Account(NamedTuple):
    """A user, and the group of the same name and number."""

    name: str
    uid: int
    home: Path
    shell: str = "/bin/sh"


def make_etc(place: Path, accounts: Iterable[Account], **files: str) -> Path:
    """The machine's /etc as it is now, with these users besides, and files with these texts."""
    place.mkdir(parents=True)
    # a package that is being installed takes away files that were just there
    subprocess.run(["cp", "-aT", "/etc", place], stderr=subprocess.DEVNULL, check=False)
    for each in accounts:
        append(place / "passwd", f"{each.name}:x:{each.uid}:{each.uid}::{each.home}:{each.shell}\n")
        append(place / "group", f"{each.name}:x:{each.uid}:\n")
    for name, text in files.items():
        (place / name).unlink(missing_ok=True)
        (place / name).write_text(text)
    return place


def append(path: Path, line: str) -> None:
    """Write a line to the end of a file."""
    with path.open("a") as file:
        file.write(line)
