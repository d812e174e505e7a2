# SPDX-License-Identifier: BSD-3-Clause
"""The MPI of this machine, which starts the ranks of containers when mpirun does."""

from __future__ import annotations

from kedge.doctor.finding import NOTE, OK, Finding
from kedge.doctor.surroundings import Surroundings
from kedge.host.mpi import find_mpi

NAME = "mpi"
_DOCS = f"kedge help doctor {NAME}"
_SECONDS = 0.8  # for a launcher to say what it is


def check_mpi(surroundings: Surroundings) -> list[Finding]:
    """Which one a user of this environment gets, and of what version."""
    found = find_mpi(surroundings.environ, deadline=_SECONDS * surroundings.patience)
    if found is None:
        why = "'mpirun' of the host cannot start ranks in containers; jobs on one node, and those of srun, need none"
        fix = "load a module, as in 'module load openmpi', or start ranks with 'srun --mpi=pmix'"
        return [Finding(NAME, NOTE, "no MPI is in PATH, and no module of one is loaded", why, fix, _DOCS)]
    if not found.version:
        what = f"{found.launcher} is here, but of which MPI it is not known: its '--version' says nothing of it"
        why = "whether the MPI of an image can be started by it cannot be judged"
        return [Finding(NAME, NOTE, what, why, "name it: 'mpirun --version' may tell you more", _DOCS)]
    where = f" ({found.launcher})" if found.launcher else f" (by {found.source})"
    return [Finding(NAME, OK, f"{found.title}{where}")]
