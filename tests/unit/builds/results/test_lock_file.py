# SPDX-License-Identifier: BSD-3-Clause
"""The lock file of a build."""

from __future__ import annotations

import pytest

from kedge.builds.build import read_lock, write_lock
from kedge.errors import InvalidRecipe
from tests.builders.rows import each_row

BASES = {"docker://b:1": "sha256:" + "b" * 64, "docker://a:1": "sha256:" + "a" * 64}


def test_lock_is_written_sorted_read_again_and_not_touched_unchanged(tmp_path) -> None:
    path = tmp_path / "lock"
    assert read_lock(path) == {}
    write_lock(path, BASES)
    assert read_lock(path) == BASES
    assert path.read_text().index("docker://a") < path.read_text().index("docker://b")
    path = tmp_path / "lock"
    write_lock(path, BASES)
    before = path.stat().st_ino
    write_lock(path, BASES)
    assert path.stat().st_ino == before


@each_row("text", ["", "{", "[]", "{}", '{"version": 2, "bases": {}}', '{"version": 1, "bases": []}', "\0"])
def test_other_files_are_refused(tmp_path, text: str) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    with pytest.raises(InvalidRecipe, match="not a lock file"):
        read_lock(path)
