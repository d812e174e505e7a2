# SPDX-License-Identifier: BSD-3-Clause
"""An image or a log wants to stall `kedge mpi` and `kedge diagnose`, to fill memory, or to write on the terminal."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from tests.builders.containers import Runner, give_to, make_sandbox, warm_runner
from tests.builders.rows import each_row

runner = warm_runner
MOST = 60.0  # seconds, on a machine that does other things, too
HIDE = "\x1b[8m\x1b]0;planted\x07\x9b31m"


def header(**changes: int) -> bytes:
    """The head of a 64-bit ELF library, with counts and places as the attacker likes."""
    fields = {"phoff": 64, "shoff": 64, "phnum": 1, "shnum": 1, "shstrndx": 0, **changes}
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH",
        *(3, 183 if os.uname().machine == "aarch64" else 62, 1, 0, fields["phoff"], fields["shoff"], 0, 64, 56),
        *(fields["phnum"], 64, fields["shnum"], fields["shstrndx"]),
    )  # fmt: skip


def dynamic(offset: int, size: int) -> bytes:
    """A program header that says where the dynamic section is."""
    return struct.pack("<IIQQQQQQ", 2, 4, offset, offset, offset, size, size, 8)


def write_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.write(header(phnum=65535, shnum=65535, shoff=1 << 40) + dynamic(1 << 30, 1 << 42))
        file.truncate(1 << 43)


LIBRARIES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(header()[:40]),
    "beyond": lambda path: path.write_bytes(header(phoff=1 << 62, shoff=1 << 63)),
    "itself": lambda path: path.write_bytes(header(phnum=65535, phoff=0) * 100),
    "many": lambda path: path.write_bytes(header(phnum=65535) + dynamic(64, 1 << 60) * 65535),
    "needs": lambda path: path.write_bytes(header() + dynamic(120, 1 << 24) + struct.pack("<QQ", 1, 7) * (1 << 18)),
    "sparse": write_sparse,
    "pipe": os.mkfifo,
    "loop": lambda path: path.symlink_to(path.name),
    "outside": lambda path: path.symlink_to("/proc/self/mem"),
    "folder": lambda path: path.mkdir(),
    "zero": lambda path: path.symlink_to("/dev/zero"),
}


@each_row("name", LIBRARIES)
def test_mpi_libraries_that_are_none(runner: Runner, name: str) -> None:
    root = make_sandbox(runner.folder / f"image-{name}")
    folder = root / "usr/lib"
    folder.mkdir(parents=True)
    LIBRARIES[name](folder / "libmpi.so.40")
    give_to(runner, root)
    began = time.monotonic()
    done = runner.run("mpi", "check", str(root))
    assert "Traceback" not in done.stderr, done.stderr
    assert "bug" not in done.stderr, done.stderr
    assert done.returncode >= 0, "killed"
    assert time.monotonic() - began < MOST


def test_names_of_an_image_cannot_steer_the_terminal(runner: Runner) -> None:
    root = make_sandbox(runner.folder / "image-names", environment=f"export OMPI_VERSION='{HIDE}4.1.4'")
    folder = root / f"usr/lib/{HIDE}"
    folder.mkdir(parents=True)
    (folder / "libmpi.so.40").write_bytes(header())
    (root / "usr/lib/libmpi.so.40").symlink_to(f"{HIDE}/libmpi.so.40")
    give_to(runner, root)
    for verb in ("show", "check"):
        done = runner.run("mpi", verb, str(root))
        assert not any(letter in done.stdout + done.stderr for letter in "\x1b\x07\x9b"), done.stdout


LOGS = {
    "one line": b"x" * (4 << 20),
    "nothing but NUL": bytes(4 << 20),
    "ends of lines": b"\n" * (2 << 20),
    "half of an escape": b"\x1b]0;" * (1 << 20),
    "many labels": b"".join(b"%d: %d: srun: error: n1: task %d: Killed\n" % (n, n, n) for n in range(8_000)),
    "many brackets": b"[" * (4 << 20) + b"rank 0]: RuntimeError\n",
    "no text": bytes(range(256)) * (1 << 14),
    "many tracebacks": b'Traceback (most recent call last):\n  File "x", line 1\n' * 30_000,
}


@each_row("name", LOGS)
def test_logs_that_want_to_stall(runner: Runner, name: str) -> None:
    path = runner.home / "job.log"
    path.write_bytes(LOGS[name])
    began = time.monotonic()
    done = runner.run("diagnose", str(path))
    took = time.monotonic() - began
    assert took < MOST / 4, f"{took:.0f} s"
    assert done.returncode in (0, 85), done.stderr[-2000:]
    assert 'Traceback (most recent call last):\n  File "/' not in done.stderr
    assert len(done.stdout) < 100_000


def test_lines_of_a_log_cannot_steer_the_terminal(runner: Runner) -> None:
    path = runner.home / "job.log"
    path.write_bytes(f"1: FileNotFoundError: [Errno 2] No such file or directory: '/a{HIDE}\u202e\0b'\n".encode())
    for words in (("diagnose",), ("diagnose", "--all"), ("--json", "diagnose")):
        done = runner.run(*words, str(path))
        assert done.returncode == 85, done.stderr
        assert not any(letter in done.stdout for letter in "\x1b\x07\x9b\u202e\0"), done.stdout
