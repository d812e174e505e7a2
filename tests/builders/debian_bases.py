# SPDX-License-Identifier: BSD-3-Clause
"""Root file systems of Debian for tests, from the mirror that this host's apt is configured for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.builders.containers import Runner, as_user
from tests.builders.once import make_once
from tests.requirements import require_program, require_root


def make_debian(suite: str) -> Path:
    """A minimal system as a tar file, made once in a run; skips the test where there is no mirror that has it."""
    require_root()
    return make_once(f"{suite}.tar", lambda path: _bootstrap(suite, path))


def _bootstrap(suite: str, path: Path) -> None:
    options = ["--variant=minbase", "--quiet", "--format=tar"]
    argv = [require_program("mmdebstrap"), *options, suite, str(path), find_mirror()]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the mirror of this host did not deliver {suite} within 300 s")
    if done.returncode:
        pytest.skip(f"no {suite} from the mirror of this host: {done.stderr[-300:]}")
    path.chmod(0o644)


def find_mirror() -> str:
    """The first archive in apt's configuration."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(path.read_text() for path in sources if path.is_file())
    found = re.search(r"^(?:URIs:\s*|deb(?:\s+\[[^]]*])?\s+)(\S+)", text, re.MULTILINE)
    if found is None:
        pytest.skip("apt of this host is configured for no archive")
    return found[1]


def unpack_as(runner: Runner, archive: Path, folder: Path) -> Path:
    """The system as a directory of the runner's user, without device nodes."""
    script = 'mkdir "$2" && tar -xpf "$1" -C "$2" --no-same-owner --exclude="./dev/*"'
    subprocess.run(as_user(runner.uid, ["sh", "-c", script, "sh", str(archive), str(folder)]), check=True)
    return folder
