# SPDX-License-Identifier: BSD-3-Clause
"""Commands shown in README and docs/ are run, in a fresh home and folder per page, and show what the page says.

Only blocks below `<!-- run -->` are: those that need no network. Needs openssl for the page about signatures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.documents import list_running_pages, read_steps
from tests.requirements import REPOSITORY, require_program

SIZE = re.compile(r"\b\d+(?:\.\d+)? [kMGT]?B\b")
RUNNING = [str(page.relative_to(REPOSITORY)) for page in list_running_pages()]


def make_environment(place: Path) -> dict[str, str]:
    """A user who has kedge on PATH and nothing else."""
    programs = place / "bin"
    programs.mkdir()
    kedge = programs / "kedge"
    kedge.write_text(f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n')
    kedge.chmod(0o755)
    home = place / "home"
    home.mkdir()
    return {
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(home),
        "PYTHONPATH": str(REPOSITORY / "src"),
        "KEDGE_SITE_CONFIG": str(place / "no-site-config.toml"),
        "LANG": "C.UTF-8",
        "USER": os.environ.get("USER", "user"),
    }


def is_shown(line: str, output: str) -> bool:
    """Whether a line of the page is in what was printed; `…` stands for anything, and sizes may differ."""
    words = SIZE.sub("SIZE", line).split()
    pattern = r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in words)
    return re.search(rf"^\s*{pattern}\s*$", SIZE.sub("SIZE", output), re.MULTILINE) is not None


def test_docs_there_are_pages_to_run() -> None:
    assert "README.md" in RUNNING
    assert len(RUNNING) >= 6


@pytest.mark.parametrize("name", RUNNING)
def test_docs_commands_do_what_the_page_shows(name: str, tmp_path: Path) -> None:
    if name.endswith("signing.md"):
        require_program("openssl")
    environment = make_environment(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    for step in read_steps(REPOSITORY / name):
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        output = done.stdout.decode()
        should_fail = any(line.startswith("kedge: ") for line in step.shown)
        assert (done.returncode != 0) == should_fail, f"{name}: {step.command}\nstatus {done.returncode}\n{output}"
        missing = [line for line in step.shown if not is_shown(line, output)]
        assert not missing, f"{name}: {step.command}\ndoes not show {missing}\nbut:\n{output}"
