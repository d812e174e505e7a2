# SPDX-License-Identifier: BSD-3-Clause
"""Variables of a launch: which the host's MPI leaks into containers, and which must reach the other nodes.

`srun` and Hydra hand on all variables; Open MPI's mpirun hands on none, so that it is told their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# The host's installation of an MPI, which that of the image cannot use
_LEAKING = re.compile(
    r"OPAL_(PREFIX|.*DIR)|(PMIX|PRTE)_(INSTALL_)?PREFIX|PRTE_.*DIR"
    r"|(OMPI|PMIX|PRTE)_MCA_(mca_base_)?component_path|OMPI_MCA_mca_base_component_path"
    r"|MPI_(HOME|ROOT|BIN|LIB)|I_MPI_ROOT|FI_PROVIDER_PATH|UCX_MODULE_DIR|LD_PRELOAD|LD_AUDIT"
)
# A node's own, a shell's own, and what schedulers and launchers set for one process
_LOCAL = re.compile(
    r"_|PWD|OLDPWD|SHLVL|HOSTNAME|HOST|DISPLAY|XAUTHORITY|WINDOWID|TERM|TMPDIR|TMP|TEMP|SSH_.*|DBUS_.*|XDG_.*|LS_COLORS"
    r"|OMPI_.*|PMIX_.*|PMI_.*|PRTE_.*|ORTE_.*|HYDRA_.*|HYDI_.*|MPIEXEC_.*|MPIR_.*|SLURM_.*|SLURMD_.*|SRUN_.*|SBATCH_.*"
    r"|SGE_.*|PE_HOSTFILE|JOB_ID|JOB_NAME|JOB_SCRIPT|QUEUE|REQUEST|RESTARTED|NHOSTS|NQUEUES|NSLOTS|PE|ENVIRONMENT|ARC"
    r"|PBS_.*|FLUX_.*|LSB_.*|LS_JOBPID|MV2_COMM_WORLD_.*|KEDGE_LAUNCH_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
    r"|GPU_DEVICE_ORDINAL|ZE_AFFINITY_MASK|BASH_FUNC_.*"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What makes srun show each task one GPU: LOCAL_RANK counts all GPUs of the node, and NCCL wants to see them
MASKING = ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND")


def find_leaking(environ: Iterable[str]) -> tuple[str, ...]:
    """Those of the variables that name the host's MPI, or load code of the host."""
    return tuple(sorted(name for name in environ if _LEAKING.fullmatch(name)))


def list_handed_on(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that ranks on all nodes get: the user's, not those of this node, shell or launcher."""
    return tuple(
        sorted(
            name
            for name, value in environ.items()
            if _NAME.fullmatch(name)
            and not _LOCAL.fullmatch(name)
            and not _LEAKING.fullmatch(name)
            and "\n" not in value
        )
    )
