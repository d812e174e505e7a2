# SPDX-License-Identifier: BSD-3-Clause
"""What the tutorials' readers have: images with the programs that they name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.builders.containers import give_to, make_sandbox
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.stand_ins import CONDA_PATH, list_pytorch_files

# each says how it was called: its words, and where it is
PROGRAMS = {
    "pi-mpi.py": 'echo "pi by rank ${PMI_RANK:-$SLURM_PROCID} of $SLURM_NTASKS, $1 samples${MPI_IS_SET_UP:+, set up}"',
    "python": """\
case "$*" in "-m torch.distributed"*) echo "python $*; $MASTER_ADDR:$MASTER_PORT on $(hostname)"; exit ;; esac
echo "python $*; GPUs ${CUDA_VISIBLE_DEVICES:-none}; CPUs ${SLURM_CPUS_PER_TASK:-1}\"""",
}


def make_reader(cluster: SlurmCluster | GridEngineCell, site: str, **variables: str) -> JobUser:
    """A user who reads the tutorial of a site."""
    return replace(make_job_user(cluster, KEDGE_SITE=site, **variables), site=site)


def add_image(me: JobUser, name: str, *programs: str, runscript: str = 'exec "$@"') -> None:
    """An image with Python and these programs of the tutorials; a directory is taken whatever processors nodes have."""
    folder = make_sandbox(me.folder / name, runscript=runscript)
    for program in ("python", *programs):
        add_program(folder / "bin" / program)
    give_to(me.user, folder)


def add_pytorch_image(me: JobUser, name: str, tag: str) -> None:
    """NVIDIA's PyTorch of a tag from before torchrun: with its Python, its launchers and its examples."""
    folder = make_sandbox(me.folder / name, runscript='exec "$@"', environment=f"export PATH={CONDA_PATH}")
    for path, data in list_pytorch_files(tag).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "opt/conda/bin").mkdir(parents=True)
    add_program(folder / "opt/conda/bin/python")
    give_to(me.user, folder)


def add_program(path: Path) -> None:
    """The program of that name."""
    path.write_text(f"#!/bin/sh\n{PROGRAMS[path.name]}\n")
    path.chmod(0o755)
