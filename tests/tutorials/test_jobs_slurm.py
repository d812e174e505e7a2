# SPDX-License-Identifier: BSD-3-Clause
"""What kedge does for jobs of ZIH, SDumont and TACC beyond the commands of their pages, on a real Slurm."""

from __future__ import annotations

import os

import pytest

from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.images import make_config
from tests.cluster.job_user import JobUser
from tests.cluster.slurm_cluster import SlurmCluster
from tests.fakes.registry import FakeRegistry
from tests.tutorials.job_reader import add_image, add_pytorch_image, make_reader
from tests.tutorials.stand_ins import IBRUN

RESNET = "/workspace/examples/resnet50v1.5"
STARTER = "python -m torch.distributed.run"
TACC_SCRIPT = """\
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
MODULE = 'module() { [ "$1" = load ]; }\n'


@pytest.fixture
def zih(slurm_lessons: SlurmCluster) -> JobUser:
    me = make_reader(slurm_lessons, "zih-taurus")
    add_pytorch_image(me, "pytorch:21.06-py3", "21.06-py3")
    return me


def test_zih_image_of_before_torchrun_is_looked_into(zih: JobUser) -> None:
    """21.06 has PyTorch 1.9, and the program torchrun came with 1.10."""
    words = ("--torchrun", "-p", "alpha", "--gpus", "8", "-t", "8h", "pytorch:21.06-py3", f"{RESNET}/main.py")
    done = zih.run("submit", "--dry-run", *words)
    assert f"{STARTER} starts the processes of each node: PyTorch 1.9.0a0+c3d40fd of the image has no" in done.stderr


def test_zih_two_nodes_are_possible(zih: JobUser) -> None:
    words = ("--torchrun", "--nodes", "2", "-p", "alpha", "--gpus", "8", "-t", "8h", "pytorch:21.06-py3", "main.py")
    said = zih.run_job(*words)
    assert "torchrun" not in said
    first, second = sorted(line for line in said.splitlines() if line.startswith("python"))
    assert first.startswith(f"{STARTER} --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=gpu01")
    assert first.endswith("on gpu01")
    assert "--node_rank=1 --master_addr=gpu01" in second
    assert second.endswith("on gpu02")


def test_sdumont_pulls_inside_the_job(slurm: SlurmCluster) -> None:
    """On nodes that share this machine's network, where the registry is."""
    me = make_reader(slurm, "sdumont")
    me = me.with_environment(SCRATCH=str(me.folder))
    programs = [build.folder("bin"), build.file("bin/busybox", read_busybox(), mode=0o755)]
    tar = build.layer(*programs, build.symlink("bin/sh", "busybox"), build.symlink("bin/echo", "busybox"))
    with FakeRegistry() as registry:
        digest = registry.add_image("nvidia/pytorch", "22.03-py3", [build.compress(tar)], make_config([tar], {}))
        image = f"docker://{registry.host}/nvidia/pytorch:22.03-py3"
        command = ("-t", "20m", image, "sh", "-c", "echo trained")
        done = me.run("submit", "--queue", "sequana_cpu_dev", "--directive=--partition=gpu", *command)
        assert done.returncode == 0, done.stderr
        assert "The job will pull" in done.stderr
        assert "SDumont kill" in done.stderr, "and why"
        assert not registry.server.seen("/blobs/"), "nothing on the login node but what the tag means"
        id = done.stdout.strip()
        me.wait(id)
        assert me.read("logs", id).splitlines()[-1] == "trained"
        assert registry.server.log
        [pulled] = (me.folder / "kedge/images").rglob("*.sif")
        assert pulled.name == f"pytorch_22.03-py3@{digest.hex[:12]}.sif", "the tag, and what it meant at submission"


def test_tacc_batch_script_becomes_a_description(slurm_tacc: SlurmCluster) -> None:
    """In $SCRATCH, with TACC's commands and an image whose entry point sets MPI up."""
    me = make_reader(slurm_tacc, "tacc-frontera")
    add_image(me, "pi-estimator_0.1-mpi.sif", "pi-mpi.py", runscript='MPI_IS_SET_UP=1; export MPI_IS_SET_UP; exec "$@"')
    texts = {"bin/ibrun": IBRUN, "module.sh": MODULE, "pi-mpi.sbatch": TACC_SCRIPT}
    module = {name: me.write(name, text) for name, text in texts.items()}["module.sh"]
    os.chown(me.folder / "bin", me.user.uid, me.user.uid)
    path = f"{me.folder}/bin:/usr/bin:/bin"
    me = me.with_environment(SCRATCH=str(me.folder), BASH_ENV=str(module), PATH=path)
    assert me.run("script", "check", "pi-mpi.sbatch").returncode == 0
    made = me.read("script", "convert", "pi-mpi.sbatch")
    for line in ('queue = "rtx"', "tasks = 8", 'reservation = "Containers-Fall24"', 'parallel = "mpi"'):
        assert line in made
    me.write("kedge.toml", made.replace('reservation = "Containers-Fall24"', ""))
    lines = [line for line in me.run_job().splitlines() if line.startswith("pi by")]
    assert sorted(lines) == [f"pi by rank {rank} of 8, 10000000 samples, set up" for rank in range(8)]
