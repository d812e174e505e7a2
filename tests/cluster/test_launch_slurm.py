# SPDX-License-Identifier: BSD-3-Clause
"""`kedge launch` on a real Slurm with two hosts: ranks on all nodes, and a prompt end whatever happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.daemons import wait_until
from tests.cluster.job_user import JobUser, leaving_nothing
from tests.cluster.slurm_cluster import SlurmCluster
from tests.cluster.two_hosts import TWO, slurm_user
from tests.requirements import require_program
from tests.wording import assert_says

SHOW = 'echo "$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE node $NODE_RANK $(hostname) $MASTER_ADDR"'
LONG = "987.5"  # seconds that a rank would sleep
SHOW_NETWORK = 'echo "rank $RANK: $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS $MASTER_ADDR $(hostname)"'
RANKS = ("--ranks", *TWO, "--cpus-per-task", "2")
SHOW_UNEVEN = 'echo "rank $RANK: $(hostname) $LOCAL_RANK/$LOCAL_WORLD_SIZE $NODE_RANK $MASTER_ADDR"'
UNEVEN = (("gpu01", 3, 0), ("gpu02", 2, 1))
SHOW_PLACE = 'echo "on $(hostname): $(readlink /proc/self/ns/mnt) $LOCAL_RANK"; sleep 2'
SIX = ("-N", "2", "--tasks-per-node", "3", "-t", "5m")
me = slurm_user


def list_sleepers(seconds: str = LONG) -> list[str]:
    """Processes of ranks that sleep."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(place.parent.name)
    return found


def test_ranks_know_who_they_are_on_both_nodes(me: JobUser) -> None:
    shown = me.run_job("--ranks", *TWO, "tools.sif", "sh", "-c", SHOW)
    lines = sorted(line for line in shown.splitlines() if "/4" in line)
    assert lines == [
        "0/4 local 0/2 node 0 gpu01 gpu01",
        "1/4 local 1/2 node 0 gpu01 gpu01",
        "2/4 local 0/2 node 1 gpu02 gpu01",
        "3/4 local 1/2 node 1 gpu02 gpu01",
    ]


def test_the_first_rank_that_fails_ends_all_and_its_lines_come_first(me: JobUser) -> None:
    program = f'echo start $RANK; [ $RANK = 3 ] && {{ sleep 1; echo "no such data" >&2; exit 7; }}; sleep {LONG}'
    began = time.monotonic()
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    me.wait(id)
    assert time.monotonic() - began < 40
    task = me.status(id)
    assert (task["state"], task["exit_code"]) == ("failed", 7), task
    logs = me.run("logs", id).stdout
    assert_says(logs, "diagnose/rank-failed-status")
    assert logs.index("no such data") < logs.index("srun: error")
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


def test_a_launch_that_is_terminated_ends_its_ranks(me: JobUser) -> None:
    kedge = " ".join(me.user.program)
    line = f"{kedge} launch --ranks tools.sif sh -c 'exec sleep {LONG}' & sleep 4; kill $!; wait $!; echo ended $?"
    began = time.monotonic()
    shown = me.run_job(*TWO, "-", "sh", "-c", line)
    assert "ended 143" in shown, shown
    assert time.monotonic() - began < 60
    wait_until("no rank is left", lambda: not list_sleepers(), every=0.2)


def test_a_dry_run_shows_every_rank(me: JobUser) -> None:
    kedge = " ".join(me.user.program)
    shown = me.run_job(*TWO, "-", "sh", "-c", f"{kedge} launch --dry-run --json --ranks tools.sif true")
    plan = json.loads(shown)
    assert plan["launcher"] == "srun"
    assert [rank["environment"]["RANK"] for rank in plan["ranks"]] == ["0", "1", "2", "3"]
    assert [rank["host"] for rank in plan["ranks"]] == ["gpu01", "gpu01", "gpu02", "gpu02"]
    assert re.search(r"srun --nodes=2 --ntasks=4 --ntasks-per-node=2", " ".join(plan["processes"][0]["argv"]))


