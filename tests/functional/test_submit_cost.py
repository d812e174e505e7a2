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

MODULES = {"submit": 70, "submit in an image": 78, "jobs": 61}  # of kedge, with those that importlib loads
WORDS = {
    "submit": ("submit", "--time", "5m", "-", "true"),
    "submit in an image": ("submit", "--time", "5m", "-G", "1", "image.sif", "python", "train.py"),
    "jobs": ("jobs",),
}
OF_IMAGES = {"kedge.container", "kedge.image.image_file"}  # a submission looks at the image, in the way of a start
HEAVY = {
    *("dataclasses", "inspect", "ast", "hashlib", "socket", "ssl", "logging", "tempfile", "concurrent.futures"),
    *("asyncio", "ctypes", "pickle", "random", "uuid", "email", "http", "urllib.request", "importlib.metadata"),
    *("locale", "shutil", "tomllib"),
}
NOT_SUBMIT = {"typing", "subprocess", "threading", "signal", "selectors"}  # squeue's answer comes through a pipe
PARTS = (
    *("registry", "store", "layers", "formats", "runtime", "signing", "hostpack", "batchscript", "localqueue", "host"),
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
    """What a program of Python imports by statements."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *argv],
        env=environment,
        cwd=environment["HOME"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def list_loaded(environment: dict[str, str], *words: str) -> set[str]:
    """What Python has loaded when a command has ended, also by importlib; without words, when it has begun."""
    show = "print(*sys.modules, file=sys.stderr)"
    start = "from kedge.cli.entry import main; main(sys.argv[1:])" if words else "pass"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{start}\n{show}", *words],
        env=environment,
        cwd=environment["HOME"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("way", WORDS)
def test_verb_loads_what_it_needs_only(environment: dict[str, str], way: str) -> None:
    verb = WORDS[way][0]
    if "image.sif" in WORDS[way]:
        pull = [sys.executable, "-m", "kedge", "-q", "pull", "image.sif", "host:true"]
        subprocess.run(pull, env=environment, cwd=environment["HOME"], check=True)
    loaded = list_loaded(environment, *WORDS[way]) - list_loaded(environment)
    own = {name for name in loaded if name.partition(".")[0] == "kedge"}
    assert not loaded & HEAVY - (set() if verb == "submit" else {"locale"})  # subprocess brings it along
    assert verb != "submit" or not loaded & NOT_SUBMIT
    assert not {
        name
        for name in own - (OF_IMAGES if "image.sif" in WORDS[way] else set())
        if name.split(".")[1:2] and name.split(".")[1] in PARTS
    }
    assert len(own) <= MODULES[way], sorted(own)
