# SPDX-License-Identifier: BSD-3-Clause
"""The job part of the tutorials of ZIH, SDumont and NVIDIA, typed with kedge on a real Slurm with their partitions."""

from __future__ import annotations

import json

import pytest

from tests.builders import layers as build
from tests.builders.busybox import read_busybox
from tests.builders.images import make_config
from tests.cluster.job_user import JobUser
from tests.cluster.slurm_cluster import SlurmCluster
from tests.fakes.registry import FakeRegistry
from tests.tutorials.job_reader import add_image, add_pytorch_image, make_reader, type_at_terminal
from tests.tutorials.nvidia_files import TEXTS

RESNET = "/workspace/examples/resnet50v1.5"
STARTER = "python -m torch.distributed.run"


def read_output(me: JobUser, id: str) -> str:
    """What a job's programs said; that nodes without a driver have no GPU is said as well, and is true here."""
    lines = me.read("logs", id).splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("kedge: warning: --nv: "))


def run_job(me: JobUser, *words: str) -> str:
    """What a job's programs said that has to end well."""
    id = me.submit(*words)
    done = me.run("wait", id, "--timeout", "90s")
    assert done.returncode == 0, f"{words}\n{done.stderr}\n{me.read('logs', id)}"
    return read_output(me, id)


@pytest.fixture
def zih(slurm_lessons: SlurmCluster) -> JobUser:
    me = make_reader(slurm_lessons, "zih-taurus")
    add_pytorch_image(me, "pytorch:21.06-py3", "21.06-py3")
    return me


def test_zih_shell_in_the_container_ends_with_its_status(zih: JobUser) -> None:
    words = ("alloc", "-p", "alpha", "--gpus", "1", "--mem", "50G", "-t", "8h", "pytorch:21.06-py3")
    done = type_at_terminal(zih, *words, typed="ls -d /.singularity.d; exit 5\n")
    assert "/.singularity.d" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 5


def test_zih_image_of_before_torchrun_is_looked_into(zih: JobUser) -> None:
    """21.06 has PyTorch 1.9, and the program torchrun came with 1.10."""
    words = ("--torchrun", "-p", "alpha", "--gpus", "8", "-t", "8h", "pytorch:21.06-py3", f"{RESNET}/main.py")
    done = zih.run("submit", "--dry-run", *words)
    assert f"{STARTER} starts the processes of each node: PyTorch 1.9.0a0+c3d40fd of the image has no" in done.stderr


def test_zih_two_nodes_are_possible(zih: JobUser) -> None:
    said = run_job(
        zih, *("--torchrun", "--nodes", "2", "-p", "alpha", "--gpus", "8", "-t", "8h", "pytorch:21.06-py3", "main.py")
    )
    assert "torchrun" not in said
    first, second = sorted(said.splitlines())
    assert first.startswith(f"{STARTER} --nnodes=2 --nproc_per_node=8 --node_rank=0 --master_addr=gpu01")
    assert first.endswith("on gpu01")
    assert "--node_rank=1 --master_addr=gpu01" in second
    assert second.endswith("on gpu02")


def test_zih_refuses_what_a_node_does_not_have(zih: JobUser) -> None:
    done = zih.run("submit", "-p", "alpha", "--gpus", "16", "-t", "8h", "pytorch:21.06-py3", "python")
    assert done.returncode == 71
    assert "--nodes 2 --gpus 8" in done.stderr
    assert zih.tell("jobs", "--mine") == []


@pytest.fixture
def sdumont(slurm_lessons: SlurmCluster) -> JobUser:
    me = make_reader(slurm_lessons, "sdumont")
    return me.with_environment(SCRATCH=str(me.folder))


def test_sdumont_queue_that_wants_gpus(sdumont: JobUser) -> None:
    add_image(sdumont, "pytorch20.03.sif")
    done = sdumont.run("submit", "-p", "sequana_gpu_dev", "-t", "20m", "pytorch20.03.sif", "true")
    assert done.returncode == 71
    assert "try: --gpus 1" in done.stderr


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


@pytest.fixture
def nvidia(slurm_lessons: SlurmCluster) -> JobUser:
    me = make_reader(slurm_lessons, "nvidia")
    add_image(me, "lightning.sif", "torchrun", "all_reduce_perf_mpi")
    return me.with_environment(MYDATA=str(me.folder))


def test_nvidia_ddp_with_torchrun(nvidia: JobUser) -> None:
    words = ("--torchrun", "-N2", "--gpus", "2", "--mem", "32G", "-c", "8", "-t", "30m", "-J", "pt_ddp_example")
    id = nvidia.submit(*words, "lightning.sif", "pt_ddp_example.py")
    nvidia.wait(id)
    assert (nvidia.folder / f"pt_ddp_example-{id}.out").exists(), "the name that the tutorial gives it"
    lines = sorted(read_output(nvidia, id).splitlines())
    port = lines[0].partition("--master_port=")[2].split()[0]
    assert 20_000 <= int(port) < 32_000
    wanted = (
        "torchrun --nnodes=2 --nproc_per_node=2 --node_rank={} --master_addr=gpu01 --master_port={} pt_ddp_example.py"
    )
    assert lines == [f"{wanted.format(n, port)}; gpu01:{port} on gpu0{n + 1}" for n in (0, 1)]


def test_nvidia_ddp_script_is_read_and_turned_into_a_job(nvidia: JobUser) -> None:
    nvidia.write("pt_ddp_example.sbatch", TEXTS["pt_ddp_example.sbatch"])
    assert nvidia.run("script", "check", "pt_ddp_example.sbatch").returncode == 0
    nvidia.write("kedge.toml", nvidia.read("script", "convert", "pt_ddp_example.sbatch"))
    shown = nvidia.read("submit", "--dry-run")
    for line in ("--nodes=2", "--gpus-per-node=2", "--mem=32G", "--time=00:30:00"):
        assert f"#SBATCH {line}\n" in shown
    id = nvidia.submit()
    nvidia.wait(id)
    said = nvidia.read("logs", id)
    assert sorted(line.rpartition(" ")[2] for line in said.splitlines() if "torchrun" in line) == ["gpu01", "gpu02"]


def test_nvidia_lightning_script_is_found_wrong(nvidia: JobUser) -> None:
    nvidia.write("ptl_ddp_example.sbatch", TEXTS["ptl_ddp_example.sbatch"])
    found = json.loads(nvidia.run("script", "check", "--json", "ptl_ddp_example.sbatch").stdout)
    [wrong] = [each for each in found["findings"] if "SLURM_PROCID" in each["message"]]
    assert "no node rank" in wrong["message"]
    assert "SLURM_NODEID" in wrong["remedy"]
