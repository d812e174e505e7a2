# SPDX-License-Identifier: BSD-3-Clause
"""An image with Python, torch, Lightning and JAX for CPUs: a sandbox of hard links to what PyPI gave, made at once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.builders.containers import Runner
from tests.builders.pypi_tools import require_tool
from tests.requirements import open_way

_PROGRAMS = ("/usr/bin/python3", "sh", "hostname", "sleep", "cat", "env")
# of torch and jaxlib, and no program's above
_LIBRARIES = ("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1")
_TORCHRUN = "#!/usr/bin/python3\nfrom torch.distributed.run import main\n\nmain()\n"


def make_learning_image(runner: Runner) -> Path:
    """A sandbox that the runner's user can read, with `torchrun` on its PATH; skips where torch cannot be installed."""
    (packages,) = require_tool("learning").parent.glob("lib/python3*/site-packages")
    image = runner.home / "learning"
    if not image.exists():
        runner.read("pull", "--sandbox", str(image), "host:" + ",".join(_PROGRAMS))
        place = image / "usr/local/lib" / packages.parent.name / "dist-packages"
        shutil.copytree(packages, place, copy_function=link_file, dirs_exist_ok=True)
        add_libraries(image)
        torchrun = image / "usr/local/bin/torchrun"
        torchrun.parent.mkdir(parents=True, exist_ok=True)
        torchrun.write_text(_TORCHRUN)
        torchrun.chmod(0o755)
        open_way(image)
    return image


def link_file(source: str, target: str) -> None:
    """For copytree: a hard link where that is possible."""
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def add_libraries(image: Path) -> None:
    """Libraries that wheels expect of every system, and that no program in the image needs."""
    for name in _LIBRARIES:
        for path in Path("/usr/lib").glob(f"*-linux-gnu*/{name}"):
            target = image / path.relative_to("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
