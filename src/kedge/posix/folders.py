# SPDX-License-Identifier: BSD-3-Clause
"""Folders for what is believed later: settings, keys, profiles, logins. Others must not be able to write there."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path, mode: int = 0o700) -> None:
    """Make a folder, and those above it that are missing, with `mode`; those that exist stay as they are.

    `Path.mkdir(parents=True)` gives the ones above whatever the umask allows: with 002 or 000 others could put a folder
    of theirs in its place. The XDG specification asks for 0700, too.
    """
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    for each in reversed(missing):
        each.mkdir(mode=mode, exist_ok=True)
