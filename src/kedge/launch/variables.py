# SPDX-License-Identifier: BSD-3-Clause
"""Variables of a launch: which the host's MPI leaks into containers, and which must reach the other nodes.

`srun` and Hydra hand on all variables; Open MPI's mpirun hands on none, so that it is told their names.
"""

from __future__ import annotations

from kedge.base.patterns import late_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The host's installation of an MPI, which that of the image cannot use
_LEAKING = {
    *("OPAL_PREFIX", "PMIX_PREFIX", "PMIX_INSTALL_PREFIX", "PRTE_PREFIX", "PRTE_INSTALL_PREFIX"),
    *(f"{part}_MCA_{name}component_path" for part in ("OMPI", "PMIX", "PRTE") for name in ("", "mca_base_")),
    *("MPI_HOME", "MPI_ROOT", "MPI_BIN", "MPI_LIB", "I_MPI_ROOT", "FI_PROVIDER_PATH", "UCX_MODULE_DIR"),
    *("LD_PRELOAD", "LD_AUDIT"),
}
# A node's own, a shell's own, and what schedulers and launchers set for one process
_LOCAL = late_pattern(
    r"_|PWD|OLDPWD|SHLVL|HOSTNAME|HOST|DISPLAY|XAUTHORITY|WINDOWID|TERM|TMPDIR|TMP|TEMP|SSH_.*|DBUS_.*|XDG_.*|LS_COLORS"
    r"|OMPI_.*|PMIX_.*|PMI_.*|PRTE_.*|ORTE_.*|HYDRA_.*|HYDI_.*|MPIEXEC_.*|MPIR_.*|SLURM_.*|SLURMD_.*|SRUN_.*|SBATCH_.*"
    r"|SGE_.*|PE_HOSTFILE|JOB_ID|JOB_NAME|JOB_SCRIPT|QUEUE|REQUEST|RESTARTED|NHOSTS|NQUEUES|NSLOTS|PE|ENVIRONMENT|ARC"
    r"|PBS_.*|FLUX_.*|LSB_.*|LS_JOBPID|MV2_COMM_WORLD_.*|KEDGE_LAUNCH_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
    r"|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|BASH_FUNC_.*"
)
_NAME = late_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
# What makes srun show each task one GPU: LOCAL_RANK counts all GPUs of the node, and NCCL wants to see them
MASKING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND")


def find_leaking(environ: Iterable[str]) -> tuple[str, ...]:
    """Return those of the variables that name the host's MPI, or load code of the host."""
    return tuple(sorted(name for name in environ if _is_leaking(name)))


def _is_leaking(name: str) -> bool:
    """Every rank asks this of all its variables: a pattern would take longer to compile than they are many."""
    return name in _LEAKING or (name.startswith(("OPAL_", "PRTE_")) and name.endswith("DIR"))


def list_handed_on(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that ranks on all nodes get: the user's, not those of this node, shell or launcher."""
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if _NAME.fullmatch(name) and not _LOCAL.fullmatch(name) and not _is_leaking(name) and "\n" not in value
        )
    )
