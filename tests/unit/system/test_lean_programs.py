# SPDX-License-Identifier: BSD-3-Clause
"""A program without subprocess ends, speaks and is refused as it is with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.errors import ProgramFailed, ProgramMissing
from kedge.system.lean_programs import Finished, run_into_files_here
from kedge.system.process import run_into_files

ENVIRONMENT = {"PATH": os.environ["PATH"], "COLOUR": "red"}


def run_both(folder: Path, *argv: str) -> list[Finished]:
    here = str(Path.cwd())
    out, err = folder / "out", folder / "err"
    return [
        run_into_files_here(argv, out, err, ENVIRONMENT),
        run_into_files(argv, out, err, environment=ENVIRONMENT, directory=here),
    ]


@pytest.mark.parametrize(
    "command",
    [
        "echo $COLOUR; pwd; echo no >&2; exit 3",
        "kill -9 $$",
        "cat; ls /proc/self/fd | wc -l; readlink /proc/self/fd/0",
        "grep SigBlk /proc/self/status",
        # 32 and 33 are the C library's own, which its posix_spawn leaves ignored
        "echo $((0x$(sed -n 's/SigIgn:[[:space:]]*//p' /proc/self/status) & 0x7fffffff))",
        "test $(ps -o sid= -p $$) = $$ && echo own session",
    ],
)
def test_both_ways_are_the_same(tmp_path: Path, command: str) -> None:
    lean, usual = run_both(tmp_path, "sh", "-c", command)
    assert lean == usual
    assert lean.output or lean.status > 128


def test_files_of_the_caller_are_not_the_programs(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        command = f"test ! -e /proc/self/fd/{write_end}"
        done = run_into_files_here(("sh", "-c", command), tmp_path / "out", tmp_path / "err", ENVIRONMENT)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert done.status == 0


def test_missing_and_broken_programs_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ProgramFailed, match="'broken' could not be started: Exec format error"):
        run_into_files_here(("broken",), tmp_path / "out", tmp_path / "err", ENVIRONMENT)
    with pytest.raises(ProgramMissing, match="'absent' is not installed"):
        run_into_files_here(("absent",), tmp_path / "out", tmp_path / "err", ENVIRONMENT)


# In a process of its own: a test runner has threads, and the kernel may give one of those what the main thread blocks.
INTERRUPTED = """
import os, sys
from pathlib import Path
from kedge.system.lean_programs import run_into_files_here
folder = Path(sys.argv[1])
command = f"kill -INT {os.getpid()}; sleep 0.3; touch {folder}/mark"
try:
    run_into_files_here(("sh", "-c", command), folder / "out", folder / "err", dict(os.environ))
except KeyboardInterrupt:
    sys.exit(40 + (folder / "mark").exists())
"""


def test_an_interrupt_waits_for_the_program(tmp_path: Path) -> None:
    words = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    assert subprocess.run(words, check=False, timeout=60).returncode == 41
