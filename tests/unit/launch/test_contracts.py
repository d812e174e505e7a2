# SPDX-License-Identifier: BSD-3-Clause
"""What each family of programs is given: variables, and the words around the command."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.cluster.allocation import AllocatedNode
from kedge.cluster.ranks import Rank
from kedge.errors import LaunchRefused
from kedge.launch.contracts import (
    Contract,
    Rendezvous,
    Terms,
    check_command,
    name_task,
    needs_mpi,
    rank_command,
    rank_variables,
    starts_one_per_node,
)
from kedge.launch.plan import LaunchShape
from tests.builders.rows import each_row

MEETING = Rendezvous("gpu01", 24711, "kedge-4711.0")
LAST = Rank(4, 5, 0, 1, 2, 3)  # of 3, 1 and 1 on three nodes


LEFT_BY_TORCHRUN = {
    *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"),
    *("GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME"),
}


def variables(contract: Contract, rank: Rank = LAST, **terms: object) -> dict[str, str | None]:
    return rank_variables(contract, rank, Terms(MEETING, **terms))  # type: ignore[arg-type]


def test_ranks_get_what_env_rendezvous_reads() -> None:
    found = variables(Contract.RANKS)
    wanted = {"RANK": "4", "WORLD_SIZE": "5", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "2"}
    assert found.items() >= (wanted | {"GROUP_RANK": "2", "MASTER_ADDR": "gpu01", "MASTER_PORT": "24711"}).items()
    # With its store rank 0 would wait for one that nobody opens
    found = variables(Contract.RANKS)
    assert {name for name, value in found.items() if value is None} == LEFT_BY_TORCHRUN


def test_contracts_and_tasks_have_names() -> None:
    assert [each.value for each in Contract] == [
        *("none", "ranks", "torchrun", "elastic", "multiproc", "lightning", "horovod", "jax", "deepspeed"),
        "tensorflow",
    ]
    assert name_task(Contract.RANKS, 3) == "rank 3"
    assert [name_task(each, 3) for each in (Contract.TORCHRUN, Contract.ELASTIC)] == ["torchrun", "torchrun"]
    assert name_task(Contract.MULTIPROC, 3) == "multiproc"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_lightning_has_the_right_node_with_any_tasks_per_node(tasks: list[int]) -> None:
    shape = LaunchShape(tuple(AllocatedNode(f"n{index}") for index in range(len(tasks))), tuple(tasks))
    nodes = [node for node, count in enumerate(tasks) for _ in range(count)]
    for rank in shape.list_ranks():
        found = variables(Contract.LIGHTNING, rank)
        assert found["NODE_RANK"] == str(nodes[rank.rank])
        if max(tasks) > 1:
            assert found["GROUP_RANK"] == str(nodes[rank.rank])
            assert found["LOCAL_RANK"] == str(nodes[: rank.rank].count(nodes[rank.rank]))
        else:  # each starts the processes of its node, and must not be told that it is one of them
            assert found["LOCAL_RANK"] is found["WORLD_SIZE"] is found["TORCHELASTIC_RUN_ID"] is None
            assert "OMP_NUM_THREADS" not in found


def test_lightning_takes_the_ranks_as_they_are() -> None:
    """It prefers torchrun's worker to Slurm's task; older ones look for Slurm first, unless it is a shell's job."""
    found = variables(Contract.LIGHTNING)
    assert found["TORCHELASTIC_RUN_ID"] == "kedge-4711.0"
    assert found["SLURM_JOB_NAME"] == "bash"
    alone = Rank(1, 2, 0, 1, 1, 2)
    assert variables(Contract.LIGHTNING, alone)["SLURM_JOB_NAME"] == "bash"


