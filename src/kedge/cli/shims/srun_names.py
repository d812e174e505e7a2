# SPDX-License-Identifier: BSD-3-Clause
"""`srun --container-name`: which image a name stands for in a job.

A name is a small file, as the steps of a job run on different nodes. Nobody tells kedge when a job ends, so a file that
no step has used for 60 days is removed when the next name is given; a name from before the job began is not its own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from kedge.cluster.schedulers.slurm import FACTS
from kedge.errors import UsageError
from kedge.system.files import explained, write_atomically
from kedge.system.private_files import make_private
from kedge.system.settings import xdg_directory

_KEPT = 60 * 86400  # seconds; longer than jobs run
_CLOCKS = 300  # seconds that the clocks of a file server and of the scheduler may differ


def remember_image(name: str, image: str, environ: Mapping[str, str]) -> str:
    """The image of a name, which a step of the job gave it: this one, or one before."""
    job = environ.get(FACTS.job_id, "")
    if "/" in name or name.startswith("."):
        raise UsageError(f"'{name}' is no name for a container", hint="write --container-name=NAME")
    if not job:  # srun makes a job of its own, which ends with the container
        return image
    path = xdg_directory(environ, "XDG_STATE_HOME", ".local/state") / "named-containers" / f"{job}.{name}"
    if image:
        _write(path, image)
        return image
    with explained(path):
        if path.is_file() and path.stat().st_mtime + _CLOCKS > _find_begin(environ):
            with contextlib.suppress(OSError):  # a file system that is full or read-only now still tells the name
                os.utime(path)
            return path.read_text(encoding="utf-8").strip()
    raise UsageError(
        f"no step of job {job} has named a container '{name}'", hint=f"add --container-image=IMAGE to name it: {name}"
    )


def _find_begin(environ: Mapping[str, str]) -> float:
    """When the job began; 0 where this Slurm does not say."""
    text = environ.get(FACTS.job_begin, "")
    return float(text) if text.isascii() and text.isdigit() else 0.0


def _write(path: Path, image: str) -> None:
    if image.startswith("."):
        image = str(Path.cwd() / image)
    with explained(path):
        make_private(path.parent)
        write_atomically(path, f"{image}\n".encode())
    _remove_unused(path.parent)


def _remove_unused(folder: Path) -> None:
    """Names of jobs that ended long ago; what cannot be removed harms nobody."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another step was first
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT:
                    Path(entry).unlink()
