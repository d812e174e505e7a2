# SPDX-License-Identifier: BSD-3-Clause
"""Images of a local Docker or Podman: their own `save` command, streamed into an archive."""

from __future__ import annotations

import re
from typing import BinaryIO

from kedge.base.reference import Reference
from kedge.errors import ImageNotFound, ProgramFailed, ProgramMissing
from kedge.system.outside import Outside
from kedge.system.process import stream_program
from kedge.system.programs import find_program

_NO_IMAGE = re.compile(r"no such image|not\s+known|does not exist", re.IGNORECASE)  # as docker and podman say it


def save_from_daemon(reference: Reference, target: BinaryIO) -> None:
    """Write the image `reference` names (docker-daemon:, dockerd://, podman://) as a docker-save archive."""
    engine = _choose_engine(reference.engine)
    # Without a tag `save` would take every tag of the repository.
    name = reference.name if reference.tag or reference.digest else f"{reference.name}:latest"
    name = name or str(reference.digest)
    try:
        stream_program([engine, "save"], target, outside=[Outside(name)])
    except ProgramFailed as problem:
        if _NO_IMAGE.search(problem.context.get("stderr", "")):
            raise ImageNotFound(
                f"{engine} has no image '{name}'",
                context=problem.context,
                hint=f"list its images with: {engine} images",
            ) from problem
        raise


def _choose_engine(wanted: str) -> str:
    candidates = ("podman",) if wanted == "podman" else ("docker", "podman")
    for engine in candidates:
        if find_program(engine):
            return engine
    raise ProgramMissing(
        f"the image is stored by {wanted or 'docker'}, but that program is not installed on this host",
        hint="on the host that has it run 'docker save -o image.tar NAME:TAG', then use docker-archive:image.tar here",
    )
