# SPDX-License-Identifier: BSD-3-Clause
"""`srun --container-name`: which image a name stands for in a job, kept until the next job with that number."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kedge.errors import UsageError
from kedge.posix.files import explained, write_atomically
from kedge.posix.private_files import make_private
from kedge.schedulers.slurm import FACTS
from kedge.settings import xdg_directory


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
        if path.is_file():
            return path.read_text(encoding="utf-8").strip()
    raise UsageError(
        f"no step of job {job} has named a container '{name}'", hint=f"add --container-image=IMAGE to name it: {name}"
    )


def _write(path: Path, image: str) -> None:
    if image.startswith("."):
        image = str(Path.cwd() / image)
    with explained(path):
        make_private(path.parent)
        write_atomically(path, f"{image}\n".encode())
