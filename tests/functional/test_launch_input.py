# SPDX-License-Identifier: BSD-3-Clause
"""Standard input of `kedge launch` without an MPI launcher: for rank 0, as under mpirun."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.builders.containers import Runner, warm_runner

runner = warm_runner
WORDS = ("launch", "--ranks", "--tasks", "3")


@pytest.fixture(scope="module")
def image(runner: Runner) -> str:
    path = runner.home / "tools.sif"
    runner.read("pull", str(path), "host:sh,cat,cksum,head,sleep,true")
    return str(path)


def start(runner: Runner, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        runner.argv(*WORDS, *words), env=runner.variables(), cwd=runner.home, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip


@pytest.mark.parametrize("size", [0, 3_000_001])
def test_rank_0_reads_all_of_it_and_the_others_nothing(runner: Runner, image: str, size: int) -> None:
    text = ("0123456789abcdef" * (size // 16 + 1))[:size]
    done = runner.run(*WORDS, image, "sh", "-c", 'set -- $(cksum); echo "$RANK read $2"', stdin=text)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"0 read {size}", "1 read 0", "2 read 0"]


def test_bytes_arrive_as_they_are(runner: Runner, image: str) -> None:
    content = bytes(range(256)) * 1000 + b"no newline at the end"
    with start(runner, image, "sh", "-c", "[ $RANK != 0 ] || cat > copy") as process:
        process.communicate(content, timeout=60)
    assert (runner.home / "copy").read_bytes() == content


def test_lines_arrive_while_the_input_goes_on(runner: Runner, image: str) -> None:
    loop = '[ $RANK = 0 ] || exit 0; while read -r word; do echo "got $word"; done; echo end'
    with start(runner, image, "sh", "-c", loop) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for word in ("one", "two"):
            process.stdin.write(f"{word}\n".encode())
            assert process.stdout.readline() == f"got {word}\n".encode()
        process.stdin.close()
        assert process.stdout.read() == b"end\n"
        assert process.wait(60) == 0


def test_a_launch_ends_though_its_input_does_not(runner: Runner, image: str) -> None:
    """Whether rank 0 reads none of it, or a part."""
    for command in ("true", "head -c 10"):
        with start(runner, image, *command.split()) as process:
            assert process.stdin is not None
            process.stdin.write(b"x" * 60_000)  # as much as a pipe holds, and no end
            assert process.wait(60) == 0


def test_ranks_end_with_a_killed_launch_though_input_waits(runner: Runner, image: str) -> None:
    """The pipe to the node is full of what rank 0 does not read; its end is noticed all the same."""
    with start(runner, image, "sh", "-c", "echo started; exec sleep 543.75") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"started\n"] * 3
        process.stdin.write(b"x" * 60_000)
        time.sleep(0.5)
        process.kill()
    end = time.monotonic() + 30
    while any(is_sleeper(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
        assert time.monotonic() < end, "ranks go on without their launch"
        time.sleep(0.1)


def is_sleeper(path: Path) -> bool:
    try:
        return path.read_bytes() == b"sleep\0" + b"543.75\0"
    except OSError:
        return False
