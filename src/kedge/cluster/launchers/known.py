# SPDX-License-Identifier: BSD-3-Clause
"""The programs that start ranks by name: those that kedge drives, and those that it knows in others' scripts."""

from __future__ import annotations

from kedge.cluster.launchers.hydra import HYDRA, Hydra
from kedge.cluster.launchers.open_mpi import OPEN_MPI
from kedge.cluster.launchers.own import LOCAL, QRSH
from kedge.cluster.launchers.program import Groups, LaunchProgram, RankEnd, StartRequest
from kedge.cluster.launchers.srun import SRUN
from kedge.errors import LaunchRefused

# Intel MPI's mpiexec.hydra: Hydra, with another word for nodes that differ.


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


# TACC's ibrun: it takes all from the allocation, and calls the mpiexec of the MPI whose module is loaded.


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


PROGRAMS: dict[str, LaunchProgram] = {
    "srun": SRUN,
    "ibrun": IBRUN,
    "mpirun": OPEN_MPI,
    "mpiexec": HYDRA,
    "qrsh": QRSH,
    "local": LOCAL,
}
# The same names where the host's MPI is another family's: mpirun and mpiexec are what that family calls its own.
OF_FAMILY: dict[str, LaunchProgram] = {
    "Open MPI": OPEN_MPI,
    "MPICH": HYDRA,
    "MVAPICH": HYDRA,
    "Intel MPI": INTEL,
}

# Programs that start others: on the tasks of a job, as several processes, on other nodes, as ranks of MPI; `library`:
# its version is that of an MPI library; `own`: it starts the processes of its node, and once per node is enough
_KINDS = {
    "srun": "tasks processes nodes",
    "ibrun": "tasks processes nodes",
    "mpirun": "tasks processes nodes ranks library",
    "mpiexec": "tasks processes nodes ranks library",
    "orterun": "tasks ranks library",
    "mpiexec.hydra": "library",
    "horovodrun": "processes ranks",
    "torchrun": "tasks processes own",
    **dict.fromkeys(("torch.distributed", "multiproc", "deepspeed", "accelerate"), "processes own"),
    **dict.fromkeys(("jsrun", "aprun", "prun", "blaunch"), "tasks"),
    "pbsdsh": "tasks nodes",
    **dict.fromkeys(("qrsh", "ssh", "clush", "pdsh"), "nodes"),
}


def list_launchers(kind: str) -> tuple[str, ...]:
    """The programs of a kind: tasks, processes, nodes, ranks, library or own."""
    return tuple(name for name, kinds in _KINDS.items() if kind in kinds.split())


def find_launch_program(name: str, family: str = "") -> LaunchProgram:
    """The program of that name; `family` is that of the host's MPI, where it is known."""
    if name in ("mpirun", "mpiexec") and family in OF_FAMILY:
        return OF_FAMILY[family]
    if name not in PROGRAMS:
        raise LaunchRefused(f"kedge does not know the launcher '{name}'", hint=f"it is one of: {', '.join(PROGRAMS)}")
    return PROGRAMS[name]
