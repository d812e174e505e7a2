# SPDX-License-Identifier: BSD-3-Clause
"""The names by which launchers tell a process which rank it is. Text alone: every start of a container reads it."""

from __future__ import annotations

# What kedge sets where it is the launcher itself, on one machine and with `qrsh -inherit`: the rank, how many there
# are, both within the node, the node, and how many of those there are.
OWN_PREFIX = "KEDGE_LAUNCH_"
OWN = tuple(f"{OWN_PREFIX}{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK", "NODE_COUNT"))
OWN_LAUNCH = f"{OWN_PREFIX}ID"  # one name for all ranks of a launch, whatever started them
# What stands before lines that a rank says to the launch, and not to the user. Command lines are everybody's to read,
# variables are not; the rank's program does not get it.
OWN_TOKEN = f"{OWN_PREFIX}TOKEN"

# The variables by which launchers tell a process which rank it is: kedge, Open MPI, MPICH, MVAPICH, Cray, Slurm, Flux
RANKS = (
    OWN[0],
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
    "FLUX_TASK_RANK",
)
LOCAL_RANKS = (
    OWN[2],
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PMI_LOCAL_RANK",
    "SLURM_LOCALID",
    "FLUX_TASK_LOCAL_ID",
)
HYDRA = "MPI_LOCALRANKID"  # MPICH, Intel MPI: nothing names the launch, but one proxy per node starts all ranks
# How many ranks there are: Open MPI and jsrun; MPICH, Intel MPI, Slurm's pmi2; MVAPICH
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")
PMIX = ("PMIX_RANK", "SLURM_STEP_NUM_TASKS")  # srun --mpi=pmix: PMIx names the rank, and Slurm counts
# How many ranks are on this node: kedge, Open MPI and jsrun, MPICH and Intel MPI, MVAPICH, HPE Cray
LOCAL_SIZES = (OWN[3], "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_LOCAL_SIZE")
# One of these is in the environment of every rank that a launcher counted
COUNTED = (*LOCAL_SIZES, "SLURM_STEP_TASKS_PER_NODE", "FLUX_JOB_SIZE")
# Launchers that name the launch itself. It is known below wrapper scripts too, where the parent tells nothing.
# The names that also stand alone, without a scheduler: kedge; Open MPI 5, PRRTE, srun --mpi=pmix, jsrun; Open MPI to 4
LAUNCH_NAMES = (OWN_LAUNCH, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
LAUNCHES = (
    *((name,) for name in LAUNCH_NAMES),
    ("PALS_APID",),  # HPE Cray
    ("ALPS_APP_ID",),  # Cray XC
    ("FLUX_JOB_ID", "FLUX_TASK_RANK"),
    ("SLURM_JOB_ID", "SLURM_STEP_ID"),
)
PER_TASK = ("FLUX_TASK_RANK",)  # says that a launcher started us, and is another in each rank