def test_ranks_that_ignore_signals_end_within_seconds_of_the_launch(me: JobUser) -> None:
    stubborn = "986.5"
    kedge = " ".join(me.user.program)
    rank = f'trap "" TERM INT; exec sleep {stubborn}'
    id = me.submit_shell(f"{kedge} launch --ranks tools.sif sh -c '{rank}' & wait $!; sleep 60", *TWO)
    wait_until("all ranks run", lambda: len(list_sleepers(stubborn)) == 4, every=0.2)
    launch = next(place.parent for place in Path("/proc").glob("[0-9]*/cmdline") if _is_launch(place, stubborn))
    began = time.monotonic()
    os.kill(int(launch.name), signal.SIGTERM)
    wait_until("no rank is left", lambda: not list_sleepers(stubborn), every=0.2)
    assert time.monotonic() - began < 12
    assert me.status(id)["state"] == "running"
    me.read("cancel", id)


def _is_launch(cmdline: Path, seconds: str) -> bool:
    try:
        words = cmdline.read_bytes().split(b"\0")
    except OSError:
        return False
    return words[3:4] == [b"launch"] and seconds.encode() in words[-2]


def read_ranks(shown: str) -> list[str]:
    return sorted(line.partition(": ")[2] for line in shown.splitlines() if line.startswith("rank"))


def test_network_of_ranks_on_two_nodes(me: JobUser) -> None:
    shown = read_ranks(me.run_job(*RANKS, "tools.sif", "sh", "-c", SHOW_NETWORK))
    assert shown == [f"=eth0 eth0 2 gpu01 {host}" for host in ("gpu01", "gpu01", "gpu02", "gpu02")]


def test_network_that_the_user_chose_stays(me: JobUser) -> None:
    options = ("--env", "NCCL_SOCKET_IFNAME=^docker0", "--env", "OMP_NUM_THREADS=1")
    shown = read_ranks(me.run_job(*RANKS, *options, "tools.sif", "sh", "-c", SHOW_NETWORK))
    assert [line.split()[:3] for line in shown] == [["^docker0", "eth0", "1"]] * 4


def test_first_node_whose_name_no_node_knows(me: JobUser) -> None:
    """The profile's suffix makes names that nobody has: ranks meet at the first node's address."""
    profile = 'title = "no names"\nscheduler = "slurm"\naddress_suffix = "-fast"\n'
    me.write("config/kedge/sites/nameless.toml", profile)
    there = me.with_environment(XDG_CONFIG_HOME=str(me.folder / "config"), KEDGE_SITE="nameless")
    shown = read_ranks(there.run_job(*RANKS, "tools.sif", "sh", "-c", SHOW_NETWORK))
    addresses = {line.split()[3] for line in shown}
    assert len(addresses) == 1
    assert addresses.pop().startswith("10."), shown


@pytest.fixture
def three(slurm_three_hosts: SlurmCluster) -> Iterator[JobUser]:
    with leaving_nothing(slurm_three_hosts) as user:
        user.take_tools()
        yield user


def launch_in(three: JobUser, job: str, *options: str) -> list[str]:
    """Lines of the ranks of a `kedge launch` in a job, in their order."""
    words = [
        *three.user.program,
        "launch",
        "--ranks",
        *options,
        str(three.folder / "tools.sif"),
        "sh",
        "-c",
        SHOW_UNEVEN,
    ]
    output = three.folder / "launch.out"
    script = f"#!/bin/bash\n{shlex.join(words)}\n"
    done = three.user.run_program("sbatch", "--wait", "-o", str(output), *job.split(), stdin=script)
    text = output.read_text() if output.exists() else ""
    assert done.returncode == 0, f"{done.stderr}{text}"
    return [line.partition(": ")[2] for line in sorted(text.splitlines()) if line.startswith("rank")]


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_launch_five_ranks_on_two_nodes_with_room_for_four(three: JobUser, launcher: str) -> None:
    if launcher == "mpirun":
        require_program("mpirun")
    shown = launch_in(three, "-N2 --ntasks-per-node=4", "--launcher", launcher, "--tasks", "5")
    first, second = ([f"{host} {local}/{count} {node} gpu01" for local in range(count)] for host, count, node in UNEVEN)
    assert shown == [*first, *second]


