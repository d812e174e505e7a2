# SPDX-License-Identifier: BSD-3-Clause
"""`make demo` shows what it says it shows. Needs the repository's own .venv."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.requirements import REPOSITORY


def test_demo_makes_looks_into_and_runs_an_image() -> None:
    if not (REPOSITORY / ".venv/bin/kedge").exists():
        pytest.skip("the demo runs from .venv ('make venv' makes it)")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [REPOSITORY / "scripts/demo"], env=environ, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FS (Squashfs/*System/" in done.stdout  # sif list
    assert "org.label-schema.usage.singularity.deffile.bootstrap: host" in done.stdout  # inspect
    assert re.search(r"^Python 3\.\d+\.\d+ in a root of", done.stdout, re.MULTILINE) or "switched off" in done.stdout
    first, second = re.findall(r"^([0-9a-f]{64})  \w+\.sif$", done.stdout, re.MULTILINE)
    assert first == second
