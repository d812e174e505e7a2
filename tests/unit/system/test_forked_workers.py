# SPDX-License-Identifier: BSD-3-Clause
"""Work shared by forked processes: all of it is done once, errors arrive whole, nothing stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from kedge.errors import CorruptImage, ProgramFailed
from kedge.system.forked_workers import share_work
from tests.builders.rows import each_row


def list_children() -> set[str]:
    """The processes that this one started and has not waited for: other tests keep services."""
    children = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            text = path.read_text()
            if text.rpartition(")")[2].split()[1] == str(os.getpid()):
                children.add(text.partition(" ")[0])
    return children


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("items", [0, 1, 7, 3000])
def test_work_is_done_once_and_counted(tmp_path: Path, items: int, count: int) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    total: list[int] = []

    def work(item: int) -> int:
        os.write(log, b"%d\n" % item)
        return 3

    share_work(items, count, work, total.append)
    os.close(log)
    done = sorted(int(line) for line in (tmp_path / "log").read_text().split())
    assert done == list(range(items))
    assert sum(total) == 3 * items


@each_row("count", [1, 3])
def test_work_errors_are_raised_here(count: int) -> None:
    def damaged(item: int) -> int:
        if item == 5:
            raise CorruptImage("block 5 is damaged", context={"offset": "12"}, hint="fetch it again")
        return 0

    before = list_children()
    with pytest.raises(CorruptImage, match="block 5") as caught:
        share_work(50, count, damaged, lambda _: None)
    assert (caught.value.context, caught.value.hint) == ({"offset": "12"}, "fetch it again")

    def full(item: int) -> int:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        share_work(50, count, full, lambda _: None)
    assert list_children() <= before


def test_work_errors_that_are_huge_still_arrive() -> None:
    def work(item: int) -> int:
        raise CorruptImage("ü" * 10_000, context={"x": "y" * 10_000})

    with pytest.raises(CorruptImage):
        share_work(10, 2, work, lambda _: None)


def test_work_of_a_killed_process_is_missed() -> None:
    parent = os.getpid()

    def work(item: int) -> int:
        if item == 3:
            assert os.getpid() != parent
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(ProgramFailed, match="killed"):
        share_work(100, 2, work, lambda _: None)


def test_work_that_is_interrupted_leaves_no_process() -> None:
    def interrupt(amount: int) -> None:
        raise KeyboardInterrupt

    before = list_children()
    with pytest.raises(KeyboardInterrupt):
        share_work(100, 3, lambda _: 1, interrupt)
    assert list_children() <= before


def test_work_without_processes_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    done: list[int] = []
    share_work(9, 4, lambda item: done.append(item) or 1, lambda _: None)  # type: ignore[func-returns-value]
    assert done == list(range(9))
