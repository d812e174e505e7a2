# SPDX-License-Identifier: BSD-3-Clause
"""Jobs of several nodes and of sites with rules of their own: torchrun, MPI, ibrun, on a real Slurm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.requirements import require_program
from tests.wording import assert_says

TORCHRUN = """\
#!/bin/sh
echo "$(hostname) $CUDA_VISIBLE_DEVICES: $*"
"""
IBRUN = """\
#!/bin/sh
exec srun "$@"
"""
PROFILE = 'title = "two hosts"\nscheduler = "slurm"\nmpi_type = "pmi2"\n'
RING = Path(__file__).parent.parent / "interop/mpi_ring.c"


@pytest.fixture
def me(slurm_hosts: SlurmCluster) -> JobUser:
    user = make_job_user(slurm_hosts)
    return user.with_environment(PATH=f"{user.folder}/bin:/usr/bin:/bin")


@pytest.mark.parametrize("is_inside", [False, True])
def test_torchrun_is_started_on_every_node_with_one_master(me: JobUser, is_inside: bool) -> None:
    program = me.write("bin/torchrun", TORCHRUN)
    image = "-"
    if is_inside:
        image = me.take_tools("torch.sif")
    options = ("--torchrun", "-N", "2", "-G", "2", "-B", f"{program}:/usr/local/bin/torchrun", "-t", "5m")
    arguments = ("train.py", "--rate", "it's $1")
    shown = me.run_job(*options, image, *arguments)
    lines = sorted(line for line in shown.splitlines() if line.startswith("gpu"))
    assert len(lines) == 2, shown
    for rank, line in enumerate(lines):
        found = re.fullmatch(
            rf"gpu0{rank + 1} 0,1: --nnodes=2 --nproc_per_node=2 --node_rank={rank} "
            r"--master_addr=gpu01 --master_port=(\d+) train.py --rate it's \$1",
            line,
        )
        assert found, line
        assert 20_000 <= int(found[1]) < 32_000
    assert len(set(re.findall(r"port=(\d+)", shown))) == 1


def test_torchrun_on_one_node_stands_alone(me: JobUser) -> None:
    me.write("bin/torchrun", TORCHRUN)
    assert (
        me.run_job("--torchrun", "-G", "3", "-", "train.py")
        == "gpu01 0,1,2: --standalone --nproc_per_node=3 train.py\n"
    )


def run_ring(me: JobUser, *words: str) -> None:
    me.write("config/kedge/sites/here.toml", PROFILE)
    me = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"), KEDGE_SITE="here")
    shown = me.run_job("--mpi", "-N", "2", "--tasks-per-node", "2", "-t", "5m", *words)
    ranks = re.findall(r"rank (\d+) of (\d+) .* ring (\w+)", shown)
    assert sorted(ranks) == [(str(rank), "4", "ok") for rank in range(4)], shown
    wanted = "launch --site here --mpi" if words[0] != "-" else "srun --mpi=pmi2"
    assert wanted in Path(me.tell("status", "last")["script"]).read_text()


def make_ring(me: JobUser) -> str:
    me.user.read_program(require_program("mpicc.mpich"), str(RING), "-o", str(me.folder / "ring"))
    return str(me.folder / "ring")


def test_mpi_has_a_world_over_two_hosts(me: JobUser) -> None:
    run_ring(me, "-", make_ring(me))


def test_mpi_has_a_world_of_containers_on_two_nodes(slurm: SlurmCluster) -> None:
    """Not on virtual hosts: UCX takes hosts that share a kernel for one, and containers on two share no memory."""
    me = make_job_user(slurm)
    ring = make_ring(me)
    me.read("pull", "ring.sif", f"host:{ring}")
    run_ring(me, "ring.sif", ring)


def test_tacc_takes_what_its_profile_writes(slurm_tacc: SlurmCluster) -> None:
    me = make_job_user(slurm_tacc)
    me.write("bin/ibrun", IBRUN)
    me = me.with_environment(PATH=f"{me.folder}/bin:/usr/bin:/bin", SCRATCH=str(me.folder))
    words = ("-N", "2", "-n", "4", "-t", "10m", "-p", "gpu-a100", "-G", "3", "--mem", "1G")
    show = ("-", "sh", "-c", 'echo "rank $SLURM_PROCID"')
    site = me.with_environment(KEDGE_SITE="tacc-lonestar6")
    id = site.submit(*words, "--mpi", *show)
    site.read("wait", id)
    assert sorted(site.read("logs", id).split()) == ["0", "1", "2", "3", *["rank"] * 4]
    script = Path(site.tell("status", id)["script"]).read_text()
    assert "ibrun" in script
    assert "--gres" not in script
    assert "--mem" not in script
    refused = me.run("submit", "--site", "generic-slurm", "-N", "1", "-t", "5m", "-G", "1", "-", "true")
    assert refused.returncode != 0
    assert_says(refused.stderr, "schedulers/gpus-cannot-requested-gres-gpus")
    assert me.tell("jobs", "--mine", "--site", "generic-slurm") == []
