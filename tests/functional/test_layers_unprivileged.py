# SPDX-License-Identifier: BSD-3-Clause
"""The tests of sandboxes and directories once more, as an ordinary user: root hides mistakes with permissions."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kedge.system.confined_paths import remove_tree
from tests.requirements import REPOSITORY, require_program, require_root

pytestmark = pytest.mark.root

MODULES = [
    "tests/unit/image/layers/test_sandbox.py",
    "tests/unit/image/layers/test_directory_tree.py",
    "tests/unit/system/test_confined_paths.py",
]


def test_sandboxes_work_for_an_ordinary_user() -> None:
    require_root()
    setpriv = require_program("setpriv")
    place = Path(tempfile.mkdtemp(prefix="kedge-user-"))
    place.chmod(0o755)
    home = place / "home"
    home.mkdir()
    os.chown(home, 1501, 1501)
    argv = [setpriv, "--reuid", "1501", "--regid", "1501", "--clear-groups", sys.executable, "-m", "pytest", "-q"]
    argv += ["-p", "no:cacheprovider", f"--basetemp={home / 'tests'}", *MODULES]
    argv += ["-k", "not spools_many_files"]  # two seconds, and no question of permissions
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(argv, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    finally:
        remove_tree(place)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "passed" in done.stdout
