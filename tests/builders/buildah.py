# SPDX-License-Identifier: BSD-3-Clause
"""buildah, for comparison: it keeps its storage, caches and networks in one directory, and nothing beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.requirements import require_file, require_program


def run_buildah(place: Path, *words: str) -> str:
    """What it prints; a failure fails the test."""
    require_file("/usr/lib/podman/netavark")  # since 1.39 it asks for it, even where no step has a network
    for name in ("temporary", "networks"):
        (place / name).mkdir(exist_ok=True)
    settings = place / "containers.conf"  # without it, it makes /etc/cni
    limits = '["nofile=1024:1024", "nproc=1024:1024"]'  # its own are more than it may set in a clean room
    settings.write_text(
        f'[network]\nnetwork_config_dir = "{place}/networks"\n[containers]\ndefault_ulimits = {limits}\n'
    )
    argv = [require_program("buildah"), "--storage-driver", "vfs", "--root", f"{place}/s", "--runroot", f"{place}/r"]
    # it keeps a cache in /var/lib/containers, whatever it is told
    alone = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /var/lib && exec "$@"', "sh"]
    environment = {**os.environ, "CONTAINERS_CONF": str(settings), "TMPDIR": f"{place}/temporary"}
    done = subprocess.run(
        [*alone, *argv, *words], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout
