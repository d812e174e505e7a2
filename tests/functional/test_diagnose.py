# SPDX-License-Identifier: BSD-3-Clause
"""`kedge diagnose` as users call it: files, standard input, jobs that failed, ran well or still run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.cli.main import main
from kedge.errors import FailureFound, FileProblem, JobNotFound
from tests.builders.queue_user import QueueUser
from tests.builders.waiting import wait_until
from tests.wording import assert_begins, assert_says

NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
FOUND = FailureFound.exit_code


@pytest.fixture
def user(tmp_path: Path) -> QueueUser:
    return QueueUser(tmp_path)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KEDGE_LOCAL_QUEUE", str(tmp_path / "queue"))
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def test_diagnose_file_says_cause_line_and_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", write("train.out", f"epoch 1\n{NO_KERNEL}\n")]) == FOUND
    shown = capsys.readouterr().out
    assert_begins(shown, "diagnose/cause-image-no-kernels-gpu")
    assert "\n  train.out:2: RuntimeError: CUDA error" in shown
    assert_says(shown, "diagnose/remedy-explain-image-gpu-gpu")


def test_diagnose_file_without_failures_shows_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", write("train.out", "epoch 1\nepoch 2\n\x1b[32mdone\x1b[0m TOKEN=abcdefgh1234\n")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("kedge knows no failure message in train.out.")
    assert shown.endswith("    epoch 2\n    done TOKEN=***\n")
    assert main(["diagnose", write("empty.out", "")]) == 0


def test_diagnose_several_files_tells_each_failure_once(capsys: pytest.CaptureFixture[str]) -> None:
    files = [write("0.log", NO_KERNEL + "\n"), write("1.log", NO_KERNEL + "\nKilled\n")]
    assert main(["diagnose", *files]) == FOUND
    shown = capsys.readouterr().out
    assert shown.count("no kernels") == 1
    assert "[2 times]" in " ".join(shown.split())
    assert_says(shown, "diagnose/more-all-killed", 1)
    main(["diagnose", "--all", *files])
    assert "error (possible): " in capsys.readouterr().out


def test_diagnose_standard_input() -> None:
    words = [sys.executable, "-m", "kedge", "diagnose", "-"]
    done = subprocess.run(words, input="x\nMemoryError\n", text=True, capture_output=True, check=False)
    assert done.returncode == FOUND
    assert "standard input:2: MemoryError" in done.stdout


def test_diagnose_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "diagnose", write("train.out", f"0: {NO_KERNEL}\n1: {NO_KERNEL}\n")]) == FOUND
    told = json.loads(capsys.readouterr().out)
    assert told["found"] is True
    [clue] = told["clues"]
    assert (clue["name"], clue["number"], clue["rank"], clue["ranks"]) == ("no-kernel-209", 1, "0", 2)


def test_diagnose_repeats_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    line = (
        "requests.exceptions.ConnectionError: https://me:geheim@host/x?token=topsecret HF_TOKEN=hf_abcdefghijklmnopqrst"
    )
    assert main(["diagnose", write("x.log", line)]) == FOUND
    main(["--json", "diagnose", "x.log"])
    shown = capsys.readouterr().out
    for secret in ("geheim", "topsecret", "abcdefghij"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("word", "error", "sentence"),
    [
        ("nosuch.out", FileProblem, "there is no file nosuch.out"),
        ("logs/1", FileProblem, "there is no file logs/1"),
        ("last", JobNotFound, "kedge has submitted no job yet"),
        ("nosuch", JobNotFound, "there is neither a file nor a job 'nosuch'"),
        (".", FileProblem, "is a directory"),
    ],
)
def test_diagnose_what_is_not_there(
    capsys: pytest.CaptureFixture[str], word: str, error: type[FileProblem], sentence: str
) -> None:
    assert main(["diagnose", "--site", "local", word]) == error.exit_code
    told = capsys.readouterr().err
    assert sentence in told
    assert "hint: " in told


def test_diagnose_of_a_failed_job(user: QueueUser) -> None:
    user.run("submit", "--wait", "--site", "local", "-", "sh", "-c", "cat x >/dev/full; exit 3", check=False)
    done = user.run("diagnose", "--site", "local", check=False)
    assert done.returncode == FOUND, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("Job ")
    assert_says(first, "schedulers/failed-exit-code", 3)
    assert_says(" ".join(rest), "diagnose/no-x-wrong-name-directory")


def test_diagnose_of_a_job_that_ran_well_and_of_one_that_runs(user: QueueUser) -> None:
    user.run("submit", "--wait", "--site", "local", "--name", "well", "-", "echo", "fine")
    done = user.run("diagnose", "--site", "local", "well")
    assert "completed" in done.stdout
    assert "knows no failure message" in done.stdout
    user.run("submit", "--site", "local", "--name", "runs", "-", "sh", "-c", f"echo '{NO_KERNEL}'; sleep 60")
    wait_until("output", lambda: NO_KERNEL in user.run("logs", "--site", "local", "runs", check=False).stdout)
    done = user.run("diagnose", "--site", "local", "runs", check=False)
    assert done.returncode == FOUND
    assert "running" in done.stdout.splitlines()[0]
    user.run("cancel", "--site", "local", "runs")


def test_diagnose_of_a_job_whose_ranks_died_before_its_time_was_over(user: QueueUser) -> None:
    said = "srun: error: gpu01: task 1: Segmentation fault"
    limit = "slurmstepd: error: *** JOB 9 ON gpu01 CANCELLED AT 2026-11-16T19:39:52 DUE TO TIME LIMIT ***"
    path = user.folder / "job.out"
    path.write_text(f"{said}\n{limit}\n")
    shown = user.run("diagnose", path, check=False).stdout
    assert_begins(shown, "diagnose/error-possible-program-used-memory")
    assert_says(shown, "diagnose/more-all-time-limit", 1)


def test_diagnose_of_consequences_alone_shows_the_last_lines_of_that_rank(capsys: pytest.CaptureFixture[str]) -> None:
    log = "0: hello\n1: my own words\n0: bye\nsrun: error: gpu01: task 1: Exited with exit code 7\n0: waits\n"
    assert main(["diagnose", write("x.log", log)]) == FOUND
    shown = capsys.readouterr().out
    assert shown.startswith("follows from another failure: ")
    assert shown.endswith("  last lines:\n    1: my own words\n")
