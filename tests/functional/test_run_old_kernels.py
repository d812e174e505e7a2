# SPDX-License-Identifier: BSD-3-Clause
"""Containers on kernels that can less: no overlay for users (RHEL 8), no mount_setattr, no openat2, no pivot_root.

The kernel is played: `tests/builders/old_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders.containers import Runner, each_role, give_to, make_sandbox, run_after
from tests.builders.old_kernels import play_refusals
from tests.requirements import require_program, require_root

SCRIPT = "ls /made/inside/hostname; ls -d /bin /opt/new; touch /x /made/x /made/inside/x 2>&1; cd ..; pwd"
EXPECTED = [
    *("/made/inside/hostname", "/bin", "/opt/new"),
    *(f"touch: {path}: Read-only file system" for path in ("/x", "/made/x", "/made/inside/x")),
    "/",
]


NOTHING = ("overlay", "fuse.fuse-overlayfs", "mount_setattr", "openat2", "pivot_root")


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    yield from each_role(getattr(request, "param", "user"))


@pytest.fixture
def image(runner: Runner) -> str:
    return str(give_to(runner, make_sandbox(runner.folder / "image")))


@pytest.mark.parametrize(
    ("runner", "calls", "way"),
    [
        ("user", ("overlay",), "fuse-overlayfs"),
        ("user", ("overlay", "fuse.fuse-overlayfs"), "using binds for the mount points"),
        ("user", ("mount_setattr",), "kernel overlay"),
        ("user", ("openat2",), "kernel overlay"),
        ("user", ("pivot_root",), "kernel overlay"),
        ("user", NOTHING, "using binds for the mount points"),
        ("root", NOTHING, "using binds for the mount points"),
        ("root", ("mount_setattr",), "kernel overlay"),
    ],
    indirect=["runner"],
)
def test_exec_is_the_same_where_the_kernel_can_less(runner, image, calls, way):
    if way == "fuse-overlayfs":
        require_program("fuse-overlayfs")
    words = ("-B", "/etc:/made/inside:ro", "-B", "/usr:/opt/new", "--pwd", "/", image, "sh", "-c", SCRIPT)
    done = runner.run("exec", "--verbose", *words, env=play_refusals(runner.folder, *calls))
    assert done.stdout.splitlines() == EXPECTED, done.stderr
    assert way in done.stderr


def test_bind_readonly_is_so_below_too_without_mount_setattr(runner: Runner, image: str) -> None:
    require_root()
    outer = runner.home / "outer"
    (outer / "with space").mkdir(parents=True)
    setup = f"mount -t tmpfs -o mode=777 tmpfs '{outer}/with space'"
    words = ("exec", "-B", f"{outer}:/data:ro", image, "touch", "/data/with space/x")
    done = run_after(setup, runner, *words, env=play_refusals(runner.folder, "mount_setattr"))
    assert "Read-only file system" in done.stderr
    assert done.returncode == 1


def test_exec_and_unpack_where_there_are_no_locks(runner: Runner) -> None:
    path = str(runner.home / "image.sif")
    runner.read("pull", path, "host:sh,ls")
    env = play_refusals(runner.folder, "flock")
    for _ in range(2):
        assert runner.read("exec", "--root-from", "unpack", path, "ls", "-d", "/usr", env=env) == "/usr\n"
    runner.read("cache", "clean", "--node", "--force")
    started = [runner.start("unpack", path, env=env) for _ in range(4)]
    assert [process.wait(timeout=60) for process in started] == [0] * 4
    names = [found.name for found in (runner.folder / "node/images").iterdir() if found.suffix != ".lock"]
    assert len(names) == 1, names
