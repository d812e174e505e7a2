# SPDX-License-Identifier: BSD-3-Clause
"""`kedge bench` in a job of two nodes on a real Slurm: the same answer on any ranks, and a network measured."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.builders.mpi_images import make_mpi_image
from tests.cluster.job_user import JobUser, make_job_user
from tests.cluster.slurm_cluster import SlurmCluster
from tests.wording import assert_ends, assert_says


@pytest.fixture(scope="module")
def me(slurm_hosts: SlurmCluster) -> JobUser:
    # UCX takes virtual hosts of one kernel for one host, and would share memory between them
    return make_job_user(slurm_hosts, UCX_TLS="tcp,self")


@pytest.fixture(scope="module")
def images(me: JobUser) -> dict[str, Path]:
    return {family: make_mpi_image(me.user, family) for family in ("openmpi", "mpich")}


def bench(me: JobUser, ranks: int, *words: str) -> dict[str, Any]:
    allocation = ("salloc", "--quiet", "-N", "2", "-n", str(ranks), "--mem-per-cpu=200")
    words = (*words, "--warm-up", "0", "--repeats", "1", "--json")
    done = me.user.run_program(*allocation, *me.user.program, "bench", *words, cwd=me.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_slurm_bench_pi_on_two_nodes(me: JobUser, images: dict[str, Path]) -> None:
    results = [
        bench(me, ranks, "pi", "--intervals", "1000000", str(images[family]))
        for ranks, family in ((2, "openmpi"), (4, "openmpi"), (2, "mpich"))
    ]
    assert [(each["ranks"], each["nodes"], each["launcher"]) for each in results] == [
        (2, 2, "srun"),
        (4, 2, "srun"),
        (2, 2, "srun"),
    ]
    assert len({each["pi"] for each in results}) == 1


def test_slurm_bench_allreduce_between_two_hosts(me: JobUser, images: dict[str, Path]) -> None:
    words = ("allreduce", "--way", "mpi", "--bytes", "4M", "--rounds", "5", str(images["openmpi"]))
    result = bench(me, 2, *words)
    assert result["report"]["hosts"] == ["gpu01", "gpu02"]
    assert result["report"]["best_bandwidth"] > 0
    # started on the login node, whose network says nothing of the nodes'
    assert_ends(result["verdict"]["sentence"], "compat/over-links-unknown-speed-no")


# nccl-tests as rank 0 prints them, for who has no GPU
PERF = """\
#!/bin/sh
[ "$PMI_RANK" = 0 ] || exit 0
echo '# nccl-tests version 2.19.6 nccl-headers=22105 nccl-library=22105'
echo '# Using devices'
echo '#  Rank  0 Group  0 Pid   1 on  gpu01 device  0 [0x00] NVIDIA A100-SXM4-80GB'
echo '#  Rank  1 Group  0 Pid   2 on  gpu02 device  0 [0x00] NVIDIA A100-SXM4-80GB'
echo "# $*"
echo '   67108864   16777216   float   sum   -1   2850.1   23.55   23.55   0   2846.3   23.58   23.58   0'
echo '# Out of bounds values : 0 OK'
"""


def test_slurm_bench_takes_nccl_tests_where_the_image_has_them(me: JobUser, images: dict[str, Path]) -> None:
    """In a batch job, which knows its GPUs."""
    program = me.write("all_reduce_perf_mpi", PERF)
    words = ("allreduce", "--bind", f"{program}:/usr/bin/all_reduce_perf_mpi", str(images["mpich"]), "--json")
    batch = ("sbatch", "--wait", "-N2", "-n2", "--gres=gpu:1", "--mem-per-cpu=200", "-o", "out.json", "-e", "errors")
    script = shlex.join([*me.user.program, "bench", *words])
    done = me.user.run_program(*batch, f"--wrap={script}", cwd=me.folder)
    assert done.returncode == 0, (me.folder / "errors").read_text()
    result = json.loads((me.folder / "out.json").read_text())
    report = result["report"]
    assert (report["way"], report["ranks"], report["version"]) == ("nccl-tests", 2, "NCCL 2.21.5")
    assert report["hosts"] == ["gpu01", "gpu02"]
    assert report["best_bandwidth"] == pytest.approx(23.58, abs=0.01)
    assert result["reason"] == "the image has nccl-tests"


def test_slurm_bench_on_two_partitions(me: JobUser, images: dict[str, Path]) -> None:
    """A job in each, started from the login node; one table, a file of each, a plot of both."""
    sweep = ("--ranks", "1,2", "--intervals", "200000", "--warm-up", "0", "--repeats", "1")
    kept = ("--output", "pi.json", "--plot", "pi.svg", "--job-option=--time=5m", "--job-option=--mem-per-cpu=200M")
    words = ("bench", "pi", "--on", "gpu,dev", *sweep, *kept, str(images["openmpi"]))
    done = me.user.run_program(*me.user.program, *words, cwd=me.folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FIRST" in done.stdout
    assert "2 ranks 200704 intervals" in done.stdout
    records = [json.loads((me.folder / f"pi-{queue}.json").read_text()) for queue in ("gpu", "dev")]
    assert [[figure["workers"] for figure in record["figures"]] for record in records] == [[1, 2], [1, 2]]
    assert all(record["machine"]["host"].startswith("gpu") for record in records)  # a node, not the login node
    assert "dev 200704 intervals" in (me.folder / "pi.svg").read_text()
    assert not list(me.folder.glob("kedge-bench-*"))


def test_slurm_bench_on_a_partition_that_fails_keeps_the_output(me: JobUser, images: dict[str, Path]) -> None:
    words = ("bench", "allreduce", "--on", "dev", "--way", "gloo", "--ranks", "2", "--job-option=--mem-per-cpu=200M")
    done = me.user.run_program(*me.user.program, *words, str(images["mpich"]), cwd=me.folder)
    assert done.returncode != 0
    assert_says(done.stderr, "bench/output-results-jobs")
    assert_says(done.stderr, "bench/end-those-run-cancel")
    (log,) = me.folder.glob("kedge-bench-*/*.log")
    assert "--way gloo is not possible: the image has no torch" in log.read_text()
