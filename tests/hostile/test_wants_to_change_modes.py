# SPDX-License-Identifier: BSD-3-Clause
"""Another user leaves a tree in a shared folder, named as a killed kedge would have, and swaps folders for links.

It wants kedge, which cleans up there, to change the mode of files that it cannot reach itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.system import confined_paths
from kedge.system.confined_paths import remove_tree
from kedge.system.files import remove_abandoned, temporary_beside
from tests.requirements import require_root


def test_a_link_that_took_the_place_of_a_folder_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, closed = tmp_path / "victim", tmp_path / "tree/closed"
    victim.mkdir(mode=0o755)
    closed.mkdir(parents=True)
    open_folder = confined_paths.open_folder

    def race(name: bytes | str | Path, *, at: int | None = None) -> int:
        if name == b"closed" and not closed.is_symlink():
            closed.rmdir()
            closed.symlink_to(victim)
            raise PermissionError
        return open_folder(name, at=at)

    monkeypatch.setattr(confined_paths, "open_folder", race)
    with pytest.raises(OSError, match="closed"):
        remove_tree(tmp_path / "tree")
    assert victim.stat().st_mode & 0o777 == 0o755


def test_a_closed_folder_of_our_own_is_removed(tmp_path: Path) -> None:
    closed = tmp_path / "tree/closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("")
    closed.chmod(0)
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_what_others_left_is_left(tmp_path: Path) -> None:
    require_root()
    target = tmp_path / "image.sif"
    ours, theirs = (temporary_beside(target).with_name(f"{temporary_beside(target).name[:-4]}{end}") for end in "ab")
    gone = [path.with_name(path.name.replace(f".{os.getpid()}.", ".4194303.")) for path in (ours, theirs)]
    for path in gone:
        path.mkdir()
    os.chown(gone[1], 65534, 65534)
    assert remove_abandoned(target) == [gone[0]]
    assert gone[1].exists()
