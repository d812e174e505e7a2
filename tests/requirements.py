# SPDX-License-Identifier: BSD-3-Clause
"""What a test may need from the machine: each function returns it, or skips the test and says why.

Where everything can be installed (root in CI) a missing program is a failure, so that no group of tests goes quiet.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
SHARED_REASON = "the shared fixtures are not here (KEDGE_SHARED)"


def must_run() -> bool:
    """Whether a skip is a failure: in CI, as root, everything that Debian packages can be installed."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes") and os.geteuid() == 0


def require_program(name: str) -> str:
    """The path of a program, found like users do plus the sbin directories."""
    path = shutil.which(name) or shutil.which(name, path=SBIN)
    if path is None:
        _refuse(f"the program {name} is not installed ('make setup' as root installs it)")
    return str(path)


def require_file(pattern: str) -> Path:
    """A file or directory that a package brings, by its path or a pattern of it."""
    found = sorted(Path("/").glob(pattern.lstrip("/")))
    if not found:
        _refuse(f"there is no {pattern} ('make setup' as root installs it)")
    return found[0]


def require_browser() -> str:
    """The path of a Chromium, which judges the pages that kedge writes."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path is not None and not _is_snap(path):
            return path
    if "ID=ubuntu" in Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        pytest.skip("Ubuntu's Chromium is a snap, which starts in no namespaces of ours")
    return require_program("chromium")


def _is_snap(path: str) -> bool:
    """Whether a program is the launcher of a snap: a link to one, or a script that names one."""
    target = Path(path).resolve()
    return target.name == "snap" or b"/snap/" in target.read_bytes()[:4096]


def require_root() -> None:
    """Skip unless we are root."""
    if os.geteuid() != 0:
        pytest.skip("needs real root")


def shared_folder() -> Path:
    """Where the shared fixtures are, if they are anywhere."""
    return Path(os.environ.get("KEDGE_SHARED") or REPOSITORY.parent / "shared")


def require_shared(name: str = ".") -> Path:
    """A file or directory of the shared fixtures: KEDGE_SHARED, or `shared` beside the repository."""
    path = shared_folder() / name
    if not path.exists():
        pytest.skip(SHARED_REASON)
    return path


def require_peer() -> Path:
    """The script that runs the real Apptainer, when its tree has been made."""
    require_root()
    script = require_shared("tools/apptainer-peer")
    tree = Path(os.environ.get("KEDGE_PEERS") or "/var/tmp/kedge-peers") / "sid"
    if not (tree / ".ready").exists():
        _refuse("the tree of the real Apptainer was not made ('scripts/setup-peer' makes it)")
    return script


@functools.cache
def _has_user_namespaces() -> bool:
    words = [require_program("unshare"), "-r", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def require_user_namespaces() -> None:
    """Skip unless an unprivileged user namespace can be made here."""
    if not _has_user_namespaces():
        pytest.skip("user namespaces cannot be made here")


def open_way(path: Path) -> None:
    """Let other users reach what is in `path`, a directory of ours below pytest's private ones."""
    for folder in (path, *path.parents):
        mode = folder.stat().st_mode
        if folder.stat().st_uid == os.getuid() and mode & 0o005 != 0o005:
            folder.chmod(mode & 0o7777 | 0o055)


def _refuse(reason: str) -> None:
    if must_run():
        pytest.fail(f"{reason}, and in CI it must be there")
    pytest.skip(reason)
