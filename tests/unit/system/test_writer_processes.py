# SPDX-License-Identifier: BSD-3-Clause
"""Files written by other processes: every byte where it belongs, errors arrive, no process stays behind."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.errors import ProgramFailed
from kedge.system.writer_processes import LARGEST_FILE, WriterProcesses
from tests.unit.system.test_forked_workers import list_children


def find_name(token: int) -> bytes:
    return b"%d" % token


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


def start(folder: int, count: int = 2) -> WriterProcesses:
    crew = WriterProcesses.start(folder, find_name, count)
    assert crew is not None
    return crew


def write_many(crew: WriterProcesses) -> None:
    for token in range(1000):
        crew.write(token, bytes(100_000))


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("count", [1, 3])
def test_files_are_whole_and_no_process_is_left(tmp_path: Path, folder: int, count: int) -> None:
    before = list_children()
    crew = start(folder, count)
    buffer = bytearray(LARGEST_FILE)
    wanted = {}
    for token in range(300):
        size = token * token * 7 % LARGEST_FILE if token else 0
        buffer[:size] = bytes([token % 251]) * size  # the same memory each time: it may be reused after the call
        crew.write(token, memoryview(buffer)[:size])
        wanted[token] = bytes([token % 251]) * size
    crew.finish()
    assert {int(path.name): path.read_bytes() for path in tmp_path.iterdir()} == wanted
    assert list_children() == before


def test_pieces_of_a_large_file_and_its_holes(tmp_path: Path, folder: int) -> None:
    crew = start(folder)
    piece = os.urandom(3 * LARGEST_FILE + 5)
    for number in range(6):
        crew.write_piece(0, number * 2 * len(piece), piece)
        crew.write(number + 1, b"between")
    crew.end_file(0, 12 * len(piece))
    crew.end_file(99, 1 << 30)
    crew.finish()
    assert (tmp_path / "0").read_bytes() == (piece + bytes(len(piece))) * 6
    hole = (tmp_path / "99").stat()
    assert (hole.st_size, hole.st_blocks) == (1 << 30, 0)


def test_an_error_of_a_process_is_raised_here(folder: int) -> None:
    before = list_children()
    crew = start(folder)
    crew.write(1, b"once")
    crew.write(1, b"twice")
    with pytest.raises(FileExistsError):
        crew.finish()
    assert list_children() == before


def test_a_file_that_does_not_fit_is_an_error_before_the_end(folder: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        crew = start(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the number is compared
        write_many(crew)
    crew.kill()
    assert caught.value.errno == errno.EFBIG


def test_processes_that_are_killed_are_an_error(folder: int) -> None:
    before = list_children()
    crew = start(folder)
    for worker in list_children() - before:
        os.kill(int(worker), signal.SIGKILL)
    with pytest.raises(ProgramFailed, match="was killed"):
        write_many(crew)
    crew.kill()
    assert list_children() == before


def test_one_of_two_that_is_killed_is_an_error(folder: int) -> None:
    before = list_children()
    crew = start(folder)
    os.kill(int(min(list_children() - before)), signal.SIGKILL)
    crew.write(0, b"x")
    with pytest.raises(ProgramFailed, match="was killed"):
        crew.finish()
    assert list_children() == before


def test_none_outside_of_the_main_thread_or_when_none_are_wanted(folder: int) -> None:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(WriterProcesses.start(folder, find_name, 2)))
    thread.start()
    thread.join()
    assert found == [None]
    assert WriterProcesses.start(folder, find_name, 0) is None


def test_kill_leaves_nothing(folder: int) -> None:
    before, descriptors = list_children(), count_descriptors()
    crew = start(folder, 4)
    crew.write(1, b"x")
    crew.kill()
    crew.kill()
    assert list_children() == before
    assert count_descriptors() == descriptors
