# SPDX-License-Identifier: BSD-3-Clause
"""The program in memory through which an image's program is started: its bytes, that it runs, and what it leaves."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kedge.system.memory_program import StartAttempt, can_hand_over, make_program
from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program

MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21}
TABLE = 0x10000  # where the table begins in the file


def entries(program: bytes, count: int) -> list[tuple[int, ...]]:
    return [struct.unpack_from("<4Qq", program, TABLE + 40 * number) for number in range(count)]


def text_at(program: bytes, address: int) -> bytes:
    start = address - 0x10000000
    return program[start : program.index(b"\0", start)]


@each_row("machine", MACHINES)
def test_the_file_is_an_elf_program_of_two_pieces(machine: str) -> None:
    program = make_program([StartAttempt("/bin/x", ["x"], {})], 3, 4, 5, machine=machine)
    assert program[:7] == b"\x7fELF\2\1\1"
    kind, number = struct.unpack_from("<2H", program, 16)
    assert (kind, number) == (2, MACHINES[machine])
    rights = [struct.unpack_from("<I", program, 64 + 56 * each + 4)[0] for each in range(2)]
    assert rights == [5, 6], "what is executed cannot be written, and the other way round"


@each_row("machine", MACHINES)
def test_readelf_agrees(machine: str, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(make_program([StartAttempt("/bin/x", ["x"], {})], 3, 4, 5, machine=machine))
    said = subprocess.run([require_program("readelf"), "-hlW", path], capture_output=True, text=True, check=True)
    assert said.stderr == ""
    assert "EXEC (Executable file)" in said.stdout
    assert said.stdout.count("LOAD") == 2


def test_the_calls_stand_in_their_order() -> None:
    attempts = [StartAttempt("/bin/a", ["a", "one"], {"K": "v"}), StartAttempt("/bin/sh", ["sh", "/bin/a"], {})]
    program = make_program(attempts, 3, 4, 5, machine="x86_64")
    calls = entries(program, 9)
    assert [each[0] for each in calls] == [91, 72, 72, 72, 59, 59, 1, 0, 231]
    assert calls[0][1:3] == (3, 0), "it takes its own permissions away first"
    assert [each[1:4] for each in calls[1:4]] == [(number, 2, 1) for number in (3, 4, 5)]
    assert [text_at(program, each[1]) for each in calls[4:6]] == [b"/bin/a", b"/bin/sh"]
    first = struct.unpack_from("<3Q", program, calls[4][2] - 0x10000000)
    assert [text_at(program, each) for each in first[:2]] == [b"a", b"one"]
    assert first[2] == 0
    assert calls[6][1:4] == (4, 0x10010000 + 4 * 40 + 32, 8), "what the first attempt returned is reported"
    assert calls[8][1] == 255


def test_what_no_program_can_get_is_refused() -> None:
    for words in (("a\0b", ["a"], {}), ("/a", ["a\0"], {}), ("/a", ["a"], {"K": "\0"})):
        with pytest.raises(ValueError, match="null byte"):
            StartAttempt(*words)  # type: ignore[arg-type]


@each_row("machine", [each for each in MACHINES if each != os.uname().machine])
def test_other_machines_run_it(machine: str, tmp_path: Path) -> None:
    """An emulator of the machine is the judge; the program that is started is this machine's."""
    emulator = require_program(f"qemu-{machine}")
    path = tmp_path / "program"
    path.write_bytes(make_program([StartAttempt("/bin/echo", ["echo", "hello"], {})], 97, 98, 99, machine=machine))
    path.chmod(0o755)
    done = subprocess.run([emulator, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "hello\n")


def hand_over(script: str, *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a Python script that ends by handing over."""
    head = "import os, sys\nfrom kedge.system.memory_program import StartAttempt, hand_over\n"
    return subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(script)],
        env={"PYTHONPATH": str(REPOSITORY / "src"), "PATH": os.environ["PATH"], "SECRET": "of the caller"},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not can_hand_over(), reason="this machine's instructions are not known")
class TestHandingOver:
    def test_the_process_becomes_the_program(self) -> None:
        shell = shutil.which("sh")
        script = f"""
            sys.stdout.write(f"{{os.getpid()}}\\n"); sys.stdout.flush()
            words = ["sh", "-c", "echo $$; echo $A; env | grep -c SECRET; exit 7"]
            hand_over([StartAttempt({shell!r}, words, {{"A": "1"}})])
        """
        done = hand_over(script)
        before, after, variable, secrets = done.stdout.split()
        assert before == after, "one process from the first to the last"
        assert (variable, secrets, done.returncode) == ("1", "0", 7)

    def test_a_program_that_is_not_there_is_reported_in_another_process(self) -> None:
        script = """
            problem = hand_over([StartAttempt("/no/such/program", ["x"], {})])
            print(problem.errno)
        """
        done = hand_over(script)
        assert done.stdout.strip() == str(errno.ENOENT)
        assert done.returncode == 255, "the first process ends when the report is out"

    def test_a_complaint_needs_no_other_process(self) -> None:
        done = hand_over(
            'hand_over([StartAttempt("/no/such/program", ["x"], {})], "it cannot be started\\n"); print("here")'
        )
        assert (done.returncode, done.stdout, done.stderr) == (255, "", "it cannot be started\n")

    def test_the_second_attempt_is_made_when_the_first_fails(self) -> None:
        done = hand_over(
            'hand_over([StartAttempt("/no/such", ["x"], {}), StartAttempt("/bin/echo", ["echo", "second"], {})])'
        )
        assert (done.returncode, done.stdout) == (0, "second\n")

    def test_no_file_of_its_own_is_left_open(self) -> None:
        done = hand_over('hand_over([StartAttempt("/bin/ls", ["ls", "/proc/self/fd"], {})])')
        assert done.stdout.split() == ["0", "1", "2", "3"], "the last is that of the listing"

    def test_no_child_is_left_for_the_program(self) -> None:
        waiting = "import os\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('none')"
        done = hand_over(f"hand_over([StartAttempt(sys.executable, ['python', '-c', {waiting!r}], {{}})])")
        assert done.stdout == "none\n"
