# SPDX-License-Identifier: BSD-3-Clause
"""What hangs, crashes or breaks in one check is a finding of that check, and nobody waits for it."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kedge.answers.doctor import doctor
from kedge.answers.doctor import run_checks as table
from kedge.answers.doctor.doctor import diagnose
from kedge.answers.doctor.run_checks import list_checks, run_checks
from kedge.answers.doctor.surroundings import FAIL, OK, SKIPPED, WARNING, Check, Finding, Surroundings
from kedge.system import bounded_children
from kedge.system.process import run_program
from kedge.system.settings import Settings
from kedge.system.spawn import start_of
from tests.wording import assert_reads, assert_says

HOUR = 3600
LATE = re.compile(r"did not answer in [\d.]+ s")


def make_surroundings(root: str = "/", patience: float = 20.0) -> Surroundings:
    """With patience for what is to answer: other tests may keep this machine busy."""
    return Surroundings({"HOME": "/nowhere"}, Settings.load({}, {"HOME": "/nowhere"}), root=root, patience=patience)


def make_check(name: str, run: Callable[[Surroundings], list[Finding]], seconds: float = 60.0) -> Check:
    return Check(name, name, "Environment", run, seconds)


def hang(_: Surroundings) -> list[Finding]:
    time.sleep(HOUR)
    return []


def find_one(check: Check) -> Finding:
    """What comes of one check, whose seconds count as they are."""
    (finding,) = run_checks(make_surroundings(patience=1.0), checks=[check], seconds=HOUR).findings
    return finding


def is_over(pid: int) -> bool:
    """Whether a process is gone, or dead and not yet waited for."""
    for _ in range(1000):
        if start_of(pid) <= 0:
            return True
        time.sleep(0.01)
    return False


def test_run_checks_returns_findings_in_the_order_of_the_checks() -> None:
    checks = [make_check(name, lambda _, name=name: [Finding(name, OK, name * 3)]) for name in ("b", "a")]  # type: ignore[misc]
    diagnosis = run_checks(make_surroundings(), checks=checks)
    assert [each.what for each in diagnosis.findings] == ["bbb", "aaa"]
    assert set(diagnosis.seconds) == {"a", "b"}
    assert diagnosis.machine["kernel"].startswith(os.uname().release)


def test_run_checks_hung_check_is_a_finding_that_says_for_how_long() -> None:
    finding = find_one(make_check("nfs", hang, 0.2))
    assert finding.level == WARNING
    assert LATE.fullmatch(finding.what)
    assert finding.why
    assert "kedge doctor --patience 5 --only nfs" in finding.fix
    assert finding.docs


def test_run_checks_hung_check_is_killed_with_what_it_started(tmp_path: Path) -> None:
    marks = tmp_path / "pids"

    def start_and_hang(_: Surroundings) -> list[Finding]:
        marks.write_text(f"{os.getpid()}\n")
        run_program(["sh", "-c", f"echo $$ >>{marks}; exec sleep {HOUR}"])
        return []

    find_one(make_check("program", start_and_hang, 3.0))
    pids = [int(line) for line in marks.read_text().split()]
    assert len(pids) == 2
    assert all(is_over(pid) for pid in pids)


def test_run_checks_program_that_outlives_its_check_is_killed(tmp_path: Path) -> None:
    """As a scheduler's program that hangs, where the check answers that it does."""
    mark = tmp_path / "pid"

    def start_and_leave(_: Surroundings) -> list[Finding]:
        argv = ["sh", "-c", f"echo $$ >{mark}; exec sleep {HOUR}"]
        threading.Thread(target=run_program, args=[argv], daemon=True).start()
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.01)
        return [Finding("program", OK, "left")]

    assert find_one(make_check("program", start_and_leave)).what == "left"
    assert is_over(int(mark.read_text()))


