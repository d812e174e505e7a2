# SPDX-License-Identifier: BSD-3-Clause
"""skopeo, for comparison: what it keeps lies in one directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.requirements import require_program


def run_skopeo(place: Path, *words: object) -> bytes:
    """What it prints; a failure fails the test."""
    argv = [require_program("skopeo"), "--insecure-policy", *map(str, words)]
    # as root it would keep a cache in /var/lib/containers; this is how its own programs tell each other who called
    own = {"_CONTAINERS_ROOTLESS_UID": "1", "XDG_DATA_HOME": str(place / "skopeo"), "XDG_RUNTIME_DIR": str(place)}
    environment = {**os.environ, "HOME": str(place), **own}
    done = subprocess.run(argv, capture_output=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, f"{words}\n{done.stderr.decode(errors='replace')}"
    return done.stdout
