# SPDX-License-Identifier: BSD-3-Clause
"""Containers on nodes where little can be written: no /tmp, no home, no /dev/shm; places that are mounted noexec.

The nodes are played in a mount namespace, which root makes around an ordinary user's kedge.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.builders.containers import Runner, each_role, run_after
from tests.requirements import require_root
from tests.wording import assert_says

READ_ONLY = (
    "for folder in /tmp /var/tmp /dev/shm; do mount --bind $folder $folder; mount -o remount,bind,ro $folder; done"
)


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    require_root()
    yield from each_role("user")


def test_exec_where_nothing_can_be_written(runner: Runner, image: str) -> None:
    refused = run_after(READ_ONLY, runner, "exec", image, "touch", str(runner.home / "x"))
    assert "Read-only file system" in refused.stderr  # the container came about, and the home is what it is outside
    assert refused.returncode == 1
    done = run_after(READ_ONLY, runner, "exec", "-B", "/etc:/made/inside", image, "ls", "/made/inside/hostname")
    assert (done.returncode, done.stdout) == (0, "/made/inside/hostname\n"), done.stderr


def test_exec_programs_from_a_place_that_is_mounted_noexec(runner: Runner) -> None:
    runner.read("pull", "tools.sif", "host:sh,ls")
    place = runner.folder / "node"
    setup = f"mount -t tmpfs -o noexec,uid={runner.uid},mode=700 tmpfs {place}"
    image = str(runner.home / "tools.sif")
    done = run_after(setup, runner, "exec", "--root-from", "unpack", image, "ls", "-d", "/usr")
    assert (done.returncode, done.stdout) == (0, "/usr\n"), done.stderr


def test_exec_without_proc_says_so(runner: Runner, image: str) -> None:
    done = run_after("umount -l /proc", runner, "exec", image, "true")
    assert done.returncode == 255
    assert "/proc is not mounted" in done.stderr


def test_exec_by_root_without_proc_does_not_blame_the_image(image: str) -> None:
    """Root needs no user namespace, so that its first mount is what fails."""
    for root in each_role("root"):
        for words in (("exec",), ("exec", "--writable-tmpfs")):
            done = run_after("umount -l /proc", root, *words, image, "true")
            assert done.returncode == 255
            assert "kedge cannot read /proc/self/fd" in done.stderr
            assert_says(done.stderr, "run/mount-first-mount-t-proc")


def test_exec_on_a_full_disk_makes_room_or_says_what_helps(runner: Runner) -> None:
    place = runner.folder / "full"
    place.mkdir(exist_ok=True)
    first, second = str(runner.home / "first.sif"), str(runner.home / "second.sif")
    runner.read("pull", first, "host:sh,ls,cat,env")
    runner.read("pull", second, "host:sh,ls")
    fill = f"dd if=/dev/zero of={place}/filler bs=4k 2>/dev/null || true"
    setup = f"mount -t tmpfs -o size=16m,uid={runner.uid},mode=700 tmpfs {place}"
    env = {"KEDGE_NODEDIR": str(place)}
    unpack = shlex.join(runner.argv("unpack", first))
    words = ("exec", "--root-from", "unpack", second, "ls", "-d", "/usr")
    done = run_after(f"{setup}; {unpack}; {fill}", runner, *words, env=env)
    assert (done.returncode, done.stdout) == (0, "/usr\n"), done.stderr
    assert "removed" in done.stderr
    refused = run_after(f"{setup}; {fill}", runner, *words, env=env)
    assert refused.returncode == 255
    assert str(place) in refused.stderr
    assert "--root-from squashfuse" in refused.stderr


def test_exec_where_the_image_does_not_fit_says_what_helps(runner: Runner) -> None:
    place = runner.folder / "node"
    setup = f"mount -t tmpfs -o size=100k,uid={runner.uid},mode=700 tmpfs {place}"
    image = str(runner.home / "small.sif")
    runner.read("pull", image, "host:sh,ls")
    done = run_after(setup, runner, "exec", "--root-from", "unpack", image, "ls")
    assert done.returncode == 255
    assert "needs about" in done.stderr
    assert "--root-from squashfuse" in done.stderr
