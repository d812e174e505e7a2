# SPDX-License-Identifier: BSD-3-Clause
"""The job part of TACC's tutorial, typed with kedge on a real Slurm that refuses what TACC refuses.

`idev` and `ibrun` are TACC's own; here are programs of these names that do the same by salloc and srun.
"""

from __future__ import annotations

import os

import pytest

from tests.cluster.job_user import JobUser
from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.job_reader import add_image, make_reader, type_at_terminal
from tests.tutorials.stand_ins import IBRUN, IDEV

IDEV_REQUEST = ("alloc", "--queue", "rtx", "--nodes", "1", "--tasks", "8", "--time", "60m")
MODULE = 'module() { [ "$1" = load ] && shift && echo "loaded $*" >> "$MODULE_LOG"; }\n'
BATCH = """\
#!/bin/bash

#SBATCH -J calculate-pi-mpi                  # Job name
#SBATCH -o calculate-pi-mpi.%j               # Name of stdout output file (%j expands to jobId)
#SBATCH -p rtx                               # Queue name
#SBATCH -N 1                                 # Total number of nodes requested (56 cores/node)
#SBATCH -n 8                                 # Total number of mpi tasks requested
#SBATCH -t 00:10:00                          # Run time (hh:mm:ss)
#SBATCH --reservation Containers-Fall24      # a reservation only active during the training

module load tacc-apptainer
cd $SCRATCH
ibrun apptainer run pi-estimator_0.1-mpi.sif pi-mpi.py 10000000
"""
DESCRIPTION = """\
[job]
name = "calculate-pi-mpi"
image = "pi-estimator_0.1-mpi.sif"
command = "/.singularity.d/runscript pi-mpi.py 10000000"
parallel = "mpi"
queue = "rtx"
nodes = 1
tasks = 8
time = "10m"
output = "{name}.{id}"
"""


@pytest.fixture
def tacc(slurm_tacc: SlurmCluster) -> JobUser:
    """A user in $SCRATCH, with TACC's commands and an image whose entry point sets MPI up."""
    me = make_reader(slurm_tacc, "tacc-frontera")
    entry = 'MPI_IS_SET_UP=1; export MPI_IS_SET_UP; exec "$@"'
    add_image(me, "pi-estimator_0.1-mpi.sif", "pi-mpi.py", runscript=entry)
    me.write("bin/idev", IDEV)
    me.write("bin/ibrun", IBRUN)
    me.write("module.sh", MODULE)
    for folder in (me.folder / "bin", me.folder):
        os.chown(folder, me.user.uid, me.user.uid)
    path = f"{me.folder}/bin:/usr/bin:/bin"
    return me.with_environment(
        SCRATCH=str(me.folder), BASH_ENV=str(me.folder / "module.sh"), PATH=path, MODULE_LOG=str(me.folder / "log")
    )


def test_tacc_idev_says_what_to_type_for_the_container(tacc: JobUser) -> None:
    done = type_at_terminal(tacc, *IDEV_REQUEST, "pi-estimator_0.1-mpi.sif", typed="exit\n")
    [line] = [line for line in done.stdout.splitlines() if "Type this on the compute node" in line]
    shown = line.partition("node: ")[2].strip()
    assert " shell " in shown
    assert shown.endswith("pi-estimator_0.1-mpi.sif")


def test_tacc_reservation_is_asked_for(tacc: JobUser) -> None:
    tacc.write("kedge.toml", DESCRIPTION)
    assert "#SBATCH --reservation=Containers-Fall24\n" in tacc.read(
        "submit", "--dry-run", "--reservation", "Containers-Fall24"
    )
    done = tacc.run("submit", "--reservation", "Containers-Fall24")
    assert done.returncode == 72, "the training is over"
    assert "reservation is invalid" in done.stderr
    assert "hint: 'scontrol show reservation' lists them" in done.stderr


def test_tacc_gpus_come_with_the_queue(tacc: JobUser) -> None:
    id = tacc.submit(
        "--queue", "rtx", "--gpus", "4", "--time", "60m", "pi-estimator_0.1-mpi.sif", "python", "tf_test.py"
    )
    tacc.wait(id)
    assert "python tf_test.py" in tacc.read("logs", id)
    done = tacc.run("submit", "--queue", "rtx", "--gpus", "8", "--time", "60m", "-", "true")
    assert done.returncode == 71
    assert "--nodes 2" in done.stderr
    done = tacc.run("submit", "--queue", "rtx", "-", "true")
    assert done.returncode == 71, "the time must be said"
    assert "--time" in done.stderr


def test_tacc_batch_script_becomes_a_description(tacc: JobUser) -> None:
    tacc.write("pi-mpi.sbatch", BATCH)
    assert tacc.run("script", "check", "pi-mpi.sbatch").returncode == 0
    made = tacc.read("script", "convert", "pi-mpi.sbatch")
    for line in ('queue = "rtx"', "tasks = 8", 'reservation = "Containers-Fall24"', 'parallel = "mpi"'):
        assert line in made
    tacc.write("kedge.toml", made.replace('reservation = "Containers-Fall24"', ""))
    id = tacc.submit()
    tacc.wait(id)
    lines = [line for line in tacc.read("logs", id).splitlines() if line.startswith("pi by")]
    assert sorted(lines) == [f"pi by rank {rank} of 8, 10000000 samples, set up" for rank in range(8)]
