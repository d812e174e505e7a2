# SPDX-License-Identifier: BSD-3-Clause
"""What an MPI library says of itself: the probe asks it in a container (MPI_Get_library_version); no MPI is started."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kedge.cluster.mpi import MpiImage
from kedge.errors import LaunchFailed
from kedge.image.clean_config import clean_text
from kedge.launch.probe.answers import read_lines
from kedge.launch.probe.words import find_probe, probe_words
from kedge.system.memory_program import hold_program
from kedge.system.process import run_program
from kedge.system.start_kedge import own_command

_LONGEST = 160  # characters: MPICH adds how it was configured
_PATIENCE = 120.0  # seconds; the image may have to be unpacked first


def ask_library(reference: str, image: MpiImage, environ: Mapping[str, str]) -> str:
    """The version text of the MPI that the image's programs use, in one line."""
    mpi = image.mpi
    probe = find_probe(os.uname().machine)
    if not probe:
        raise LaunchFailed(f"kedge has no probe for {os.uname().machine}", hint="leave --run out")
    program = hold_program(probe)
    words = probe_words(program, "version", library=mpi.library if mpi else "")
    descriptor = int(program.rpartition("/")[2])
    try:
        done = run_program(
            own_command("exec", reference, *words),
            environment=environ,
            timeout=_PATIENCE,
            check=False,
            descriptors=(descriptor,),
            name="kedge exec",
        )
    finally:
        os.close(descriptor)
    for answer in read_lines(done.text):
        if answer["kedge"] == "version":
            return clean_text(str(answer.get("version", "")), _LONGEST)
    reason = next((str(answer.get("reason", "")) for answer in read_lines(done.text)), "")
    last = done.errors.decode(errors="replace").strip().splitlines()
    raise LaunchFailed(
        f"the image's MPI library did not answer: {reason or (last[-1] if last else f'exit code {done.status}')}",
        hint=f"see what the image has: kedge mpi show {reference}",
    )
