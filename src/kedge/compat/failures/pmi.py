# SPDX-License-Identifier: BSD-3-Clause
"""How ranks find each other when they start: PMI and PMIx between a launcher and the MPI of an image."""

from __future__ import annotations

from kedge.compat.failures.failure import LIKELY, NOTE, POSSIBLE, Failure

_CHECK = "'kedge mpi check IMAGE' says which launcher and --mpi go with the image"

PMI = (
    Failure(
        "no-slurm-pmi",
        r"OMPI was not built with SLURM.?s PMI support|no PMI support .{0,60}direct launch",
        cause="the Open MPI of the image speaks PMIx, and srun started it without: with --mpi=none or --mpi=pmi2",
        remedy=f"srun --mpi=pmix ('srun --mpi=list' shows whether this cluster has it), or 'kedge launch'; {_CHECK}",
        source="Open MPI 4.1.4 under srun --mpi=pmi2 and --mpi=none",
        examples=(
            'The application appears to have been direct launched using "srun",\n'
            "but OMPI was not built with SLURM's PMI support and therefore cannot\n"
            "execute. There are several options for building PMI support under\n"
            "SLURM, depending upon the SLURM version you are using:",
        ),
    ),
    Failure(
        "pmix-unreachable",
        r"OPAL ERROR: Unreachable in file (?:ext3x|pmix\w*)_client\.c|PMIX TEMPORARILY UNAVAILABLE"
        r"|PMIX ERROR: (?:UNREACHABLE|ERR-UNREACH|NOT-SUPPORTED) in file",
        cause="the MPI of the image cannot reach the launcher's PMIx server: the launcher offers none, its "
        "version does "
        "not go with the image's, or its socket directory is not in the container",
        remedy=f"use srun --mpi=pmix, or 'kedge launch', which binds the directory; {_CHECK}; between versions "
        "PMIX_MCA_gds=hash and PMIX_MCA_psec=native help",
        source="https://github.com/apptainer/singularity/issues/5203; Open MPI 4.1.4 under srun --mpi=pmi2",
        examples=(
            "[gpu01:01234] OPAL ERROR: Unreachable in file ext3x_client.c at line 112",
            "[n1:00042] PMIX ERROR: PMIX TEMPORARILY UNAVAILABLE in file ptl_tcp.c at line 688",
            "[n1:00042] OPAL ERROR: Unreachable in file pmix2x_client.c at line 109",
        ),
    ),
    Failure(
        "pmix-shared-data",
        r"PMIX ERROR: [\w-]+ in file (?:gds_ds\w*|\S*dstore\w*)\.c|PMIX ERROR: (?:ERROR|OUT-OF-RESOURCE"
        r"|NOT-FOUND) in file "
        r"\S*(?:dstore|gds|ptl)\w*\.c",
        cause="the PMIx of the image and that of the launcher cannot share their data: their versions differ, or the "
        "launcher's directory is not in the container",
        remedy="set PMIX_MCA_gds=hash before the launch, or use 'kedge launch', which does",
        source="https://github.com/hpc/charliecloud/issues/866",
        examples=(
            "[n1:00042] PMIX ERROR: OUT-OF-RESOURCE in file gds_dstore.c at line 1045",
            "[cn12:21441] PMIX ERROR: ERROR in file gds_ds12_lock_pthread.c at line 168",
        ),
        sure=LIKELY,
    ),
    Failure(
        "pmix-unpack",
        r"UNPACK-PMIX-VALUE: UNSUPPORTED TYPE \d+|PMIX ERROR: \S+ in file \S*bfrop_base_unpack\.c",
        cause="the PMIx of the image and that of the launcher are of different versions; this alone does no harm",
        remedy=f"look for another error; if there is none, set PMIX_MCA_gds=hash; {_CHECK}",
        source="https://github.com/open-mpi/ompi/issues/12146",
        examples=(
            "[nid001:12] UNPACK-PMIX-VALUE: UNSUPPORTED TYPE 104",
            "[nid001:12] PMIX ERROR: OUT-OF-RESOURCE in file base/bfrop_base_unpack.c at line 750",
        ),
        level=NOTE,
    ),
    Failure(
        "mpi-type",
        r"Invalid MPI type '([\w./-]{1,40})'|Couldn't find the specified plugin name for mpi/(\w+)|cannot find "
        r"mpi plugin for "
        r"(?:type )?mpi/(\w+)",
        cause="this cluster's Slurm has no --mpi={1}",
        remedy=f"'srun --mpi=list' shows what it has; {_CHECK}",
        source="srun 22.05 with --mpi=nosuch",
        examples=(
            "srun: error: Couldn't find the specified plugin name for mpi/nosuch looking at all files",
            "srun: error: cannot find mpi plugin for mpi/nosuch",
            "srun: error: Invalid MPI type 'nosuch', --mpi=list for acceptable types",
        ),
    ),
    Failure(
        "pmix-plugin",
        r"can not load PMIx library|mpi/pmix: (?:error|ERROR): .{0,80}pmixp_|pmixp_mkdir\b",
        cause="the PMIx plugin of Slurm does not work on that node: it is not installed, or libpmix is missing there",
        remedy="'srun --mpi=list' shows what works; tell the administrators; until then use an image with MPICH and "
        "--mpi=pmi2",
        source="Slurm 22.05 without libpmix",
        examples=(
            "slurmd: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:197: pmi/pmix: can not load PMIx library",
        ),
    ),
    Failure(
        "singletons",
        r"^[^\n]{0,80}\b(?:rank|process|processor|task|worker|myid)\b[ :=]{0,3}0 ?(?:of|out of|/) ?1"
        r"(?: (?:process(?:es|ors)?|ranks?|tasks?))?[.!]?$",
        cause="every process is rank 0 of 1: the ranks did not find each other, so each did the whole work alone; "
        "results are wrong even where the exit code is 0",
        remedy=f"the launcher and the MPI of the image do not go together: use 'kedge launch', which checks it "
        "before "
        f"the program starts; {_CHECK}",
        source="MPICH 4.0.2 under srun --mpi=pmix, and under Open MPI's mpirun",
        examples=("rank 0 of 1\nrank 0 of 1", "Hello world from processor vm, rank 0 out of 1 processors\n" * 2),
        sure=LIKELY,
        least=2,
    ),
    Failure(
        "pmi-library",
        r"PMI2?_Init failed|PMIU_parse_keyvals|pmi_(?:version|init).{0,40}(?:failed|mismatch)|I_MPI_PMI_LIBRARY"
        r"|MPIR_pmi_init\(\d+\)|unable to open PMI library|PMI_Get_appnum failed",
        cause="the MPI of the image could not talk to the launcher by PMI",
        remedy=f"MPICH needs srun --mpi=pmi2; Intel MPI needs I_MPI_PMI_LIBRARY with the path of Slurm's libpmi2.so, "
        f"which must be in the container: --bind; {_CHECK}",
        source="workflow facts: MPI and containers; MPICH, Intel MPI",
        examples=(
            "MPIR_pmi_init(192)..............: PMI2_Init failed",
            "MPI startup(): I_MPI_PMI_LIBRARY environment variable is not supported for the process manager in use",
        ),
        sure=POSSIBLE,
        unless=r"Warning: I_MPI_PMI_LIBRARY will be ignored",
    ),
)