def test_launch_four_ranks_on_three_nodes(three: JobUser) -> None:
    shown = launch_in(three, "-N3 --ntasks-per-node=2", "--launcher", "srun", "--tasks", "4")
    assert shown == ["gpu01 0/2 0 gpu01", "gpu01 1/2 0 gpu01", "gpu02 0/1 1 gpu01", "gpu03 0/1 2 gpu01"]


def test_launch_on_some_nodes_of_a_job(three: JobUser) -> None:
    shown = launch_in(three, "-N3 --ntasks-per-node=1", "--nodes", "2")
    assert shown == ["gpu01 0/1 0 gpu01", "gpu02 0/1 1 gpu01"]


def launch(me: JobUser, *words: str, variables: str = "", options: tuple[str, ...] = ()) -> str:
    """What `kedge launch` prints as the script of a job, errors included."""
    line = shlex.join([*me.user.program, "launch", "--ranks", *words])
    return me.run_shell(f"{variables} {line} 2>&1", *SIX, *options)


def test_an_image_by_reference_is_unpacked_once_on_each_node(me: JobUser, slurm_hosts: SlurmCluster) -> None:
    assert slurm_hosts.hosts is not None
    me.read("convert", "tools.sif", "oci-archive:tools.tar")
    place = slurm_hosts.hosts.local_disk / f"images-{me.folder.name}"
    image = f"oci-archive:{me.folder}/tools.tar"
    for times in (1, 0):
        shown = launch(me, image, "sh", "-c", SHOW_PLACE, variables=f"KEDGE_NODEDIR={place}")
        assert shown.count("flattening layers") == 2 * times, shown
        for node in ("gpu01", "gpu02"):
            ranks = [line.split() for line in shown.splitlines() if line.startswith(f"on {node}: ")]
            assert len(ranks) == 3, shown
            assert len({words[2] for words in ranks}) == 1, "one container for all ranks of a node"
            assert len(slurm_hosts.hosts.run(node, "ls", f"{place}/names").split()) == 1


@pytest.mark.parametrize("asked", ["--gpus-per-task=1", "--gpus-per-node=2"])
def test_every_rank_sees_all_gpus_of_its_node(me: JobUser, asked: str) -> None:
    """LOCAL_RANK counts them: where srun shows each task one GPU, all but the first would ask for one that is not."""
    show = 'echo "rank $LOCAL_RANK sees $CUDA_VISIBLE_DEVICES"'
    options = ("--tasks-per-node", "2", f"--directive={asked}")
    shown = launch(me, "tools.sif", "sh", "-c", show, options=options)
    assert sorted(line for line in shown.splitlines() if line.startswith("rank")) == [
        *["rank 0 sees 0,1"] * 2,
        *["rank 1 sees 0,1"] * 2,
    ], shown


def test_launch_that_fails_says_why(me: JobUser) -> None:
    program = "echo start; [ $RANK = 3 ] && { cat /proc/self/status >/dev/full; exit 7; }; sleep 300"
    id = me.submit("--ranks", *TWO, "tools.sif", "sh", "-c", program)
    me.wait(id)
    output = me.run("logs", id).stdout
    assert "rank 3 on gpu02" in output
    assert_says(output, "launch/cause-disk-full-quota-used")
    assert "Remedy: 'df -h DIRECTORY'" in output
    told = json.loads(me.run("--json", "diagnose", id).stdout)
    assert told["clues"][0]["name"] == "full-disk"
