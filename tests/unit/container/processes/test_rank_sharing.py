# SPDX-License-Identifier: BSD-3-Clause
"""A rank that hides before it joins, and builds a container of its own where it cannot join."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from kedge.base.rank_variables import OWN_LAUNCH
from kedge.cluster.ranks import Rank, own_variables
from kedge.container.options import RunOptions
from kedge.container.processes import rank_sharing
from kedge.container.processes.rank_sharing import Sharing, find_launch, has_companions, make_key
from kedge.errors import InstanceProblem
from kedge.system import libc
from kedge.system.libc import PR_SET_DUMPABLE
from kedge.system.spawn import fork_process, start_of

USER = 1507


def read_dumpable() -> bool:
    """Whether others may look: the kernel gives the files of a process that hides to root."""
    return Path("/proc/self/environ").stat().st_uid == USER


@pytest.fixture
def own_directory():
    """A directory that the user can reach: pytest's are root's alone."""
    if os.getuid() != 0:
        pytest.skip("root alone can change its user, and so see whose files a process that hides has")
    with tempfile.TemporaryDirectory(prefix="kedge-sharing-") as name:
        os.chown(name, USER, USER)
        yield Path(name)


def test_rank_hides_before_it_joins_and_shows_itself_where_it_cannot(own_directory, monkeypatch) -> None:
    seen: list[bool] = []

    def refuse(pid: int, **_: object) -> bool:
        seen.append(read_dumpable())
        raise InstanceProblem(f"process {pid} has ended")

    monkeypatch.setattr(rank_sharing, "join_namespaces", refuse)
    monkeypatch.setattr(rank_sharing, "find_private_directory", lambda: str(own_directory))
    child = fork_process()
    if child == 0:
        status = 1
        try:
            os.setgid(USER)
            os.setuid(USER)
            libc.control_process(PR_SET_DUMPABLE, 1)
            parent = os.getppid()
            member = [str(parent), str(start_of(parent)), "0", ""]
            monkeypatch.setattr(rank_sharing, "_read_members", lambda _: [member])
            monkeypatch.setattr(rank_sharing, "_await_program", lambda *_: None)
            is_inside = Sharing(is_hidden=True).enter_or_build("key")
            status = int((is_inside, seen, read_dumpable()) != (False, [False], True))
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_ranks_of_one_launch_share_by_its_name() -> None:
    ranks = [own_variables(Rank(number, 4, number % 2, 2, number // 2, 2)) | {OWN_LAUNCH: "one"} for number in range(2)]
    keys = {make_key(RunOptions(), "image", environ, "/work") for environ in ranks}
    assert len(keys) == 1, "their own numbers do not shape the container"
    other = make_key(RunOptions(), "image", ranks[0] | {OWN_LAUNCH: "two"}, "/work")
    assert other not in keys
    assert all(map(has_companions, ranks))
    assert not has_companions(own_variables(Rank(0, 2, 0, 1, 0, 2)))
    environ = {"MPI_LOCALRANKID": "0", "PMI_RANK": "0", OWN_LAUNCH: "one"}
    assert find_launch(environ) == f"{OWN_LAUNCH}=one"
