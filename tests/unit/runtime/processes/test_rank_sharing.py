# SPDX-License-Identifier: BSD-3-Clause
"""A rank that hides before it joins, and builds a container of its own where it cannot join."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kedge.errors import InstanceProblem
from kedge.posix import libc
from kedge.posix.constants import PR_SET_DUMPABLE
from kedge.posix.spawn import fork_process, start_of
from kedge.runtime.processes import rank_sharing
from kedge.runtime.processes.rank_sharing import Sharing

USER = 1507


def read_dumpable() -> bool:
    """Whether others may look: the kernel gives the files of a process that hides to root."""
    return Path("/proc/self/environ").stat().st_uid == USER


def test_rank_hides_before_it_joins_and_shows_itself_where_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("root alone can change its user, and so see whose files a process that hides has")
    seen: list[bool] = []

    def refuse(pid: int, **_: object) -> bool:
        seen.append(read_dumpable())
        raise InstanceProblem(f"process {pid} has ended")

    monkeypatch.setattr(rank_sharing, "join_namespaces", refuse)
    monkeypatch.setattr(rank_sharing, "find_private_directory", lambda: str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    os.chown(tmp_path / "own", USER, USER)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    child = fork_process()
    if child == 0:
        os.setgid(USER)
        os.setuid(USER)
        libc.control_process(PR_SET_DUMPABLE, 1)
        sharing = Sharing(is_hidden=True)
        pid = os.getppid()
        monkeypatch.setattr(rank_sharing, "_read_members", lambda _: [[str(pid), str(start_of(pid)), "0", ""]])
        monkeypatch.setattr(rank_sharing, "_await_program", lambda *_: None)
        is_inside = sharing.enter_or_build("key")
        os._exit(0 if (is_inside, seen, read_dumpable()) == (False, [False], True) else 1)
    assert os.waitpid(child, 0)[1] == 0
