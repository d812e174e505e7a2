# SPDX-License-Identifier: BSD-3-Clause
"""A static busybox for tests that need a program inside an image: this machine's, or the one in a shared fixture."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.builders.sif import fixture_path
from tests.requirements import require_program


@functools.cache
def read_busybox() -> bytes:
    """The program's bytes."""
    installed = shutil.which("busybox")
    if installed:
        data = Path(installed).read_bytes()
        if b"/ld-" not in data:  # no dynamic loader: it is static
            return data
    if os.uname().machine != "aarch64":
        pytest.skip("no static busybox here (Debian: busybox-static)")
    image = fixture_path("busybox_arm64.sif")
    argv = [require_program("unsquashfs"), "-offset", "45056", "-cat", str(image), "bin/busybox"]
    return subprocess.run(argv, capture_output=True, check=True).stdout
