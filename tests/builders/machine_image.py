# SPDX-License-Identifier: BSD-3-Clause
"""A realistic image, made of this machine's own files: thousands of them, text and programs, in two layers."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.builders import layers as build
from tests.builders.images import make_config, noise, rich_layers
from tests.fakes.registry import FakeRegistry

FOLDERS = (Path("/usr/lib/python3"), Path("/usr/share"), Path("/usr/lib/python3.11"), Path("/usr/lib/gcc"))
_LARGEST = 20_000_000


def add_machine_image(
    registry: FakeRegistry, size: int = 160_000_000, repository: str = "team/machine"
) -> tuple[int, int]:
    """Put an image of about `size` bytes into the registry as tag 1; returns its bytes and files."""
    tars = [rich_layers()[0], *_pack_files(size)]
    registry.add_image(repository, "1", [build.compress(tar) for tar in tars], make_config(tars))
    count = 0
    for tar in tars:
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            count += sum(member.isfile() for member in archive)
    return sum(map(len, tars)), count


def _pack_files(size: int) -> Iterator[bytes]:
    """Two tars of half the size each; what the machine lacks is filled up with bytes that do not compress."""
    files = _list_files()
    for number in range(2):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in files:
                archive.add(path, f"layer{number}{path}", recursive=False, filter=_plain)
                if out.tell() >= size // 2:
                    break
            missing = max(0, size // 2 - out.tell())
            member = tarfile.TarInfo(f"layer{number}/rest")
            member.size = missing
            archive.addfile(member, io.BytesIO(noise(missing, f"rest {number}")))
        yield out.getvalue()


def _list_files() -> Iterator[Path]:
    for top in FOLDERS:
        for folder, folders, names in os.walk(top):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                if path.is_symlink() or (path.is_file() and path.stat().st_size < _LARGEST):
                    yield path


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Independent of when this machine was installed, and of links to files that are left out."""
    member.mtime, member.uid, member.gid, member.uname, member.gname = 1_600_000_000, 0, 0, "", ""
    return member
