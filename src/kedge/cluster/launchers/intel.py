# SPDX-License-Identifier: BSD-3-Clause
"""Intel MPI's mpiexec.hydra: Hydra, with another word for nodes that differ."""

from __future__ import annotations

from kedge.cluster.launchers.hydra import Hydra
from kedge.cluster.launchers.program import Groups, StartRequest


class _Intel(Hydra):
    name = "mpiexec"

    def list_words(self, request: StartRequest) -> Groups:
        """Return Hydra's words with `-hosts a,b`, which Intel MPI takes without numbers, and `-machine` with them."""
        groups = super().list_words(request)
        if not request.hosts:
            return groups
        names = ",".join(name for name, _ in request.hosts)
        if request.per_node:
            return [("-hosts", names) if group[0] == "-hosts" else group for group in groups]
        counted = ",".join(f"{name}:{count}" for name, count in request.hosts)
        return [("-machine", counted) if group[0] == "-hosts" else group for group in groups]


INTEL = _Intel()
