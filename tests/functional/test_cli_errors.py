# SPDX-License-Identifier: BSD-3-Clause
"""How commands end: exact texts, exit codes, JSON, signals, logs of bugs. Needs nothing from the machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders.rows import each_row
from tests.builders.warm_kedge import run_kedge as run_warm
from tests.requirements import REPOSITORY
from tests.wording import assert_ends, assert_reads, assert_says

COMMAND = [sys.executable, "-m", "tests.fakes.failing_verb"]  # as a start
PROGRAM = REPOSITORY / "tests/fakes/failing_verb.py"


def environment(home: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    return {**os.environ, "PYTHONPATH": paths, "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}


def run_kedge(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_warm([*words], environment=environment(home), folder=home, timeout=60, program=PROGRAM)


def begin(home: Path, *words: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start it, and wait for its first line."""
    process = subprocess.Popen(
        [*before, *COMMAND, *words], cwd=home, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_errors_are_rendered_exactly(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "known")
    assert done.returncode == 14
    assert done.stdout == ""
    assert done.stderr == (
        "kedge: cannot reach https://me:***@reg.example/v2/\n  stderr: one\n    two\nhint: check the name\n"
    )


@each_row("words", [("-v", "fail", "known"), ("fail", "known", "--verbose")])
def test_errors_with_verbose_have_all_details(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert "  url: https://me:***@reg.example/v2/?token=***\n" in run_kedge(tmp_path, *words).stderr


def test_errors_cannot_steer_the_terminal(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "sif", "list", "gone\x1b]0;title\x07\x9b2J\r.sif")
    assert done.returncode == 30
    assert "gone\\x1b]0;title\\x07\\x9b2J\\x0d.sif: No such file" in done.stderr
    assert not set("\x1b\x07\x9b\r") & set(done.stderr)


@each_row("words", [("--json", "fail", "known"), ("fail", "known", "--json")])
def test_errors_with_json_are_one_document(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run_kedge(tmp_path, *words)
    assert done.returncode == 14
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        "error": "network-failed",
        "exit_code": 14,
        "message": "cannot reach https://me:***@reg.example/v2/",
        "context": {"url": "https://me:***@reg.example/v2/?token=***", "stderr": "one\ntwo"},
        "hint": "check the name",
    }


def test_errors_with_json_behind_a_mistake_are_json(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "known", "--no-such-option", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "usage"


def test_errors_with_debug_show_where(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "-d", "fail", "known")  # which before the verb is the global option
    assert done.returncode == 14
    assert "in fail_known" in done.stderr
    assert "s3cret" not in done.stderr


def test_errors_of_files_are_explained(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "file")
    assert done.returncode == 30
    assert_reads(done.stderr, "diagnose/no-such-file-no-such-file-directory")


@each_row("how, words", [("memory", "ran out of memory"), ("threads", "no more threads")])
def test_errors_of_limits_name_the_remedy(tmp_path: Path, how: str, words: str) -> None:
    done = run_kedge(tmp_path, "fail", how)
    assert done.returncode == 40
    assert words in done.stderr
    assert "job" in done.stderr.splitlines()[-1]


def test_errors_that_are_bugs_leave_a_log(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "unknown", "--password", "hunter2", "--password=hunter3")
    assert done.returncode == 3
    (log,) = (tmp_path / "state" / "kedge").iterdir()
    assert_reads(done.stderr, "cli/bug-zerodivisionerror-https-me-reg", log)
    text = log.read_text()
    assert "- kedge: " in text
    assert "- command: kedge fail unknown --password *** --password=***" in text
    assert "in fail_unknown" in text
    assert "hunter" not in text
    assert "s3cret" not in text
    assert log.stat().st_mode & 0o777 == 0o600


def test_errors_that_are_bugs_are_shown_when_no_log_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where a directory is needed")
    done = run_kedge(tmp_path, "fail", "unknown")
    assert done.returncode == 3
    assert "in fail_unknown" in done.stderr
    assert_ends(done.stderr, "cli/please-report-text-above")


def test_errors_that_are_bugs_are_json_too(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "unknown", "--json")
    assert done.returncode == 3
    shown = json.loads(done.stdout)
    assert shown["error"] == "bug"
    assert Path(shown["context"]["log"]).exists()


def test_errors_interrupt_is_one_line_or_one_document(tmp_path: Path) -> None:
    done = run_kedge(tmp_path, "fail", "interrupt")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "kedge: interrupted\n")
    done = run_kedge(tmp_path, "fail", "interrupt", "--json")
    assert (done.returncode, done.stderr) == (130, "")
    assert json.loads(done.stdout)["message"] == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_errors_signal_removes_temporary_files(tmp_path: Path, number: signal.Signals) -> None:
    # whoever runs the tests may have them ignored: nohup does, and shells for what runs in the background
    process = begin(tmp_path, "fail", "write-slowly", before=("env", "--default-signal"))
    assert [path.name[:11] for path in tmp_path.iterdir()] == [".kedge-tmp-"]
    process.send_signal(number)
    _, shown = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert shown.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_errors_signal_ignored_by_nohup_stays_ignored(tmp_path: Path) -> None:
    process = begin(tmp_path, "fail", "write-slowly", before=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


def test_errors_broken_pipe_is_quiet(tmp_path: Path) -> None:
    process = begin(tmp_path, "fail", "print-much")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 141


def test_errors_full_device_is_explained(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *COMMAND, "fail", "talk", "-q"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 32
    assert_says(done.stderr, "base/cannot-write-standard-output-file")
    assert "Exception ignored" not in done.stderr


def test_errors_closed_output_is_no_error(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *COMMAND, "fail", "talk"]
    assert subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), check=False).returncode == 0
