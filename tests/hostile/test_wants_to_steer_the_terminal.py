# SPDX-License-Identifier: BSD-3-Clause
"""A file, an image or a scheduler wants to steer the terminal: hide lines that the user looks at, or answer for them.

`kedge submit --dry-run` is how one looks at the kedge.toml of a repository before its job runs.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from kedge.cli.redaction import escape_controls, escape_json
from tests.builders.containers import Runner, give_to, make_sandbox

HIDE = "\x1b[8m"  # what follows is invisible
TITLE = "\x1b]0;planted\x07"
ONE_BYTE = "\x9b31m"  # the same sequences without ESC
TURNED = "\u202e"  # what follows is read from right to left
ALL = (HIDE, TITLE, ONE_BYTE, TURNED)


@pytest.fixture
def project(runner: Runner) -> Path:
    """A repository somebody cloned, with a job in it."""
    folder = runner.folder / "project"
    folder.mkdir(exist_ok=True)
    planted = "".join(f"\\u{ord(each):04x}" if not each.isprintable() else each for each in "".join(ALL))
    (folder / "kedge.toml").write_text(f'[job]\nname = "job{planted}"\ncommand = ["true", "{planted}"]\ntime = "1m"\n')
    return give_to(runner, folder)


def show(runner: Runner, *words: str, cwd: Path, status: int = 0) -> str:
    """What a terminal gets to see."""
    ours, theirs = pty.openpty()
    environ = runner.variables({"TERM": "xterm", "COLUMNS": "200", "NO_COLOR": "1"})
    child = subprocess.Popen(runner.argv(*words), env=environ, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # EIO: the last writer is gone
        pass
    os.close(ours)
    assert child.wait(60) == status, seen
    return seen.decode()


def refuse_planted(text: str) -> None:
    for each in (*ALL, "\x1b", "\x07"):
        assert each not in text, repr(text)


def test_dry_run_of_a_job_shows_every_line(runner: Runner, project: Path) -> None:
    text = show(runner, "submit", "--site", "local", "--dry-run", cwd=project)
    refuse_planted(text)
    assert "\\x1b[8m" in text
    refuse_planted(show(runner, "submit", "--site", "local", "--dry-run", "--json", cwd=project))


def test_names_of_jobs_are_shown_as_text(runner: Runner, project: Path) -> None:
    refuse_planted(show(runner, "submit", "--site", "local", "--wait", cwd=project))
    for words in (("jobs", "--all"), ("jobs", "--all", "--json"), ("status",), ("status", "--json")):
        refuse_planted(show(runner, *words, "--site", "local", cwd=project))


def test_labels_of_an_image_are_shown_as_text(runner: Runner, project: Path) -> None:
    image = make_sandbox(runner.folder / "image")
    (image / ".singularity.d/labels.json").write_text(json.dumps({"planted": "".join(ALL)}, ensure_ascii=False))
    give_to(runner, image)
    for words in ((), ("--json",), ("--all",), ("--labels",)):
        refuse_planted(show(runner, "inspect", *words, str(image), cwd=project))


def test_errors_are_shown_as_text(runner: Runner, project: Path) -> None:
    for words in (("inspect", f"none{''.join(ALL)}"), ("inspect", "--json", f"none{''.join(ALL)}")):
        refuse_planted(show(runner, *words, cwd=project, status=10))


def test_escaped_json_is_the_same_document() -> None:
    value = {"".join(ALL): ["".join(ALL), "\ud800", "\U000e0001", "é😀\n\t\\"]}
    text = json.dumps(value, indent=2, ensure_ascii=False)
    assert json.loads(escape_json(text)) == value
    refuse_planted(escape_json(text))


def test_plain_text_is_left_alone() -> None:
    assert escape_controls("é 😀\tfile\nname") == "é 😀\tfile\nname"
    assert escape_controls("\x1b\x9b\u202e\U000e0001\udcff") == "\\x1b\\x9b\\u202e\\U000e0001\\udcff"
