# SPDX-License-Identifier: BSD-3-Clause
"""scripts/clean-room: what it says without doing it, and that a program which set-up forgets makes it fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.builders.rows import each_row
from tests.requirements import REPOSITORY, require_program, require_root

FORGOTTEN = "umoci"
ASKS_FOR_IT = "tests/interop/test_oci_tools.py"


def clean_room(*words: str, repository: Path = REPOSITORY, timeout: int = 60) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KEDGE_SHARED": str(repository / "none")}  # without it no tree of Apptainer is made
    command = [str(repository / "scripts/clean-room"), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def git(repository: Path, *words: str) -> str:
    command = [
        require_program("git"),
        "-C",
        str(repository),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def list_groups() -> set[Path]:
    return set(Path("/sys/fs/cgroup").glob("**/kedge-clean-room-*"))


def test_script_is_clean() -> None:
    words = ["--severity=warning", str(REPOSITORY / "scripts/clean-room")]
    done = subprocess.run([require_program("shellcheck"), *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_dry_run_says_what_would_be_typed() -> None:
    done = clean_room("--dry-run", "--suite", "trixie")
    assert done.returncode == 0
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if len(line.split()) > 1)
    assert lines["suite:"] == "trixie, with git,make,ca-certificates"
    assert lines["commit:"] == git(REPOSITORY, "rev-parse", "HEAD")
    assert (lines["user:"], lines["root:"]) == ("make demo", "CI=true make test")


def test_arguments_choose_tests() -> None:
    done = clean_room("--dry-run", "--only", "test", "--", "tests/unit", "-k", "one or two")
    assert "user:" not in done.stdout
    assert "CI=true scripts/test tests/unit -k one or two\n" in done.stdout


@each_row(
    "words, problem",
    [
        (["--suite", "sarge"], "--suite sarge: use bookworm or trixie"),
        (["--only", "lint"], "--only lint: use demo or test"),
        (["--root", "/usr"], "--root /usr: it exists, and is no root that --keep left"),
        (["--peers", "/etc"], "--peers /etc: it holds no finished tree (sid/.ready)"),
        (["--everything"], "unknown option: --everything"),
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str], problem: str) -> None:
    done = clean_room("--dry-run", *words)
    assert done.returncode == 2
    assert done.stderr.endswith(f"clean-room: {problem}\n")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(7200)
def test_program_that_set_up_forgets_makes_it_fail(tmp_path: Path) -> None:
    require_root()
    for name in ("mmdebstrap", "slirp4netns"):
        require_program(name)
    repository = tmp_path / "kedge"
    git(REPOSITORY, "clone", "--quiet", ".", str(repository))
    listed = repository / "scripts/setup-system"
    text = listed.read_text()
    assert text.count(f"'{FORGOTTEN}|{FORGOTTEN}'") == 1
    listed.write_text(text.replace(f"'{FORGOTTEN}|{FORGOTTEN}'", ""))
    git(repository, "commit", "--quiet", "--all", "--message", "one program fewer")
    others = list_groups()  # of a room that somebody else has open
    done = clean_room("--only", "test", "--", ASKS_FOR_IT, repository=repository, timeout=7000)
    assert done.returncode == 1, done.stdout + done.stderr
    missing = done.stdout.partition("\nmissing:\n")[2].partition("\ngroups that cannot run")[0]
    assert f"the program {FORGOTTEN} is not installed" in missing
    assert "make test: FAILED" in done.stdout
    assert list_groups() <= others  # nothing of the room is left
