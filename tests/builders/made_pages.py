# SPDX-License-Identifier: BSD-3-Clause
"""The pages that scripts/make-reference writes: errors.md, reference/ and man/, made once in a run of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.builders.once import make_once
from tests.requirements import REPOSITORY


def make_pages() -> Path:
    """The directory with all of them."""
    return make_once("made-pages", _write)


def _write(directory: Path) -> None:
    script = [sys.executable, str(REPOSITORY / "scripts/make-reference"), str(directory)]
    done = subprocess.run(script, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
