# SPDX-License-Identifier: BSD-3-Clause
"""File systems with little room, in memory and on a disk; kedge tells them apart. For root only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.requirements import require_program, require_root


@contextlib.contextmanager
def small_memory(folder: Path, size: int, owner: int = 0) -> Iterator[Path]:
    """A tmpfs of this many bytes at `folder`, for this user."""
    require_root()
    folder.mkdir(exist_ok=True)
    options = f"size={size},mode=755,uid={owner},gid={owner}"
    subprocess.run([require_program("mount"), "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run([require_program("umount"), folder], check=True)


@contextlib.contextmanager
def small_disk(folder: Path, size: int, owner: int = 0) -> Iterator[Path]:
    """An ext4 of this many bytes at `folder`, for this user; skips where the kernel gives no loop device."""
    require_root()
    folder.mkdir(exist_ok=True)
    image = folder.with_name(f"{folder.name}.img")
    make = [require_program("mke2fs"), "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"]
    subprocess.run([*make, image, f"{size >> 10}k"], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, folder], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no loop device can be mounted here: {mounted.stderr.strip()}")
    try:
        os.chown(folder, owner, owner)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        image.unlink()
