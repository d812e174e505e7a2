# SPDX-License-Identifier: BSD-3-Clause
"""The page for any Slurm cluster, walked through on one that kedge asks for its profile: docs/sites/nvidia-slurm.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.slurm_cluster import SlurmCluster
from tests.tutorials.internet import PASSWORD, USERNAME, Internet
from tests.tutorials.lessons import Expect
from tests.tutorials.nvidia_files import DEVELOPED, TEXTS
from tests.tutorials.site_images import STARTER, TRAINING
from tests.tutorials.test_nvidia import serve_images
from tests.tutorials.walks import FILE, OWN_HOST, Place, Walk, Walker, expect_job, make_walker

_NODE = r"<ready \w+@gpu0\d>"
_GIVEN = "echo $SLURM_JOB_PARTITION $SLURM_CPUS_PER_TASK $CUDA_VISIBLE_DEVICES"
_IMPORT = "python -c 'import lightning; print(lightning.VERSION)'"
_ROOT = r"root@\S+:\S*# |Apptainer> "
_RATE = "2048 float64 .* GFLOP/s"
_DATA = "/scratch/nvidia-page"
_CUDA = "docker://nvcr.io/nvidia/cuda:12.4.1-devel-ubuntu22.04"
# each task says who it is by Slurm's variables, which Lightning reads
_LIGHTNING = """\
import os, socket
print("task", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_NTASKS"], "on", socket.gethostname())
"""
_NCCL = 'echo "rank ${PMI_RANK:-$SLURM_PROCID} of ${PMI_SIZE:-$SLURM_NTASKS} on $(hostname) has no GPU for $*"'
_RANKS = r"(?=[\s\S]*rank 0 of 2 on gpu01 has)(?=[\s\S]*rank 1 of 2 on gpu02 has)"
_TASKS = "".join(rf"(?=[\s\S]*task {task} of 4 on gpu0{task // 2 + 1}\b)" for task in range(4))
_DDP = expect_job(r"trained on 0 pictures \(0 bytes\) by 4 on gpu01\+gpu02; GPUs 0,1\b")
_NBODY = Expect(then="kedge exec nbody.sif nbody 1", then_says="nbody 1: a stand-in")
_LIGHTNING_IMAGE = Expect(then="kedge exec lightning.sif pip list", then_says=r"(?m)^lightning +2\.5")
WALK = Walk(
    "nvidia-slurm",
    {
        **OWN_HOST,
        "kedge site init": Expect(says=r"wrote|Wrote"),
        "kedge config set": Expect(then="kedge config get scratch_directory", then_says=_DATA),
        "kedge site show": Expect(says=r"gpu [\s\S]*interactive"),
        "kedge alloc --queue gpu --gpus 1 --cpus-per-task 16": Expect(says=_NODE, then=_GIVEN, then_says="gpu 16 0"),
        "kedge exec --nv docker": Expect(says="NVIDIA-SMI"),
        "mkdir tried": Expect(),
        "kedge shell --fakeroot --record --overlay tried": Expect(says=_ROOT, then="id -u", then_says="(?m)^0$"),
        "apt-get": Expect(says="libglu1-mesa-dev curl: installs nothing"),
        "curl": Expect(then="ls", then_says="cuda-samples"),
        "cd cuda-samples": Expect(then="nbody", then_says="a stand-in for the sample"),
        "exit": Expect(says=_NODE),
        "kedge commit": Expect(says="apt-get install -y"),
        "kedge build nbody.sif": _NBODY,
        "kedge exec --nv nbody.sif": Expect(says="nbody .*: a stand-in for the sample"),
        "kedge build --protect": _LIGHTNING_IMAGE,
        "kedge exec lightning.sif python": Expect(
            before=("tar -xzf python_dev.tar.gz",), then="ls env", then_says="pyvenv.cfg"
        ),
        "kedge exec lightning.sif env": Expect(says="Successfully installed pt.bench"),
        "kedge exec --nv lightning.sif env": Expect(says="loaded pt_bench from .*/python_dev/pt_bench", leaves=1),
        "kedge submit --mpi": expect_job(_RANKS),
        "kedge submit --torchrun": _DDP,
        "kedge submit --each-task": expect_job(_TASKS),
        "kedge status": Expect(says=r"completed on gpu\[01-02\]"),
        "kedge logs": Expect(says=_TASKS),
        "kedge alloc --queue gpu --gpus 1 --time 30m": Expect(says=_NODE),
        "kedge bench matmul --output outside": Expect(before=("export PYTHONPATH=${KEDGE_BIND%%:*}",), says=_RATE),
        "kedge bench matmul --output inside": Expect(before=("unset PYTHONPATH",), says=_RATE),
        "kedge bench compare": Expect(says=r"MATMUL +FIRST +SECOND", leaves=1),
        # the tutorial's cluster
        "kedge alloc --gpus 1 --cpus-per-task 16": Expect(
            before=("export KEDGE_SITE=nvidia",), says=_NODE, then=_GIVEN, then_says="interactive 16 0", leaves=1
        ),
        "kedge alloc --gpus 1 --cpus-per-task 16 --time 3h lightning.sif": Expect(
            says="Apptainer> ",
            then="python -c 'import lightning; print(lightning.VERSION)'",
            then_says=r"2\.5",
            leaves=1,
        ),
        "kedge submit --wait --mpi --nodes 2 --tasks 2 --gpus": Expect(says="completed"),
        ("kedge logs", 1): Expect(says=_RANKS),
        "kedge submit --wait --mpi --nodes 2 --tasks 2 --mem": Expect(then="kedge logs", then_says=_RANKS),
        "kedge build nbody.sif Definition.nbody ": replace(_NBODY, before=("rm nbody.sif",)),
        "kedge build -t": Expect(
            before=(f"echo {PASSWORD} | kedge registry login -u {USERNAME} --password-stdin docker.io",),
            says=r"push \w+: [\s\S]* steps, ",
        ),
        "kedge image list": Expect(says="nbody +efficient|nbody:efficient"),
        "kedge image size": Expect(says=r"/usr/lib|usr/"),
        "mkdir DIR && kedge shell": Expect(
            before=(f"kedge pull cuda.sif {_CUDA}",),
            says=_ROOT,
            then="apt-get install -y vim",
            then_says="installs",
            leaves=1,
        ),
        "kedge commit --recipe DIR": Expect(says="apt-get install -y vim"),
        ("kedge build --protect", 1): replace(_LIGHTNING_IMAGE, before=("rm lightning.sif",)),
        "kedge script check": Expect(says="write SLURM_NODEID"),
    },
    fills={"kedge-x86_64": FILE, "CLUSTER": "cluster"},
)


def write_files(walker: Walker) -> None:
    """What the tutorial has its readers download."""
    for name, text in TEXTS.items():
        walker.there.write(name, text, 0o644)
    walker.there.write("ptl_ddp_example.py", _LIGHTNING)
    walker.there.write("pt_ddp_example.py", TRAINING.decode())
    (walker.there.folder / "python_dev.tar.gz").write_bytes(DEVELOPED)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("big_disks")
def test_nvidia_page(slurm_lessons: SlurmCluster, slurm_internet: Internet, tmp_path: Path) -> None:
    hosts = slurm_lessons.hosts
    assert hosts is not None
    user = slurm_lessons.user("bob")
    place = Place("nvidia", name="cluster")
    walker = make_walker(user, slurm_internet, place, hosts.local_disk, USER="bob", MYDATA=_DATA, HUB_USER=USERNAME)
    walker.there.write(f"{slurm_lessons.folder}{_DATA}/a-file", "")
    write_files(walker)
    starter = f"exec python3 - \"$@\" <<'END'\n{STARTER.decode()}\nEND"
    serve_images(walker.there, slurm_internet, tmp_path, torchrun=starter, all_reduce_perf_mpi=_NCCL)
    walker.follow(WALK)
