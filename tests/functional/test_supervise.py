# SPDX-License-Identifier: BSD-3-Clause
"""The processes between the caller and a program in a process-id namespace: real namespaces, signals and terminals."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from kedge.system.spawn import start_of
from tests.builders.waiting import wait_until
from tests.programs import read_program
from tests.requirements import REPOSITORY, require_user_namespaces

# A container in small: namespaces, then the program under the two processes that `supervise` makes.
LAUNCH = read_program("supervise_a_program")
COUNTER = read_program("count_signals")
SHELL = "/bin/bash"  # dash does not know every signal's name


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    require_user_namespaces()


def command_of(script: str, kind: str = "init") -> list[str]:
    return [sys.executable, "-c", LAUNCH, kind, SHELL, "-c", script]


def start_script(script: str, kind: str = "init") -> subprocess.Popen[bytes]:
    """A script in a namespace, waited for until it has said `ready`."""
    process = subprocess.Popen(command_of(script, kind), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    line = process.stdout.readline()
    assert line == b"ready\n", line + process.stdout.read()
    return process


def read_rest(process: subprocess.Popen[bytes]) -> bytes:
    output, _ = process.communicate(timeout=30)
    return output


@pytest.mark.parametrize("kind", ["init", "bare"])
@pytest.mark.parametrize("status", [0, 77, 255])
def test_supervise_status_is_the_programs(kind: str, status: int) -> None:
    assert subprocess.run(command_of(f"exit {status}", kind), check=False).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGRTMIN])
def test_supervise_death_by_signal_is_repeated(number: int, tmp_path: Path) -> None:
    done = subprocess.run(command_of(f"kill -{int(number)} $$"), cwd=tmp_path, check=False)
    assert done.returncode == -number
    assert not list(tmp_path.iterdir()), "a core of the outer process"


def test_supervise_fault_of_a_bare_program_is_repeated() -> None:
    code = "import ctypes; ctypes.string_at(0)"
    done = subprocess.run([sys.executable, "-c", LAUNCH, "bare", sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGSEGV


@pytest.mark.parametrize("name", ["INT", "TERM", "USR1", "WINCH", "CONT", "34"])
def test_supervise_signals_reach_the_program_once(name: str) -> None:
    script = f"trap 'echo got' {name}; echo ready; for i in 1 2 3; do sleep 0.1; done; exit 9"
    process = start_script(script)
    number = int(name) if name.isdigit() else getattr(signal, f"SIG{name}")
    process.send_signal(number)
    assert read_rest(process) == b"got\n"
    assert process.returncode == 9


def test_supervise_signal_without_handler_ends_the_program_as_outside() -> None:
    process = start_script("echo ready; exec sleep 100")
    process.terminate()
    read_rest(process)
    assert process.returncode == -signal.SIGTERM


def test_supervise_orphans_are_waited_for_and_end_with_the_program() -> None:
    script = "(sleep 0.1 &) ; (sleep 300 & echo $!) ; sleep 0.5; ps -e -o stat= 2>/dev/null; exit 5"
    code = f"import os; os.write(1, b'ready\\n'); os.execv('{SHELL}', ['{SHELL}', '-c', {script!r}])"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "init", sys.executable, "-c", code], stdout=subprocess.PIPE
    )
    # The pipe is held by the orphan: its end of file is the orphan's end.
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 5
    assert output.startswith(b"ready\n")


def test_supervise_zombies_do_not_stay() -> None:
    script = "for i in 1 2 3 4 5; do (true & ) ; done; sleep 0.5; echo ready; read line"
    process = subprocess.Popen(command_of(script), stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    first = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    assert len(children) == 1, "only the program itself is left"
    assert Path(f"/proc/{first}/comm").read_text() == "kedge-init\n"
    process.communicate(b"\n", timeout=30)


@pytest.mark.parametrize("kind", ["init", "bare"])
def test_supervise_killed_outer_process_takes_all_with_it(kind: str) -> None:
    process = start_script("sleep 300 & echo ready; sleep 300", kind)
    descendants = find_descendants(process.pid)
    assert len(descendants) >= 2
    process.kill()
    read_rest(process)
    wait_until("all of them are gone", lambda: all(start_of(pid) in (0, -1) for pid in descendants))


def test_supervise_caller_that_ignores_children_gets_the_status() -> None:
    code = f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n{LAUNCH}"
    done = subprocess.run([sys.executable, "-c", code, "init", SHELL, "-c", "exit 3"], check=False)
    assert done.returncode == 3


def test_supervise_program_has_the_callers_mask() -> None:
    script = "grep -E 'SigBlk' /proc/self/status"
    inside = subprocess.run(command_of(script), capture_output=True, check=True).stdout
    outside = subprocess.run([SHELL, "-c", script], capture_output=True, check=True).stdout
    assert inside == outside


def test_supervise_error_before_the_program_is_the_callers_to_report() -> None:
    code = LAUNCH.replace(
        "replace_process(sys.argv[2], sys.argv[2:], os.environ)", "raise SystemExit('no such program')"
    )
    done = subprocess.run([sys.executable, "-c", code, "init", "x"], capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr == b"no such program\n"


class Terminal:
    """A terminal with a job in its foreground, as a shell with job control has it."""

    def __init__(self) -> None:
        self.reader = ""
        self.shell, self.leader = pty.fork()
        if self.shell == 0:
            os.execv(SHELL, [SHELL, "--norc", "-i"])
        attributes = termios.tcgetattr(self.leader)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.leader, termios.TCSANOW, attributes)

    def type(self, text: str) -> None:
        os.write(self.leader, text.encode())

    def expect(self, text: str, seconds: float = 20) -> str:
        """Read until `text` comes; returns what came up to it."""
        end = time.monotonic() + seconds
        while text not in self.reader:
            has_come, _, _ = select.select([self.leader], [], [], max(0, end - time.monotonic()))
            assert has_come, f"no {text!r} in {self.reader!r}"
            self.reader += os.read(self.leader, 4096).decode(errors="replace")
        before, _, self.reader = self.reader.partition(text)
        return before

    def close(self) -> None:
        os.close(self.leader)
        os.waitpid(self.shell, 0)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """A command line for a terminal: a program in a namespace that counts its signals."""
    launch = tmp_path / "launch.py"
    launch.write_text(LAUNCH)
    return f"{sys.executable} {launch} init {SHELL} -c "


def test_supervise_terminal_interrupt_arrives_once(program: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter.py"  # a shell would run its trap once for two signals
    counter.write_text(COUNTER)
    terminal = Terminal()
    try:
        terminal.type(f"{program} 'exec {sys.executable} {counter}'\n")
        terminal.expect("ready")
        terminal.type("\x03")
        output = terminal.expect("done")
        assert output.count("got") == 1, output
    finally:
        terminal.close()


def test_supervise_terminal_stop_and_continue(program: str) -> None:
    terminal = Terminal()
    try:
        terminal.type(f"{program} 'echo rea''dy; sleep 1; read line; echo line=$line; exit 6'\n")
        terminal.expect("ready")
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.type("fg\n")
        terminal.type("hello\n")
        terminal.expect("line=hello")
        terminal.type("echo status=$?\n")
        terminal.expect("status=6")
    finally:
        terminal.close()


@pytest.mark.parametrize("module", ["supervise", "join_namespaces", "rank_sharing"])
def test_supervise_modules_on_the_way_of_a_start_are_lean(module: str) -> None:
    code = f"import sys; sys.path[:0] = sys.argv[1:]; import kedge.container.processes.{module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-SI", "-c", code, str(REPOSITORY / "src")], check=True, capture_output=True, text=True
    )
    heavy = {"typing", "re", "enum", "signal", "dataclasses", "json", "pathlib", "collections", "kedge.errors"}
    assert not heavy & set(done.stdout.split())


def find_descendants(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        found += [int(child) for child in Path(f"/proc/{each}/task/{each}/children").read_text().split()]
    return found[1:]
