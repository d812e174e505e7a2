# SPDX-License-Identifier: BSD-3-Clause
"""What a submission loads, which is most of what it costs over bare sbatch. Ceilings only ever go down.

The time itself is measured by bench/submit, not here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.start_modules import EVERY_START, SOME_STARTS

MODULES = {"submit": 62, "jobs": 51}  # of kedge
WORDS = {"submit": ("submit", "--time", "5m", "-", "true"), "jobs": ("jobs",)}
HEAVY = {
    *("dataclasses", "inspect", "ast", "hashlib", "socket", "ssl", "logging", "tempfile", "concurrent.futures"),
    *("asyncio", "ctypes", "pickle", "random", "uuid", "email", "http", "urllib.request", "importlib.metadata"),
    *("locale", "shutil", "tomllib"),
}
NOT_SUBMIT = {"typing", "subprocess", "threading", "signal", "selectors"}  # squeue's answer comes through a pipe
PARTS = (
    "registry",
    "store",
    "layers",
    "formats",
    "runtime",
    "signing",
    "hostpack",
    "batchscript",
    "localqueue",
    "host",
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A machine whose Slurm takes every job and lists none."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("sbatch", "echo 12"), ("squeue", "exit 0"), ("sacct", "exit 1")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return {
        "HOME": str(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "KEDGE_SITE": "generic-slurm",
        "KEDGE_SITE_CONFIG": str(tmp_path / "none.toml"),
    }


def list_modules(environment: dict[str, str], *argv: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize("verb", WORDS)
def test_verb_loads_what_it_needs_only(environment: dict[str, str], verb: str) -> None:
    start = "import sys; from kedge.cli.entry import main; sys.exit(main())"  # without what -m itself loads
    nothing = list_modules(environment, "-c", "pass")
    loaded = list_modules(environment, "-c", start, *WORDS[verb]) - nothing
    archive = {"kedge.module_archive", "kedge.start_modules"}  # every command's; the list only when it is written
    own = {name for name in loaded if name.partition(".")[0] == "kedge"} - archive
    assert not loaded & HEAVY - (set() if verb == "submit" else {"locale"})  # subprocess brings it along
    assert verb != "submit" or not loaded & NOT_SUBMIT
    assert not {name for name in own if name.split(".")[1:2] and name.split(".")[1] in PARTS}
    assert len(own) <= MODULES[verb], sorted(own)
    known = {"kedge", "kedge.cli", *archive, *EVERY_START, *SOME_STARTS}
    assert verb != "submit" or own <= known, f"add to start_modules.SUBMISSIONS: {sorted(own - known)}"
