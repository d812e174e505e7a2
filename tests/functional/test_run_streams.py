# SPDX-License-Identifier: BSD-3-Clause
"""Starts where the caller's streams are closed, or where the user changes their mind: one clean end each."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kedge.container.shim_file import make_shim
from tests.builders.containers import Runner
from tests.requirements import REPOSITORY


@pytest.mark.parametrize("words", [("exec", "IMAGE", "sleep", "5"), ("pull", "x.sif", "docker://[::1]:1/a/b")])
@pytest.mark.parametrize("delay", [0.05, 0.12, *(pytest.param(each, marks=pytest.mark.long) for each in (0.08, 0.2))])
def test_interrupt_at_any_time_shows_no_traceback(runner, image, words, delay):
    words = tuple(image if word == "IMAGE" else word for word in words)
    started = replace(runner, program=(str(Path(sys.executable).with_name("kedge")),))  # as users start it
    process = started.start(*words, pipes="stderr")
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    # Python itself may say it before the first line of kedge runs, but then in its own words and not in ours
    assert str(REPOSITORY / "src/kedge") not in said or "Traceback" not in said, said
    assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT, 1, 13, 14), said


def test_interrupt_while_an_image_is_made_ready_is_the_childs(runner: Runner) -> None:
    """The parent waits until the child has cleaned up, and ends as it did."""
    child = "import os, signal, sys, time; print('ready', flush=True); time.sleep(30)"
    code = (
        "import sys; from kedge.system.spawn import run_attached; import os; "
        f"print(run_attached([sys.executable, '-c', {child!r}], os.environ))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
    )
    assert process.stderr.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=30)[0]
    assert (said, process.returncode) == ("130\n", 0)


def test_interrupt_that_is_ignored_stays_ignored(runner: Runner, image: str) -> None:
    script = f"trap '' INT; {shlex.join(runner.argv('exec', image, 'grep', 'SigIgn', '/proc/self/status'))}"
    assert int(runner.call(["sh", "-c", script]).stdout.split()[1], 16) & (1 << (signal.SIGINT - 1))


# Each command without any stream, and one command without each.
ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        *((("exec", "--verbose", "IMAGE", "true"), closed) for closed in ("<&-", ">&-", "2>&-", ALL_CLOSED)),
        (("exec", "--dry-run", "IMAGE", "true"), ALL_CLOSED),
        (("exec", "--help"), ALL_CLOSED),
        (("instance", "start", "--help"), ALL_CLOSED),
        (("instance", "start", "--dry-run", "IMAGE", "name"), ALL_CLOSED),
    ],
)
def test_closed_streams_are_no_reason_to_fail(runner: Runner, image: str, closed: str, words: tuple[str, ...]) -> None:
    words = tuple(image if word == "IMAGE" else word for word in words)
    done = runner.call(["sh", "-c", f"{shlex.join(runner.argv(*words))} {closed}"])
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("words", ["--version", "--config x exec IMAGE true", "--config x pull --help"])
def test_shim_with_closed_streams(runner: Runner, image: str, tmp_path: Path, words: str) -> None:
    shim = tmp_path / "apptainer"
    shim.write_text(make_shim("apptainer", sys.executable, str(REPOSITORY / "src")))
    command = f"{shlex.quote(sys.executable)} -SI {shlex.quote(str(shim))} {words.replace('IMAGE', image)}"
    assert runner.call(["sh", "-c", f"{command} >&- 2>&-"]).returncode == 0


def test_umask_is_the_callers_and_spoils_nothing(runner: Runner, image: str) -> None:
    """What kedge makes in memory for the container can be used, whatever the umask."""
    inside = ("sh", "-c", "umask; stat -c %a / /deep /etc/passwd")
    program = shlex.join(runner.argv("exec", "-B", "/etc:/deep/er/place", image, *inside))
    done = runner.call(["sh", "-c", f"umask 0777; exec {program}"])
    assert (done.returncode, done.stdout.split()) == (0, ["0777", "755", "755", "644"]), done.stderr
