# SPDX-License-Identifier: BSD-3-Clause
"""TACC's ibrun: it takes all from the allocation, and calls the mpiexec of the MPI whose module is loaded."""

from __future__ import annotations

from kedge.cluster.launchers.hydra import HYDRA
from kedge.cluster.launchers.open_mpi import OPEN_MPI
from kedge.cluster.launchers.program import Groups, RankEnd, StartRequest


class _Ibrun:
    name = "ibrun"
    can_label = False
    is_own = False

    def list_words(self, request: StartRequest) -> Groups:
        groups: Groups = [(request.program or "ibrun",)]
        if request.is_counted:
            groups.append(("-n", str(request.size)))
        return [*groups, *((option,) for option in request.options)]

    def split_label(self, line: str) -> tuple[int | None, str]:
        return None, line

    def read_end(self, line: str) -> RankEnd | None:
        return HYDRA.read_end(line) or OPEN_MPI.read_end(line)


IBRUN = _Ibrun()
