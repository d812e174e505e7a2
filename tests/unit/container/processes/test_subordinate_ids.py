# SPDX-License-Identifier: BSD-3-Clause
"""Maps of user ids: those that real root writes for a build, in which every user is known as himself."""

from __future__ import annotations

from kedge.container.processes.subordinate_ids import plan_own_maps
from kedge.system.views import TableView
from tests.builders.rows import with_rows


def plan(table: str) -> list[tuple[str, bytes]]:
    view = TableView({"/proc/self/uid_map": table.encode(), "/proc/self/gid_map": table.encode()})
    return plan_own_maps(view, 7)


@with_rows(
    ("         0          0 4294967295\n", b"0 0 1\n1 1 4294967294\n"),
    ("0 100000 65536\n", b"0 0 1\n1 1 65535\n"),
    ("0 1000 1\n1 100000 65536\n", b"0 0 1\n1 1 65536\n"),
)
def test_ids_of_root_are_mapped_to_themselves(table: str, expected: bytes) -> None:
    assert plan(table) == [("/proc/7/uid_map", expected), ("/proc/7/gid_map", expected)]


def test_ids_that_are_not_mapped() -> None:
    assert plan("0 0 4294967295\n")[0][1].split() != [b"0", b"0", b"4294967295"]
    assert plan("0 1000 1\n") == []
    assert plan_own_maps(TableView({}), 7) == []
