# SPDX-License-Identifier: BSD-3-Clause
"""Many starts at once on one node, as a job's ranks are: each image is unpacked once, and nothing is left of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.containers import Runner
from tests.requirements import require_program

# The mount namespace, the open files and the memory that the program has; then it waits for the others.
REPORT = "readlink /proc/self/ns/mnt; echo /proc/$$/fd/*; grep VmRSS /proc/$$/status; read line; exit 0"


@pytest.fixture(scope="module")
def image(runner: Runner) -> Path:
    path = runner.home / "tools.sif"
    assert runner.run("pull", str(path), f"host:{require_program('busybox')}").returncode == 0
    return path


def start_ranks(runner: Runner, image: Path, count: int, *words: str) -> list[subprocess.Popen[str]]:
    job = {"OMPI_COMM_WORLD_LOCAL_SIZE": str(count), "OMPI_MCA_ess_base_jobid": str(time.monotonic_ns())}
    words = ("exec", *words, str(image), require_program("busybox"), "sh", "-c", REPORT)
    environments = [{**job, "OMPI_COMM_WORLD_LOCAL_RANK": str(rank)} for rank in range(count)]
    return [runner.start(*words, env=each, pipes="stdin stdout stderr") for each in environments]


def list_processes(runner: Runner) -> list[int]:
    """Those whose command line names something of the runner's."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if bytes(runner.folder) in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("way", "is_shared", "count"),
    [
        ("unpack", True, 12),
        ("unpack", False, 4),
        ("squashfuse", True, 4),
        ("squashfuse", False, 4),
        *(pytest.param(*row, 24, marks=pytest.mark.long) for row in (("unpack", True), ("unpack", False))),
        pytest.param("squashfuse", True, 24, marks=pytest.mark.long),
    ],
)
def test_many_ranks_start_at_once_and_leave_nothing(runner, image, way, is_shared, count):
    if way == "squashfuse":
        require_program("squashfuse")
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            pytest.skip("/dev/fuse cannot be used here")
    shutil.rmtree(runner.folder / "node/images", ignore_errors=True)
    flags = [] if is_shared else ["--sharens=false"]
    ranks = start_ranks(runner, image, count, "--root-from", way, *flags)
    reports = [[rank.stdout.readline().strip() for _ in range(3)] for rank in ranks]
    servers = len([pid for pid in list_processes(runner) if "squashfuse" in _name(pid)])
    said = "".join(rank.communicate(timeout=60)[1] for rank in ranks)
    assert [rank.returncode for rank in ranks] == [0] * count, said
    assert len({report[0] for report in reports}) == (1 if is_shared else count)
    assert max(len(report[1].split()) for report in reports) <= 5, "streams, the image's lock, the listing"
    assert max(int(report[2].split()[1]) for report in reports) < 4096, "KiB: of kedge itself nothing is left"
    assert servers == (0 if way == "unpack" else 1 if is_shared else count)
    assert len(re.findall("^unpacking ", said, re.MULTILINE)) <= 1, "by one, however many ask"
    end = time.monotonic() + 10
    while list_processes(runner) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list_processes(runner)
    assert not list((runner.folder / "node").glob("turns/*"))


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("words", [["--pid"], ["--root-from", "squashfuse"], ["--root-from", "unpack"]], ids=" ".join)
def test_many_ranks_above_the_limit_of_processes_are_told(runner: Runner, image: Path, words: list[str]) -> None:
    if "squashfuse" in words:
        require_program("squashfuse")
    shutil.rmtree(runner.folder / "node/images", ignore_errors=True)
    argv = runner.argv("exec", *words, str(image), require_program("busybox"), "true")
    limit = [require_program("prlimit"), "--nproc=1", "--"]
    place = argv.index("--clear-groups") + 1 if "--clear-groups" in argv else 0
    done = runner.call([*argv[:place], *limit, *argv[place:]])
    assert done.returncode == 255
    assert "cannot start another process" in done.stderr
    assert "ulimit -u" in done.stderr