def test_run_checks_killed_children_are_buried_the_next_time(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def note_and_hang(surroundings: Surroundings) -> list[Finding]:
        mark.write_text(str(os.getpid()))
        return hang(surroundings)

    find_one(make_check("late", note_and_hang, 2.0))
    assert is_over(int(mark.read_text()))
    find_one(make_check("quick", lambda _: [Finding("quick", OK, "x")]))
    with pytest.raises(ChildProcessError):
        os.waitpid(int(mark.read_text()), os.WNOHANG)


def test_run_checks_signals_of_the_caller_are_let_through_again() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    told = find_one(make_check("mask", lambda _: [Finding("mask", OK, repr(signal.pthread_sigmask(0, [])))])).what
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert told == repr(before)


def test_run_checks_signals_that_are_ignored_do_not_keep_a_check_alive(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    def ignore_and_hang(surroundings: Surroundings) -> list[Finding]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        mark.write_text(str(os.getpid()))
        return hang(surroundings)

    find_one(make_check("stubborn", ignore_and_hang, 2.0))
    assert is_over(int(mark.read_text()))


def test_run_checks_the_whole_is_bounded_however_many_hang() -> None:
    checks = [make_check(f"hang{number}", hang, 2.0) for number in range(40)]
    diagnosis = run_checks(make_surroundings(patience=1.0), checks=checks, seconds=1.5)
    assert len(diagnosis.findings) == 40
    begun = [each for each in diagnosis.findings if LATE.fullmatch(each.what)]
    left = [each for each in diagnosis.findings if each.what == "not checked in time: other checks took too long"]
    assert 1 <= len(begun) <= 16
    assert len(begun) + len(left) == 40
    assert {each.level for each in left} == {SKIPPED}
    assert not diagnosis.has_failed


def test_run_checks_what_a_check_does_is_its_own_finding() -> None:
    def break_down(_: Surroundings) -> list[Finding]:
        raise ValueError("the file\nhas no lines")

    finding = find_one(make_check("broken", break_down))
    assert finding.level == SKIPPED
    assert_reads(finding.what, "doctor/could-not-checked-valueerror-file")

    def crash(_: Surroundings) -> list[Finding]:
        os.kill(os.getpid(), signal.SIGSEGV)
        return []

    finding = find_one(make_check("library", crash))
    assert finding.level == WARNING
    assert_reads(finding.what, "doctor/process-killed-sigsegv")
    check = make_check("gone", table._late("no_such_module", "check"))
    assert "No module named 'kedge.answers.doctor.no_such_module'" in find_one(check).what
    endless = [Finding("endless", OK, "x" * (2 << 20))]
    assert_reads(find_one(make_check("endless", lambda _: endless)).what, "submit/process-killed-sigkill")
    findings = [Finding("long", OK, "x" * 1000) for _ in range(300)]
    assert run_checks(make_surroundings(), checks=[make_check("long", lambda _: findings)]).findings == tuple(findings)


def test_run_checks_children_hold_nothing_that_a_caller_waits_for() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)

    def look(_: Surroundings) -> list[Finding]:
        open_files = {}
        for path in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):  # that of the listing itself
                open_files[int(path.name)] = str(path.readlink())
        kept = sorted(str(file) for file, target in open_files.items() if target.startswith("pipe:"))
        return [Finding("files", OK, f"{open_files[1]} {open_files[2]} {writing in open_files} {len(kept)}")]

    try:
        assert find_one(make_check("files", look)).what == "/dev/null /dev/null False 1"  # the pipe of its answer
    finally:
        os.close(reading)
        os.close(writing)


def test_run_checks_limit_on_processes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    finding = find_one(make_check("any", hang))
    assert finding.level == FAIL
    assert "cannot start another process" in finding.what
    assert "ulimit -u" in finding.fix


def test_run_checks_limit_on_open_files_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", refuse)
    finding = find_one(make_check("any", hang))
    assert finding.level == FAIL
    assert "open another file" in finding.what
    assert "ulimit -n" in finding.fix


def test_run_checks_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "pid"

    def note_and_hang(surroundings: Surroundings) -> list[Finding]:
        mark.write_text(str(os.getpid()))
        return hang(surroundings)

    def interrupt(*_: object) -> None:
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(bounded_children._Race, "_listen", interrupt)
    checks = [make_check("hang", note_and_hang), make_check("quick", lambda _: [])]
    with pytest.raises(KeyboardInterrupt):
        run_checks(make_surroundings(), checks=checks)
    assert is_over(int(mark.read_text()))


def test_list_checks_names_are_unique_and_only_those_run() -> None:
    from kedge.answers.doctor.diagnosis import GROUPS

    checks = list_checks()
    assert len({each.name for each in checks}) == len(checks)
    assert {each.group for each in checks} <= set(GROUPS)
    assert all(each.seconds <= 1.8 for each in checks)
    diagnosis = run_checks(make_surroundings(), ["kernel", "clock"])
    assert {each.check for each in diagnosis.findings} == {"kernel", "clock"}
    assert diagnosis.summary.startswith("2 checks, 0 problems, 0 warnings")


def test_modules_of_checks_are_imported_before_there_are_children(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (("clock", "clock", "Environment", "environment.clock", "check_clock"), ("x", "x", "x", "nowhere", "none"))
    monkeypatch.setattr(table, "_ROWS", rows)
    monkeypatch.delitem(sys.modules, "kedge.answers.doctor.environment", raising=False)
    table.import_checks({"x"})  # one that is not there is its own check's finding
    assert "kedge.answers.doctor.environment" not in sys.modules
    table.import_checks({"clock", "x"})
    assert "kedge.answers.doctor.environment" in sys.modules


NAMES = ("kernel", "locale", "registries")  # the last brings the imports that take long


def make_hasty(patience: float = 1.0) -> Surroundings:
    environ = {"HOME": "/nowhere", "LANG": "C.UTF-8"}
    return Surroundings(environ, Settings.load({}, environ), is_offline=True, patience=patience)


@pytest.mark.parametrize("patience", [1.0, 5.0])
def test_a_host_that_loads_slowly_gets_its_checks_done_and_is_told(
    monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    load = importlib.import_module

    def load_slowly(name: str) -> ModuleType:
        time.sleep(2.5 if name == "kedge.answers.doctor.network" else 0)
        return load(name)

    monkeypatch.setattr(importlib, "import_module", load_slowly)
    diagnosis = diagnose(make_hasty(patience), NAMES)
    levels = {finding.check: finding.level for finding in diagnosis.findings}
    assert levels["kernel"] == OK
    assert levels["locale"] != SKIPPED
    assert_says(diagnosis.summary, "doctor/host-slow-time-limits-multiplied")
    assert 5.0 <= diagnosis.slowness <= 20.0
    assert diagnosis.as_dict()["summary"] == diagnosis.summary


def test_slowness_is_measured_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_USUAL", 60.0)  # whatever else this machine does at the moment
    diagnosis = diagnose(make_hasty(20.0), ("kernel",))
    assert diagnosis.slowness == 1.0
    assert "slow" not in diagnosis.summary
    assert doctor._measure_slowness(10_000.0) == doctor._SLOWEST
