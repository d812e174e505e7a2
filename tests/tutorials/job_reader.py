# SPDX-License-Identifier: BSD-3-Clause
"""What the tutorials' readers have: images with the programs that they name, and a terminal to type at."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

from tests.builders.containers import give_to, make_sandbox
from tests.cluster.gridengine_cell import GridEngineCell
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.stand_ins import CONDA_PATH, list_pytorch_files

SPAWN = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
# each says how it was called: its words, and where it is
PROGRAMS = {
    "torchrun": 'echo "torchrun $*; $MASTER_ADDR:$MASTER_PORT on $(hostname)"',
    "all_reduce_perf_mpi": 'echo "rank $PMI_RANK of $PMI_SIZE on $(hostname): $*"',
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


def type_at_terminal(me: JobUser, *words: str, typed: str = "", pause: float = 0.0) -> subprocess.CompletedProcess[str]:
    """A verb on a terminal of its own; `typed` is what its user types after a pause, whatever comes first."""
    argv = ["python3", "-c", SPAWN, *me.user.argv(*words)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, env=me.user.variables(), cwd=me.folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        time.sleep(pause)
        output, errors = process.communicate(typed, timeout=120)
    return subprocess.CompletedProcess(argv, process.returncode, output, errors)