def test_horovod_jax_and_deepspeed() -> None:
    assert variables(Contract.HOROVOD) == {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}
    assert needs_mpi(Contract.HOROVOD)
    assert needs_mpi(Contract.NONE)
    assert not needs_mpi(Contract.RANKS)
    found = variables(Contract.JAX)
    assert found["JAX_COORDINATOR_ADDRESS"] == "gpu01:24711"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("5", "4")
    assert (found["SLURM_NTASKS"], found["SLURM_PROCID"], found["SLURM_LOCALID"]) == ("5", "4", "0")
    assert (found["SLURM_JOB_ID"], found["SLURM_STEP_NODELIST"]) == ("1", "")
    inside = variables(Contract.JAX, hosts=("n1", "n1", "n2"), environ={"SLURM_JOB_ID": "4711"})
    assert (inside["SLURM_JOB_ID"], inside["SLURM_STEP_NODELIST"]) == ("4711", "n1,n2")
    found = variables(Contract.DEEPSPEED)
    assert all(found[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"))
    assert (found["CROSS_RANK"], found["CROSS_SIZE"], found["LOCAL_SIZE"]) == ("2", "3", "1")


def test_tensorflow_workers_of_one_node_have_ports_of_their_own() -> None:
    found = variables(Contract.TENSORFLOW, hosts=("n1", "n1", "n1", "n2", "n3"))
    assert json.loads(str(found["TF_CONFIG"])) == {
        "cluster": {"worker": ["n1:24711", "n1:24712", "n1:24713", "n2:24711", "n3:24711"]},
        "task": {"type": "worker", "index": 4},
    }


def test_torchrun_static_and_elastic() -> None:
    rank = Rank(1, 3, 0, 1, 1, 3)
    assert rank_command(Contract.TORCHRUN, rank, Terms(MEETING, processes=4), ["train.py", "--lr", "1"]) == (
        *("torchrun", "--nnodes=3", "--nproc_per_node=4", "--node_rank=1"),
        *("--master_addr=gpu01", "--master_port=24711", "train.py", "--lr", "1"),
    )
    assert starts_one_per_node(Contract.TORCHRUN)
    terms = Terms(MEETING, processes=4, least_nodes=2, restarts=3)
    words = [rank_command(Contract.ELASTIC, Rank(node, 3, 0, 1, node, 3), terms, ["train.py"]) for node in range(3)]
    assert words[0][1:-1] == (
        *("--nnodes=2:3", "--nproc_per_node=4", "--rdzv_backend=c10d", "--rdzv_endpoint=gpu01:24711"),
        *("--rdzv_id=kedge-4711.0", "--rdzv_conf=is_host=1", "--max_restarts=3"),
    )
    assert [word for each in words for word in each if "is_host" in word][1:] == ["--rdzv_conf=is_host=0"] * 2
    rank = Rank(0, 3, 0, 1, 0, 3)
    assert "--nproc_per_node=1" in rank_command(Contract.TORCHRUN, rank, Terms(MEETING), ["train.py"])
    elastic = rank_command(Contract.ELASTIC, rank, Terms(MEETING), ["train.py"])
    assert {"--nnodes=3:3", "--nproc_per_node=1", "--max_restarts=0"} < set(elastic)


@each_row("command", [
    ["python", "/w/multiproc.py", "main.py"],
    ["python", "-m", "torch.distributed.launch", "main.py"],
    ["python", "-m", "torch.distributed.run", "main.py"],
    ["python", "-m", "multiproc", "main.py"],
])  # fmt: skip
def test_multiproc_options_go_before_the_user_s(command: list[str]) -> None:
    found = rank_command(Contract.MULTIPROC, Rank(1, 2, 0, 1, 1, 2), Terms(MEETING, processes=8), command)
    assert [*found[: len(command) - 1], found[-1]] == command
    assert found[len(command) - 1 : -1] == (
        *("--nnodes=2", "--nproc_per_node=8", "--node_rank=1", "--master_addr=gpu01", "--master_port=24711"),
    )


def test_variables_that_leak_go_and_the_users_stay() -> None:
    found = variables(Contract.TORCHRUN, environ={"PET_NNODES": "9", "WORLD_SIZE": "7"})
    workers = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"}
    assert {name for name, value in found.items() if value is None} == {"PET_NNODES", *workers, *LEFT_BY_TORCHRUN}
    assert {name: value for name, value in found.items() if value is not None} == {
        "MASTER_ADDR": "gpu01",
        "MASTER_PORT": "24711",
        "NODE_RANK": "2",
    }
    found = variables(Contract.RANKS, interface="ib0")
    assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("=ib0", "ib0")
    kept = variables(Contract.RANKS, interface="ib0", environ={"NCCL_SOCKET_IFNAME": "^docker0"})
    assert "NCCL_SOCKET_IFNAME" not in kept
    assert kept["GLOO_SOCKET_IFNAME"] == "ib0"
    assert "NCCL_SOCKET_IFNAME" not in variables(Contract.RANKS)


def test_commands_are_checked_and_left_alone() -> None:
    for contract in Contract:
        if not starts_one_per_node(contract):
            assert rank_command(contract, LAST, Terms(MEETING), ["python", "a.py"]) == ("python", "a.py")
    check_command(Contract.NONE, [])
    check_command(Contract.TORCHRUN, ["train.py"])
    check_command(Contract.MULTIPROC, ["python", "multiproc.py", "a.py"])
    with pytest.raises(LaunchRefused, match=r"multiproc\.py"):
        check_command(Contract.MULTIPROC, ["python", "a.py"])
    with pytest.raises(LaunchRefused, match="torchrun"):
        check_command(Contract.TORCHRUN, ["torchrun", "a.py"])


@each_row("word", ["horovodrun", "/usr/bin/mpirun", "mpiexec", "srun", "ibrun", "deepspeed", "accelerate"])
def test_command_that_is_a_launcher_is_refused(word: str) -> None:
    with pytest.raises(LaunchRefused, match="starts processes itself"):
        check_command(Contract.RANKS, [word, "-np", "4", "python"])


def test_threads_are_those_of_the_task_or_the_users() -> None:
    rank = Rank(0, 8, 0, 4, 0, 2)
    assert variables(Contract.RANKS, rank, cpus=8)["OMP_NUM_THREADS"] == "8"
    assert variables(Contract.TORCHRUN, Rank(0, 2, 0, 1, 0, 2), cpus=32, processes=8)["OMP_NUM_THREADS"] == "4"
    assert variables(Contract.RANKS, rank)["OMP_NUM_THREADS"] == "1", "unknown, and shared by four"
    assert variables(Contract.RANKS, Rank(0, 4, 0, 2, 0, 2))["OMP_NUM_THREADS"] == "1", "by two"
    assert "OMP_NUM_THREADS" not in variables(Contract.NONE, Rank(0, 1, 0, 1, 0, 1))
    rank = Rank(0, 8, 0, 4, 0, 2)
    for cpus, text in ((8, "2"), (8, "8"), (0, "6")):
        assert "OMP_NUM_THREADS" not in variables(Contract.RANKS, rank, cpus=cpus, environ={"OMP_NUM_THREADS": text})
    assert variables(Contract.RANKS, rank, cpus=8, environ={"OMP_NUM_THREADS": "32"})["OMP_NUM_THREADS"] == "8"
