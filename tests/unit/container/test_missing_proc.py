# SPDX-License-Identifier: BSD-3-Clause
"""A host without /proc, or with one that shows nothing, is named as such."""

from __future__ import annotations

from pathlib import Path

from kedge.container.missing_proc import explain_missing_proc


def test_a_host_that_shows_open_files_needs_no_explanation() -> None:
    assert explain_missing_proc() is None


def test_proc_that_is_not_mounted_is_to_be_mounted(tmp_path: Path) -> None:
    problem = explain_missing_proc(str(tmp_path / "self/fd"))
    assert problem is not None
    assert problem.message.endswith("kedge cannot read /proc/self/fd (No such file or directory)")
    assert problem.context == {"/proc": "not mounted"}
    assert problem.hint == "mount it first: mount -t proc proc /proc"


def test_proc_that_is_restricted_is_said_to_be(tmp_path: Path) -> None:
    problem = explain_missing_proc(str(tmp_path / "fd"))
    assert problem is not None
    assert problem.context == {"/proc": "mounted, but restricted"}
    assert "unrestricted /proc" in str(problem.hint)
