# SPDX-License-Identifier: BSD-3-Clause
"""A host without /proc, or with one that shows nothing, is named as such."""

from __future__ import annotations

from kedge.container.missing_proc import explain_missing_proc


def test_proc_that_is_not_there_or_restricted_is_said_to_be(tmp_path) -> None:
    assert explain_missing_proc() is None
    problem = explain_missing_proc(str(tmp_path / "self/fd"))
    assert problem.message.endswith("kedge cannot read /proc/self/fd (No such file or directory)")
    assert (problem.context, problem.hint) == ({"/proc": "not mounted"}, "mount it first: mount -t proc proc /proc")
    problem = explain_missing_proc(str(tmp_path / "fd"))
    assert problem.context == {"/proc": "mounted, but restricted"}
    assert "unrestricted /proc" in str(problem.hint)
