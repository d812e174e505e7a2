# SPDX-License-Identifier: BSD-3-Clause
"""The MPI of this host, whose mpirun can start ranks in containers."""

from __future__ import annotations

from kedge.answers.doctor.finding import NOTE, OK, Finding
from kedge.answers.doctor.surroundings import Surroundings
from kedge.cluster.host_mpi import find_mpi

NAME = "mpi"
_DOCS = f"kedge help doctor {NAME}"
_SECONDS = 0.8  # for a launcher to say what it is


def check_mpi(surroundings: Surroundings) -> list[Finding]:
    """The MPI in this environment and its version."""
    mpi = find_mpi(surroundings.environ, deadline=_SECONDS * surroundings.patience)
    if mpi is None:
        why = "mpirun on the host cannot start ranks in containers; jobs on one node, and jobs with srun, need no MPI"
        fix = "load a module, such as 'module load openmpi', or start ranks with 'srun --mpi=pmix'"
        return [Finding(NAME, NOTE, "no MPI in PATH, and no MPI module loaded", why=why, fix=fix, docs=_DOCS)]
    if not mpi.version:
        what = f"{mpi.launcher} is of an unknown MPI: '--version' does not name it"
        why = "kedge cannot tell whether it can start the MPI of an image"
        return [Finding(NAME, NOTE, what, why=why, fix="try it yourself: mpirun --version", docs=_DOCS)]
    where = f" ({mpi.launcher})" if mpi.launcher else f" (by {mpi.source})"
    return [Finding(NAME, OK, f"{mpi.title}{where}")]
