# SPDX-License-Identifier: BSD-3-Clause
"""The programs that start ranks by name: those that kedge drives, and those that it knows in others' scripts."""

from __future__ import annotations

from kedge.cluster.launchers.hydra import HYDRA
from kedge.cluster.launchers.ibrun import IBRUN
from kedge.cluster.launchers.intel import INTEL
from kedge.cluster.launchers.open_mpi import OPEN_MPI
from kedge.cluster.launchers.own import LOCAL, QRSH
from kedge.cluster.launchers.program import LaunchProgram
from kedge.cluster.launchers.srun import SRUN
from kedge.errors import LaunchRefused

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
