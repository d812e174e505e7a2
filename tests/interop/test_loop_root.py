# SPDX-License-Identifier: BSD-3-Clause
"""Root file systems that the kernel mounts, for real root: SquashFS in a SIF, and loop devices that do not stay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kedge.container.mounting import check_kernel_mount
from tests.builders.containers import Runner, each_role, make_sandbox
from tests.requirements import require_program, require_root

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    require_root()
    if check_kernel_mount():
        pytest.skip(check_kernel_mount())
    yield from each_role("root")


@pytest.fixture(scope="module")
def sif(runner: Runner) -> Path:
    runner.read("convert", str(make_sandbox(runner.home / "sandbox")), str(runner.home / "small.sif"))
    return runner.home / "small.sif"


def attached(path: Path) -> list[str]:
    """The loop devices of a file."""
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [file.parent.parent.name for file in files if file.read_text().strip() == str(path)]


def test_kernel_mounts_the_root_and_the_device_goes_with_it(runner: Runner, sif: Path) -> None:
    words = ("exec", "--root-from", "kernel", str(sif), "cat", "/etc/group")
    assert runner.read(*words).startswith("root:x:0:")
    assert attached(sif) == []


def test_many_at_once_all_get_a_device(runner: Runner, sif: Path) -> None:
    argv = runner.argv("exec", "--root-from", "kernel", str(sif), "true")
    started = [subprocess.Popen(argv, env=runner.variables(), cwd=runner.home) for _ in range(12)]
    assert [process.wait(timeout=60) for process in started] == [0] * 12
    assert attached(sif) == []


def test_damaged_image_leaves_no_device(runner: Runner, sif: Path) -> None:
    data = bytearray(sif.read_bytes())
    data[-20_000:] = b"\x55" * 20_000
    bad = runner.home / "bad.sif"
    bad.write_bytes(data)
    done = runner.run("exec", "--root-from", "kernel", str(bad), "true")
    assert done.returncode == 255
    assert "Traceback" not in done.stderr
    assert attached(bad) == []


def test_mount_loop_refuses_an_odd_offset(tmp_path: Path) -> None:
    from kedge.container.mounts.loop_device import mount_loop

    with pytest.raises(OSError, match="multiple of 512"):
        mount_loop("/dev/null", 31, 4096, str(tmp_path), "squashfs")


@pytest.mark.parametrize("is_old", [False, True])
def test_mount_loop_can_write_and_works_on_old_kernels(tmp_path: Path, is_old: bool) -> None:
    """In a mount namespace of its own; before Linux 5.8 a device took two calls."""
    require_root()
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run([require_program("mkfs.ext4"), "-q", "-F", "-E", "offset=4096", image, "4096k"], check=True)
    target = tmp_path / "mnt"
    target.mkdir()
    code = (
        "import sys; from kedge.system import libc\n"
        f"libc.LOOP_CONFIGURE = {0x4CFF if is_old else 0x4C0A}\n"
        "from kedge.container.mounts.loop_device import mount_loop\n"
        "libc.unshare(libc.CLONE_NEWNS); libc.mount('none', '/', '', libc.MS_REC | libc.MS_PRIVATE)\n"
        "file, target = sys.argv[1:]\n"
        "mount_loop(file, 4096, 4 << 20, target, 'ext4', writable=True)\n"
        "open(target + '/written', 'w').write('here')\n"
        "libc.unmount(target, 0)\n"
        "mount_loop(file, 4096, 4 << 20, target, 'ext4')\n"
        "print(open(target + '/written').read())\n"
        "try: open(target + '/more', 'w')\n"
        "except OSError as problem: print(problem.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, image, target], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["here", "30"], done.stderr
    assert attached(image) == []
    assert os.listdir(target) == []  # noqa: PTH208
